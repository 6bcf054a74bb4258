"""Mosek, for users who have a licence (https://www.mosek.com).

The program is given to Mosek as its dual:  max -b.z  s.t.  A'z = -c  with z in the cone, where a
semidefinite block of z is a matrix variable Z and <F, Z> a sum over its lower triangle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, ConicSolver, ConicStatus, pack


class MosekSolver(ConicSolver):
    """Interior-point method of Mosek."""

    name = "mosek"
    package = "mosek"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        import mosek

        with mosek.Env() as environment, environment.Task() as task:
            _load(mosek, task, program)
            left = deadline.remaining()
            if np.isfinite(left):
                task.putdouparam(mosek.dparam.optimizer_max_time, max(left, 1e-3))
            code = task.optimize()
            state = task.getsolsta(mosek.soltype.itr)
            dual = _dual(mosek, task, program)
            primal = -np.array(task.gety(mosek.soltype.itr))
            iterations = int(task.getintinf(mosek.iinfitem.intpnt_iter))
        status: ConicStatus = "inaccurate"
        if state == mosek.solsta.optimal:
            status = "solved"
        elif code == mosek.rescode.trm_max_time:
            status = "limit"
        return ConicSolution(status, primal, dual, iterations)


def _load(mosek: Any, task: Any, program: ConicProgram) -> None:
    """Give the dual of a program to Mosek."""
    count = program.cost.size
    columns = sp.csr_array(program.matrix.T)
    task.putobjsense(mosek.objsense.maximize)
    task.appendcons(count)
    fixed = [mosek.boundkey.fx] * count
    task.putconboundlist(range(count), fixed, -program.cost, -program.cost)
    task.appendvars(program.nonnegative)
    for column in range(program.nonnegative):
        task.putvarbound(column, mosek.boundkey.lo, 0.0, 0.0)
        task.putcj(column, -float(program.right[column]))
    task.appendbarvars(list(program.blocks))
    head = sp.csr_array(columns[:, : program.nonnegative]).tocoo()
    task.putaijlist(head.coords[0], head.coords[1], head.data)
    for k, (n, rows) in enumerate(zip(program.blocks, program.block_rows(), strict=True)):
        i, j = np.tril_indices(n)
        # In a ConicProgram, entries off the diagonal have the factor sqrt 2; Mosek doubles them.
        scale = np.where(i == j, 1.0, 1.0 / np.sqrt(2.0))
        part = sp.csr_array(columns[:, rows]).tocoo()
        at, entry = part.coords
        values = part.data * scale[entry]
        task.putbarablocktriplet(at, [k] * part.nnz, i[entry], j[entry], values)
        used = np.flatnonzero(program.right[rows])
        values = -program.right[rows][used] * scale[used]
        task.putbarcblocktriplet([k] * used.size, i[used], j[used], values)


def _dual(mosek: Any, task: Any, program: ConicProgram) -> FloatArray:
    """Return z of the solution."""
    dual = np.zeros(program.right.size)
    dual[: program.nonnegative] = task.getxx(mosek.soltype.itr)
    for k, (n, rows) in enumerate(zip(program.blocks, program.block_rows(), strict=True)):
        # Mosek stores the lower triangle by columns.
        lower = np.zeros((n, n))
        triangle = np.triu_indices(n)
        lower[triangle[1], triangle[0]] = task.getbarxj(mosek.soltype.itr, k)
        dual[rows] = pack(lower)
    return dual
