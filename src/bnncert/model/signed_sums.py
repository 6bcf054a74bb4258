"""Exact sums  sum_i w_i x_i  with float weights and signs x_i in {-1, +1}."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

#: Weights that are multiples of 2^-20 (integers, quantised numbers) are summed as integers.
FINEST_EXPONENT = -20


class SignedSums:
    """The rows of a weight matrix, prepared for exact products with sign vectors."""

    def __init__(self, rows: npt.NDArray[np.float64]) -> None:
        self._rows = rows
        self._unit = Fraction(2) ** FINEST_EXPONENT
        scaled = np.ldexp(rows, -FINEST_EXPONENT)
        fits = np.all(scaled == np.rint(scaled)) and np.abs(scaled).sum(axis=1).max() < 2.0**62
        # None if the weights do not fit 64-bit integers; the sums are then computed in rationals.
        self._integers = scaled.astype(np.int64) if fits else None

    def exactly(self, signs: npt.NDArray[Any]) -> list[Fraction]:
        """Return the sum of every row at one sign vector; 0 is used as -1."""
        if self._integers is not None:
            units = self._integers @ np.where(signs > 0, 1, -1)
            return [int(u) * self._unit for u in units]
        plus = signs > 0
        return [
            sum(map(Fraction, row[plus].tolist()), Fraction(0))
            - sum(map(Fraction, row[~plus].tolist()), Fraction(0))
            for row in self._rows
        ]
