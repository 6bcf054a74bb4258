"""The conic back ends by name: Clarabel, SCS and Mosek.

Clarabel (https://clarabel.org) is an interior-point method and comes with the package, SCS
(https://www.cvxgrp.org/scs) a first-order method, and Mosek (https://www.mosek.com) another
interior-point method, for users who have a licence.  The program is given to Mosek as its dual:
max -b.z  s.t.  A'z = -c  with z in the cone, where a semidefinite block of z is a matrix variable Z
and <F, Z> a sum over its lower triangle.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, ConicSolver, ConicStatus, pack
from bnncert.errors import InputError, MissingExtraError

_CLARABEL: dict[str, ConicStatus] = {
    "Solved": "solved",
    "AlmostSolved": "inaccurate",
    "PrimalInfeasible": "infeasible",
    "AlmostPrimalInfeasible": "infeasible",
    "MaxTime": "limit",
    "MaxIterations": "limit",
    "InsufficientProgress": "inaccurate",
}


class ClarabelSolver(ConicSolver):
    """The default back end."""

    name = "clarabel"
    package = "clarabel"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        cones = []
        if program.nonnegative:
            cones.append(clarabel.NonnegativeConeT(program.nonnegative))
        cones += [clarabel.PSDTriangleConeT(n) for n in program.blocks]
        answer = run_clarabel(program.cost, program.matrix, program.right, cones, deadline)
        return ConicSolution(
            _CLARABEL.get(str(answer.status), "failed"),
            np.array(answer.x),
            np.array(answer.z),
            int(answer.iterations),
        )


def run_clarabel(
    cost: FloatArray, matrix: Any, right: FloatArray, cones: list[Any], deadline: Deadline
) -> Any:
    """Return Clarabel's answer to  min c.y  s.t.  s = b - A y,  s in the product of the cones."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    # The default method to merge cliques may not terminate on sparse matrices of moderate size.
    settings.chordal_decomposition_merge_method = "none"
    left = deadline.remaining()
    if np.isfinite(left):
        settings.time_limit = max(left, 1e-3)
    square = sp.csc_matrix((cost.size, cost.size))
    arguments = square, cost, sp.csc_matrix(matrix), right, cones, settings
    return clarabel.DefaultSolver(*arguments).solve()


_SCS: dict[int, ConicStatus] = {1: "solved", 2: "inaccurate", -2: "infeasible", -7: "infeasible"}


def _lower_order(n: int) -> np.ndarray:
    """Return the position in a block of each entry of the lower triangle by columns, as in SCS."""
    j, i = np.triu_indices(n)
    return np.asarray(i * (i + 1) // 2 + j, dtype=np.int64)


class ScsSolver(ConicSolver):
    """A first-order method, which is less accurate and needs less memory."""

    name = "scs"
    package = "scs"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        import scs

        order = [np.arange(program.nonnegative)]
        for n, rows in zip(program.blocks, program.block_rows(), strict=True):
            order.append(rows.start + _lower_order(n))
        permutation = np.concatenate(order)
        left = deadline.remaining()
        options = {"verbose": False, "eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 20_000}
        if np.isfinite(left):
            options["time_limit_secs"] = max(left, 1e-3)
        answer = scs.SCS(
            {
                "A": sp.csc_matrix(sp.csr_array(program.matrix)[permutation]),
                "b": program.right[permutation],
                "c": program.cost,
            },
            {"l": program.nonnegative, "s": list(program.blocks)},
            **options,
        ).solve()
        dual = np.zeros(program.right.size)
        dual[permutation] = np.nan_to_num(answer["y"])
        return ConicSolution(
            _SCS.get(int(answer["info"]["status_val"]), "limit"),
            np.nan_to_num(np.array(answer["x"])),
            dual,
            int(answer["info"]["iter"]),
        )


class MosekSolver(ConicSolver):
    """Interior-point method of Mosek."""

    name = "mosek"
    package = "mosek"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        import mosek

        with mosek.Env() as environment, environment.Task() as task:
            _load_mosek(mosek, task, program)
            left = deadline.remaining()
            if np.isfinite(left):
                task.putdouparam(mosek.dparam.optimizer_max_time, max(left, 1e-3))
            code = task.optimize()
            state = task.getsolsta(mosek.soltype.itr)
            dual = _mosek_dual(mosek, task, program)
            primal = -np.array(task.gety(mosek.soltype.itr))
            iterations = int(task.getintinf(mosek.iinfitem.intpnt_iter))
        status: ConicStatus = "inaccurate"
        if state == mosek.solsta.optimal:
            status = "solved"
        elif code == mosek.rescode.trm_max_time:
            status = "limit"
        return ConicSolution(status, primal, dual, iterations)


def _load_mosek(mosek: Any, task: Any, program: ConicProgram) -> None:
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


def _mosek_dual(mosek: Any, task: Any, program: ConicProgram) -> FloatArray:
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


CONIC_SOLVERS: dict[str, type[ConicSolver]] = {
    solver.name: solver for solver in (ClarabelSolver, ScsSolver, MosekSolver)
}


def conic_solver(name: str) -> ConicSolver:
    """Return the back end of that name; raise if its package is not installed."""
    if name not in CONIC_SOLVERS:
        raise InputError(f"no solver {name!r}; expected one of {', '.join(CONIC_SOLVERS)}")
    solver = CONIC_SOLVERS[name]
    if importlib.util.find_spec(solver.package) is None:
        raise MissingExtraError(
            f"solver {name} needs {solver.package}: pip install 'bnncert[{name}]'"
        )
    return solver()
