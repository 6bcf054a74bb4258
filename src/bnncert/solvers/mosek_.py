"""Mosek, for users who have a licence (https://www.mosek.com).

The program is given to Mosek as its dual:  max -b.z  s.t.  A'z = -c  with z in the cone, where a
semidefinite block of z is a matrix variable Z and <F, Z> a sum over its lower triangle.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.solvers.conic import (
    ConicProgram,
    ConicSolution,
    ConicSolver,
    ConicStatus,
    pack,
)


class MosekSolver(ConicSolver):
    """Interior-point method of Mosek."""

    name = "mosek"
    package = "mosek"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the time that is left."""
        import mosek

        started = time.monotonic()
        count = program.cost.size
        columns = sp.csr_array(program.matrix.T)
        with mosek.Env() as environment, environment.Task() as task:
            task.putobjsense(mosek.objsense.maximize)
            task.appendcons(count)
            task.putconboundlist(
                range(count), [mosek.boundkey.fx] * count, -program.cost, -program.cost
            )
            task.appendvars(program.nonnegative)
            for j in range(program.nonnegative):
                task.putvarbound(j, mosek.boundkey.lo, 0.0, 0.0)
                task.putcj(j, -float(program.right[j]))
            task.appendbarvars(list(program.blocks))
            head = sp.csr_array(columns[:, : program.nonnegative]).tocoo()
            task.putaijlist(head.coords[0], head.coords[1], head.data)
            for k, (n, rows) in enumerate(zip(program.blocks, program.block_rows(), strict=True)):
                lower = np.tril_indices(n)
                # Our vectors carry sqrt 2 off the diagonal; Mosek doubles those entries itself.
                scale = np.where(lower[0] == lower[1], 1.0, 1.0 / np.sqrt(2.0))
                part = sp.csr_array(columns[:, rows]).tocoo()
                entries = part.coords[1]
                task.putbarablocktriplet(
                    part.coords[0],
                    [k] * part.nnz,
                    lower[0][entries],
                    lower[1][entries],
                    part.data * scale[entries],
                )
                used = np.flatnonzero(program.right[rows])
                task.putbarcblocktriplet(
                    [k] * used.size,
                    lower[0][used],
                    lower[1][used],
                    -program.right[rows][used] * scale[used],
                )
            left = deadline.remaining()
            if np.isfinite(left):
                task.putdouparam(mosek.dparam.optimizer_max_time, max(left, 1e-3))
            code = task.optimize()
            state = task.getsolsta(mosek.soltype.itr)
            dual = np.zeros(program.right.size)
            dual[: program.nonnegative] = task.getxx(mosek.soltype.itr)
            for k, (n, rows) in enumerate(zip(program.blocks, program.block_rows(), strict=True)):
                # Mosek stores the lower triangle by columns.
                lower_by_columns = np.zeros((n, n))
                triangle = np.triu_indices(n)
                lower_by_columns[triangle[1], triangle[0]] = task.getbarxj(mosek.soltype.itr, k)
                full = lower_by_columns + np.tril(lower_by_columns, -1).T
                dual[rows] = pack(full)
            primal = -np.array(task.gety(mosek.soltype.itr))
            iterations = int(task.getintinf(mosek.iinfitem.intpnt_iter))
        status: ConicStatus = "inaccurate"
        if state == mosek.solsta.optimal:
            status = "solved"
        elif code == mosek.rescode.trm_max_time:
            status = "limit"
        return ConicSolution(status, primal, dual, iterations, time.monotonic() - started)
