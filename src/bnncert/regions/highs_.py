"""HiGHS: linear and mixed-integer programs (https://highs.dev).

`LinearMaxima` are maxima of linear functions over one polytope, warm-started from the last basis.
The results are not proved: callers derive bounds from the multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.regions.linear_program import LinearProgram, LinearSolution, LinearStatus

_STATUS: dict[Any, LinearStatus] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",
    highspy.HighsModelStatus.kTimeLimit: "limit",
    highspy.HighsModelStatus.kInterrupt: "limit",
    highspy.HighsModelStatus.kSolutionLimit: "feasible",
    highspy.HighsModelStatus.kObjectiveTarget: "feasible",
}

#: Seconds after the limit at which a solve is cancelled, and at which it is abandoned.
CANCEL_SECONDS, LEAVE_SECONDS = 0.1, 0.5

#: Seconds between checks of the deadline and of Ctrl-C while HiGHS runs in its own thread.
POLL_SECONDS = 0.05


class HighsModel:
    """A program in HiGHS that can be solved, changed and solved again."""

    def __init__(self, program: LinearProgram, options: dict[str, Any] | None = None) -> None:
        self._program = program
        self._offset = program.offset
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        for name, value in (options or {}).items():
            self._highs.setOptionValue(name, value)
        # Without this, a Ctrl-C or a passed deadline cannot stop a running solve.
        self._highs.HandleUserInterrupt = True
        # Whether a solve ignored its cancellation: its thread still uses the model.
        self._left_behind = False
        self._is_mip = bool(np.any(program.integer))
        self._highs.passModel(_to_highs(program))

    def set_cost(self, cost: FloatArray, offset: float) -> None:
        """Replace the objective; the next solve starts from the last basis."""
        count = cost.size
        self._offset = offset
        if self._left_behind:
            return
        self._highs.changeColsCost(count, np.arange(count, dtype=np.int32), cost)
        self._highs.changeObjectiveOffset(offset)

    def set_row_bounds(self, lower: FloatArray, upper: FloatArray) -> None:
        """Replace the bounds of the first rows; the next solve starts from the last basis."""
        if self._left_behind:
            return
        self._highs.changeRowsBounds(
            lower.size,
            np.arange(lower.size, dtype=np.int32),
            np.maximum(lower, -highspy.kHighsInf),
            np.minimum(upper, highspy.kHighsInf),
        )

    def add_row(self, lower: float, upper: float, columns: Any, values: Any) -> None:
        """Add one constraint."""
        if self._left_behind:
            return
        index = np.asarray(columns, dtype=np.int32)
        self._highs.addRow(
            max(lower, -highspy.kHighsInf),
            min(upper, highspy.kHighsInf),
            index.size,
            index,
            np.asarray(values, dtype=np.float64),
        )

    def solve(self, deadline: Deadline) -> LinearSolution:
        """Solve within the remaining time; Ctrl-C stops HiGHS and is re-raised."""
        left = deadline.remaining()
        if left <= 0 or self._left_behind:
            return LinearSolution("limit")
        if self._program.cost.size == 0:
            return self._without_variables()
        # The clock of HiGHS runs over all solves of one model.
        clock = self._highs.getRunTime()
        self._highs.setOptionValue("time_limit", clock + left if np.isfinite(left) else 1e300)
        ended = self._run(deadline)
        found = self._collect() if ended else None
        if found is not None and found.status == "failed" and self._is_mip:
            # The presolve of HiGHS fails on some tiny programs.
            self._highs.setOptionValue("presolve", "off")
            found = self._collect() if self._run(deadline) else None
            self._highs.setOptionValue("presolve", "choose")
        return LinearSolution("limit") if found is None else found

    def _run(self, deadline: Deadline) -> bool:
        """Run HiGHS in a thread of its own; return False if it ignores the deadline."""
        if self._highs.is_solver_running():
            # An earlier solve was interrupted and has not ended: highspy refuses a second one.
            self._left_behind = True
            return False
        self._highs.startSolve()
        try:
            while not self._highs.wait(POLL_SECONDS)[0]:
                if deadline.remaining() < -CANCEL_SECONDS:
                    self._highs.cancelSolve()
                if deadline.remaining() < -LEAVE_SECONDS:
                    # Presolve and factorisations ignore a cancellation; the thread ends after them.
                    self._left_behind = True
                    return False
        except KeyboardInterrupt:
            self._highs.cancelSolve()
            # Enough time for a node of branch and bound; the thread is a daemon.
            self._left_behind = not self._highs.wait(1.0)[0]
            raise
        return True

    def _without_variables(self) -> LinearSolution:
        """Return the solution of a model without variables, which HiGHS does not solve."""
        program = self._program
        if np.any(program.row_lower > 0) or np.any(program.row_upper < 0):
            return LinearSolution("infeasible", dual_bound=np.inf)
        rows = np.zeros(program.row_lower.size)
        return LinearSolution("optimal", np.zeros(0), self._offset, rows)

    def _collect(self) -> LinearSolution:
        status = _STATUS.get(self._highs.getModelStatus(), "failed")
        info, solution = self._highs.getInfo(), self._highs.getSolution()
        has_point = info.primal_solution_status == 2 and solution.value_valid
        point = np.array(solution.col_value) if has_point else None
        multipliers = None
        if not self._is_mip and solution.dual_valid:
            multipliers = np.array(solution.row_dual)
        # After a failed solve the field has its initial value, which is not a bound.
        bound = float(info.mip_dual_bound) if self._is_mip and status != "failed" else -np.inf
        return LinearSolution(status, point, bound, multipliers)

    def basis(self) -> tuple[list[int], list[int]]:
        """Return the columns and the rows that are basic after an LP solve."""
        basis = self._highs.getBasis()
        basic = highspy.HighsBasisStatus.kBasic
        return (
            [j for j, s in enumerate(basis.col_status) if s == basic],
            [i for i, s in enumerate(basis.row_status) if s == basic],
        )


def _to_highs(program: LinearProgram) -> Any:
    model = highspy.HighsLp()
    columns = sp.csc_array(program.matrix)
    columns.sort_indices()
    model.num_col_, model.num_row_ = program.cost.size, program.row_lower.size
    model.col_cost_ = program.cost
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_ = np.maximum(program.row_lower, -highspy.kHighsInf)
    model.row_upper_ = np.minimum(program.row_upper, highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = columns.indptr
    model.a_matrix_.index_ = columns.indices
    model.a_matrix_.value_ = columns.data
    model.offset_ = program.offset
    if np.any(program.integer):
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(flag)] for flag in program.integer]
    return model


@dataclass(frozen=True, eq=False)
class LinearMaximum:
    """A point that nearly attains the maximum, or None, and multipliers."""

    point: FloatArray | None
    multipliers: FloatArray


class LinearMaxima:
    """max v.x over A x <= b, lo <= x <= hi, for one v after the other.

    The dual is min b.y + h_box(v - A'y) over y >= 0, so every y >= 0 gives an upper bound.
    """

    def __init__(self, matrix: Any, right: FloatArray, lo: FloatArray, hi: FloatArray) -> None:
        rows, columns = matrix.shape
        self._none = np.zeros(rows)
        self._model = HighsModel(
            LinearProgram(
                cost=np.zeros(columns),
                matrix=matrix,
                row_lower=np.full(rows, -np.inf),
                row_upper=right,
                lower=lo,
                upper=hi,
                integer=np.zeros(columns, dtype=bool),
            )
        )

    def solve(self, v: FloatArray) -> LinearMaximum:
        """Maximise v.x."""
        self._model.set_cost(-v, 0.0)
        found = self._model.solve(Deadline(None))
        # The multiplier of an active upper limit is negative in the minimisation of -v.x.
        y = self._none if found.multipliers is None else np.maximum(-found.multipliers, 0.0)
        return LinearMaximum(found.point, y)
