r"""Linear and mixed-integer programs, bounds that do not depend on a solver, and the solver HiGHS.

    min c.z + offset   s.t.   row_lower <= A z <= row_upper,   lower <= z <= upper

All variables are bounded, so *any* row multipliers y give a lower bound of the optimum:

    offset + sum_i min(y_i row_i) + sum_j min over [lower_j, upper_j] of (c - A'y)_j z_j ,

where the first minimum is at row_lower for y_i > 0 and at row_upper for y_i < 0.  The rounding
error is subtracted.  With inaccurate multipliers the bound is weaker, but it remains valid.

HiGHS (https://highs.dev) solves programs; its results are not proved: callers derive bounds from
the multipliers.  `LinearMaxima` are maxima of linear functions over one polytope, warm-started
from the last basis.  An `InputBlock` is a region as variables of a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import highspy
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.regions.region import Region

#: The right-hand side of v_1^2 + ... + v_n^2 <= 1, increased by the rounding errors of its data.
UNIT_BALL = 1.0 + 1e-12

LinearStatus: TypeAlias = Literal["optimal", "infeasible", "feasible", "limit", "failed"]


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """The answer of a solver."""

    status: LinearStatus
    #: The best solution found, if any.
    point: FloatArray | None = None
    #: A lower bound of the objective of a mixed-integer program.
    dual_bound: float = -np.inf
    #: The row multipliers of a linear program, if the solver has them.
    multipliers: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """A program as above; `integer` marks the integer variables (none for an LP)."""

    cost: FloatArray
    matrix: Any
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: npt.NDArray[np.bool_]
    offset: float = 0.0

    def dual_bound(self, multipliers: FloatArray) -> float:
        """Compute the lower bound that these row multipliers prove."""
        y = np.where(np.isfinite(multipliers), multipliers, 0.0)
        y = np.where((y > 0) & np.isneginf(self.row_lower), 0.0, y)
        y = np.where((y < 0) & np.isposinf(self.row_upper), 0.0, y)
        sides = np.where(y > 0, self.row_lower, np.where(y < 0, self.row_upper, 0.0))
        reduced = self.cost - self.matrix.T @ y
        at_bound = np.where(reduced > 0, self.lower, self.upper)
        value = self.offset + float(y @ sides) + float(reduced @ at_bound)
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        inside = np.abs(self.cost) + abs(self.matrix).T @ np.abs(y)
        size = abs(self.offset) + float(np.abs(y) @ np.abs(sides)) + float(inside @ reach)
        terms = self.cost.size + y.size + 8
        return value - 2.1 * terms * 2.0**-53 * size


# -- HiGHS -----------------------------------------------------------------------------------

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
        """Solve a model without variables, which HiGHS does not."""
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
        """Tell the columns and the rows that are basic after an LP solve."""
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

    def solve(self, v: FloatArray) -> tuple[FloatArray | None, FloatArray]:
        """Maximise v.x: a point that nearly attains the maximum, or None, and multipliers."""
        self._model.set_cost(-v, 0.0)
        found = self._model.solve(Deadline(None))
        # The multiplier of an active upper limit is negative in the minimisation of -v.x.
        y = self._none if found.multipliers is None else np.maximum(-found.multipliers, 0.0)
        return found.point, y


# -- regions as variables --------------------------------------------------------------------

#: A factor that covers the rounding of a quotient.
GROW = 1 + 1e-14


@dataclass(frozen=True, eq=False)
class InputBlock:
    """x = base + spread v for the inputs `index`, with lower <= v <= upper and rows v <= right."""

    index: IntArray
    base: FloatArray
    spread: Any
    lower: FloatArray
    upper: FloatArray
    rows: Any
    right: FloatArray

    @property
    def size(self) -> int:
        """The number of variables v."""
        return int(self.lower.size)


@dataclass(frozen=True, eq=False)
class ScaledInputs:
    """x = base + half * u with u in [-1, 1], for the inputs `index`."""

    index: IntArray
    base: FloatArray
    half: FloatArray


def scaled_inputs(region: Region, used: IntArray) -> ScaledInputs:
    """Rescale the inputs `used`, and those of a polytope, to the bounding box [-1, 1]^n."""
    matrix, right = region.inequalities
    if right.size:
        used = np.union1d(used, np.flatnonzero(np.any(matrix != 0, axis=0)))
    lo, hi = region.lo[used], region.hi[used]
    base = lo + (hi - lo) / 2
    # The half width is rounded up, so that base +- half covers the box.
    half = np.where(hi > lo, np.nextafter(np.maximum(hi - base, base - lo), np.inf), 0.0)
    return ScaledInputs(used, base, half)


def input_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the region by variables for the inputs `used` (others stay at the centre)."""
    if region.norm == "l1":
        return _l1_block(region, used)
    if region.norm == "l2":
        return _l2_block(region, used)
    if region.norm == "l0":
        return _l0_block(region, used)
    inputs = scaled_inputs(region, used)
    used, base, half = inputs.index, inputs.base, inputs.half
    rows, right = sp.csr_array((0, used.size)), np.zeros(0)
    matrix, limits = region.inequalities
    if limits.size:
        part = matrix[:, used]
        rows = sp.csr_array(part * half)
        magnitude = np.abs(part) @ (np.abs(base) + half) + np.abs(limits)
        right = limits - part @ base + 1e-14 * (used.size + 8) * magnitude
    ones = np.ones(used.size)
    return InputBlock(used, base, sp.diags_array(half).tocsr(), -ones, ones, rows, right)


def _ball_sides(region: Region, used: IntArray) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Find m, r, and the bounds -down <= (x - m) / r <= up (rounded up, at most 1)."""
    middle, radius = region.middle[used], max(region.radius, 1e-300)
    down = np.minimum((middle - region.lo[used]) / radius * GROW, 1.0)
    up = np.minimum((region.hi[used] - middle) / radius * GROW, 1.0)
    return middle, radius, down, up


def _l1_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the L1 ball: x = m + r (v+ - v-) with v >= 0 and sum v <= 1."""
    n = used.size
    middle, radius, down, up = _ball_sides(region, used)
    eye = sp.identity(n, format="csr") * radius
    return InputBlock(
        used,
        middle,
        sp.csr_array(sp.hstack([eye, -eye])),
        np.zeros(2 * n),
        np.concatenate([up, down]),
        sp.csr_array(np.ones((1, 2 * n))),
        np.array([GROW]),
    )


def _l0_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the hull of the L0 ball: x = m + up v+ - down v- with 0 <= v <= 1, sum v <= k."""
    n, middle = used.size, region.middle[used]
    up, down = region.hi[used] - middle, middle - region.lo[used]
    up, down = (np.where(side > 0, np.nextafter(side, np.inf), 0.0) for side in (up, down))
    return InputBlock(
        used,
        middle,
        sp.csr_array(sp.hstack([sp.diags_array(up), -sp.diags_array(down)])),
        np.zeros(2 * n),
        np.ones(2 * n),
        sp.csr_array(np.ones((1, 2 * n))),
        np.array([region.radius * GROW]),
    )


def _l2_block(region: Region, used: IntArray) -> InputBlock:
    """Describe the box around the L2 ball: x = m + r v with |v_i| <= 1 and the data box."""
    n = used.size
    middle, radius, down, up = _ball_sides(region, used)
    spread = sp.csr_array(sp.identity(n, format="csr") * radius)
    return InputBlock(used, middle, spread, -down, up, sp.csr_array((0, n)), np.zeros(0))
