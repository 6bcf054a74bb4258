r"""Linear and mixed-integer programs, and bounds that do not depend on a solver.

    min c.z + offset   s.t.   row_lower <= A z <= row_upper,   lower <= z <= upper

All variables are bounded, so *any* row multipliers y give a lower bound of the optimum:

    offset + sum_i min(y_i row_i) + sum_j min over [lower_j, upper_j] of (c - A'y)_j z_j ,

where the first minimum is at row_lower for y_i > 0 and at row_upper for y_i < 0.  The rounding
error is subtracted.  With inaccurate multipliers the bound is weaker, but it remains valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray

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
        """Return the lower bound that these row multipliers prove."""
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
