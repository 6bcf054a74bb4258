r"""Mixed-integer programs with a convex quadratic constraint: SCIP and Gurobi.

Both (https://scipopt.org, and https://www.gurobi.com for users who have a licence) take a linear
program as in :mod:`bnncert.regions.linear_program`, and optionally

    v_1^2 + ... + v_n^2 <= 1       for its first n variables.

SCIP runs in a thread of its own without Python's lock, so that the caller can react to the deadline
and to Ctrl-C.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.errors import InputError, MissingExtraError
from bnncert.regions.linear_program import UNIT_BALL, LinearProgram, LinearSolution, LinearStatus


class GurobiModel:
    """A program in Gurobi that can be solved, extended and solved again.

    `ball` is the number n of leading variables with sum v_i^2 <= 1; 0 for no such constraint.
    """

    def __init__(
        self, program: LinearProgram, *, ball: int = 0, threads: int = 0, seed: int = 0
    ) -> None:
        try:
            import gurobipy
        except ImportError as error:
            raise MissingExtraError(
                "solver gurobi needs gurobipy: pip install 'bnncert[gurobi]'"
            ) from error
        self._api: Any = gurobipy
        self._offset = program.offset
        try:
            environment = gurobipy.Env(empty=True)
            environment.setParam("OutputFlag", 0)
            environment.start()
            self._model = gurobipy.Model(env=environment)
            self._build(program, ball)
        except gurobipy.GurobiError as error:
            raise InputError(f"solver gurobi: {error}") from error
        for name, value in (
            ("Threads", threads),
            ("Seed", seed % 2**31),
            ("MIPGap", 0.0),
            ("MIPGapAbs", 1e-6),
        ):
            self._model.setParam(name, value)

    def _build(self, program: LinearProgram, ball: int) -> None:
        kinds = np.where(program.integer, "B", "C")
        self._variables: Any = self._model.addMVar(
            program.cost.size, lb=program.lower, ub=program.upper, obj=program.cost, vtype=kinds
        )
        self._model.ObjCon = program.offset
        matrix = sp.csr_array(program.matrix)
        for limits, sense in ((program.row_lower, ">"), (program.row_upper, "<")):
            used = np.flatnonzero(np.isfinite(limits))
            if used.size:
                rows = sp.csr_matrix(matrix[used])
                self._model.addMConstr(rows, self._variables, sense, limits[used])
        if ball:
            inside = self._variables[:ball]
            self._model.addConstr(inside @ inside <= UNIT_BALL)

    def add_row(self, lower: float, upper: float, columns: Any, values: Any) -> None:
        """Add one constraint."""
        index = np.asarray(columns, dtype=np.int64)
        row = self._variables[index]
        weights = np.asarray(values, dtype=np.float64)
        if np.isfinite(lower):
            self._model.addConstr(weights @ row >= lower)
        if np.isfinite(upper):
            self._model.addConstr(weights @ row <= upper)

    def solve(self, deadline: Deadline) -> LinearSolution:
        """Solve within the remaining time."""
        left = deadline.remaining()
        if left <= 0:
            return LinearSolution("limit")
        self._model.setParam("TimeLimit", min(left, 1e100))
        try:
            self._model.optimize()
        except self._api.GurobiError as error:
            # If the licence is too small for the model, Gurobi raises only here.
            raise InputError(f"solver gurobi: {error}") from error
        return self._collect()

    def _collect(self) -> LinearSolution:
        codes = self._api.GRB
        if self._model.Status == codes.INTERRUPTED:
            raise KeyboardInterrupt
        # All variables are bounded, so "infeasible or unbounded" is infeasible.
        status: LinearStatus = "failed"
        if self._model.Status == codes.OPTIMAL:
            status = "optimal"
        elif self._model.Status in (codes.INFEASIBLE, codes.INF_OR_UNBD):
            status = "infeasible"
        elif self._model.Status in (codes.TIME_LIMIT, codes.MEM_LIMIT):
            status = "limit"
        point = np.asarray(self._variables.X) if self._model.SolCount > 0 else None
        bound = np.inf if status == "infeasible" else float(self._model.ObjBound)
        return LinearSolution(status, point, bound if abs(bound) < 1e99 else -np.inf)


# All variables are bounded, so "infeasible or unbounded" is infeasible.
_SCIP: dict[str, LinearStatus] = {
    "optimal": "optimal",
    "infeasible": "infeasible",
    "inforunbd": "infeasible",
    "timelimit": "limit",
    "userinterrupt": "limit",
    "memlimit": "limit",
}

#: Seconds between checks of the deadline and of Ctrl-C.
POLL_SECONDS = 0.05

#: Seconds that SCIP may take to stop at its time limit, and after an interrupt.
NOTICE_SECONDS, OBEY_SECONDS = 0.1, 0.5

#: Larger numbers are refused: 1e20 is infinite for SCIP, and sums of smaller numbers may reach it.
LARGEST = 1e15


class ScipModel:
    """A program in SCIP that can be solved, extended and solved again.

    Parameters
    ----------
    ball
        The number n of leading variables with sum v_i^2 <= 1; 0 for no such constraint.
    branch_first
        Variables to branch on before any other.
    deadline
        OutOfTimeError is raised if it passes before the program is built.
    """

    def __init__(
        self,
        program: LinearProgram,
        *,
        ball: int = 0,
        branch_first: Sequence[int] = (),
        seed: int = 0,
        deadline: Deadline | None = None,
    ) -> None:
        from pyscipopt import Model, quicksum

        self._offset = program.offset
        self._cannot_hold = False
        #: Whether a number of the program is too large, so that the answer is "failed".
        self._refused = False
        self._quicksum = quicksum
        self._model: Any = Model()
        self._model.hideOutput()
        # With SCIP's own handler, Python does not receive the signal.
        self._model.setParam("misc/catchctrlc", False)
        self._model.setParam("randomization/randomseedshift", seed % 2**31)
        # SCIP divides rows by a common divisor with a rounding error above the margin of 1e-7,
        # which excludes solutions at a tie.
        self._model.setParam("constraints/linear/simplifyinequalities", False)
        # This heuristic takes up to half of the time and does not find solutions.
        self._model.setParam("heuristics/mpec/freq", -1)
        if _beyond(program.cost, program.lower, program.upper, np.array([program.offset])):
            self._refused = True
            self._variables: list[Any] = []
            return
        self._variables = [
            self._model.addVar(lb=low, ub=high, obj=cost, vtype="B" if integer else "C")
            for low, high, cost, integer in zip(
                program.lower.tolist(),
                program.upper.tolist(),
                program.cost.tolist(),
                program.integer.tolist(),
                strict=True,
            )
        ]
        self._model.addObjoffset(program.offset)
        for j in branch_first:
            self._model.chgVarBranchPriority(self._variables[j], 1)
        matrix = program.matrix
        for i in range(program.row_lower.size):
            if deadline is not None:
                deadline.check()
            entries = slice(matrix.indptr[i], matrix.indptr[i + 1])
            self.add_row(
                float(program.row_lower[i]),
                float(program.row_upper[i]),
                matrix.indices[entries],
                matrix.data[entries],
            )
        if ball:
            self._model.addCons(quicksum(v * v for v in self._variables[:ball]) <= UNIT_BALL)

    def add_row(self, lower: float, upper: float, columns: Any, values: Any) -> None:
        """Add one constraint."""
        columns, values = np.asarray(columns).tolist(), np.asarray(values, float).tolist()
        if not any(values):
            self._cannot_hold |= lower > 0 or upper < 0
            return
        if self._refused or _beyond(np.array(values), np.array([lower, upper])):
            self._refused = True
            return
        # SCIP extends only the original problem, not the presolved one.
        self._model.freeTransform()
        row = self._quicksum(c * self._variables[j] for j, c in zip(columns, values, strict=True))
        if np.isfinite(lower):
            self._model.addCons(row >= lower)
        if np.isfinite(upper):
            self._model.addCons(row <= upper)

    def solve(self, deadline: Deadline) -> LinearSolution:
        """Solve within the remaining time; Ctrl-C stops SCIP and is re-raised."""
        left = deadline.remaining()
        if left <= 0:
            return LinearSolution("limit")
        if self._refused:
            return LinearSolution("failed")
        if self._cannot_hold:
            return LinearSolution("infeasible", None, np.inf)
        if not self._variables:
            return LinearSolution("optimal", np.zeros(0), self._offset)
        self._model.freeTransform()
        self._model.setParam("limits/time", min(left, 1e20))
        run = _Run(self._model)
        run.start()
        try:
            while run.is_alive() and deadline.remaining() > -NOTICE_SECONDS:
                run.join(POLL_SECONDS)
        except KeyboardInterrupt:
            run.stop()
            raise
        if run.is_alive() and not run.stop():
            # The model is not used again, and the thread ends when SCIP returns.
            return LinearSolution("limit")
        return LinearSolution("failed") if run.failed else self._collect()

    def _collect(self) -> LinearSolution:
        status = _SCIP.get(self._model.getStatus(), "failed")
        point = None
        if self._model.getNSols() > 0:
            best = self._model.getBestSol()
            point = np.array([self._model.getSolVal(best, v) for v in self._variables])
        bound = float(self._model.getDualbound())
        if abs(bound) >= self._model.infinity():
            bound = float(np.copysign(np.inf, bound))
        return LinearSolution(status, point, bound)


def _beyond(*arrays: FloatArray) -> bool:
    """Whether a finite number is so large that SCIP may treat it as infinite."""
    return any(bool(np.any(np.isfinite(a) & (np.abs(a) >= LARGEST))) for a in arrays)


class _Run(threading.Thread):
    """One solve in the background."""

    def __init__(self, model: Any) -> None:
        super().__init__(daemon=True)
        self._scip = model
        self.failed = False

    def run(self) -> None:
        """Solve the program; SCIP reports numerical problems by a plain Exception."""
        try:
            self._scip.optimizeNogil()
        except Exception:
            self.failed = True

    def stop(self) -> bool:
        """Interrupt SCIP, and return whether it has ended."""
        patience = Deadline(OBEY_SECONDS)
        while self.is_alive() and not patience.passed():
            # The interrupt is repeated, because SCIP ignores it before the solving starts.
            self._scip.interruptSolve()
            self.join(POLL_SECONDS)
        return not self.is_alive()
