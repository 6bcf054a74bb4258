"""Maxima of linear functions over one polytope by HiGHS, warm-started from the last basis.

The results are not proved: callers derive bounds from the multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.regions.highs_ import HighsModel
from bnncert.regions.linear_program import LinearProgram


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
