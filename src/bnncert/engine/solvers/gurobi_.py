"""Gurobi, for users who have a licence: mixed-integer programs (https://www.gurobi.com)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

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
