"""Maxima of linear functions over one polytope: HiGHS, started again from the last basis.

What comes back is a proposal: whoever uses the multipliers derives the bound from them anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from bnncert.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class LinearMaximum:
    """A point that nearly attains the maximum (None where none was found), and multipliers."""

    point: FloatArray | None
    multipliers: FloatArray


class LinearMaxima:
    """max v.x over A x <= b, lo <= x <= hi, for one v after the other.

    The dual is min b.y + h_box(v - A'y) over y >= 0, so every y gives an upper bound, y = 0 too.
    """

    def __init__(self, matrix: FloatArray, right: FloatArray, lo: FloatArray, hi: FloatArray):
        self._rows, self._columns = matrix.shape
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self._columns, self._rows
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = np.zeros(self._columns)
        model.col_lower_, model.col_upper_ = lo, hi
        model.row_lower_, model.row_upper_ = np.full(self._rows, -highspy.kHighsInf), right
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        rows, columns = np.nonzero(matrix)
        model.a_matrix_.start_ = np.searchsorted(rows, np.arange(self._rows + 1))
        model.a_matrix_.index_ = columns
        model.a_matrix_.value_ = matrix[rows, columns]
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.passModel(model)

    def solve(self, v: FloatArray) -> LinearMaximum:
        """Maximise v.x."""
        self._highs.changeColsCost(self._columns, np.arange(self._columns, dtype=np.int32), v)
        self._highs.run()
        solution = self._highs.getSolution()
        found = self._highs.getInfo().primal_solution_status == 2 and solution.value_valid
        duals = np.array(solution.row_dual) if solution.dual_valid else np.zeros(self._rows)
        # An upper limit that binds has a positive dual in a maximisation.
        return LinearMaximum(
            np.array(solution.col_value) if found else None, np.maximum(duals, 0.0)
        )
