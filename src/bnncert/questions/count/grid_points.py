"""The points of a region on a grid: the values of every input, and how many inputs may change.

The points of a box, or of an L-inf ball, are all combinations of the values first_i..last_i of each
input.  The points of an L0 ball are those with at most k inputs away from the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.errors import InputError
from bnncert.regions import Region

#: The largest number of values of an input, times the number of inputs.
MOST_VALUES = 2**22


@dataclass(frozen=True, eq=False)
class GridPoints:
    """The points of a region.

    Attributes
    ----------
    values
        For each input the values that it can have, ascending.
    steps
        For each input the step of its grid.
    home
        For each input the number of the centre's value among them; None without a budget.
    changes
        The number of inputs that may differ from the centre; None if all may.
    """

    values: tuple[FloatArray, ...]
    steps: FloatArray
    home: IntArray | None = None
    changes: int | None = None

    @staticmethod
    def of(region: Region) -> GridPoints:
        """Return the points of a region; raise InputError if they cannot be counted."""
        _refuse(region)
        grid = region.values
        assert grid is not None
        first, last = grid.first_from(region.lo), grid.last_until(region.hi)
        if region.norm is not None:
            first, last = _inside(region, first, 1), _inside(region, last, -1)
        widest = int((last - first).max(initial=0)) + 1
        if widest * region.size > MOST_VALUES:
            raise InputError(
                f"an input has {widest} values on the grid; with {region.size} inputs, counting "
                f"takes at most {MOST_VALUES // region.size}"
            )
        table = grid.at(first + np.arange(widest)[:, None])
        sizes = (last - first).astype(np.int64) + 1
        values = tuple(table[: sizes[i], i].copy() for i in range(region.size))
        if region.norm != "l0":
            return GridPoints(values, grid.step)
        home = np.array(
            [int(np.searchsorted(v, c)) for v, c in zip(values, region.middle, strict=True)]
        )
        return GridPoints(values, grid.step, home, int(region.radius))

    @property
    def total(self) -> int:
        """The number of points: a product, or the sum of the first terms of a polynomial.

        With m_i values of input i that differ from the centre's, at most k changes have
        e_0(m) + .. + e_k(m) points, with the elementary symmetric polynomials e_j.
        """
        if self.changes is None:
            total = 1
            for values in self.values:
                total *= values.size
            return total
        return sum(change_counts([v.size - 1 for v in self.values], self.changes))


def change_counts(others: list[int], most: int) -> list[int]:
    """Return for j = 0..most how many points have exactly j changes."""
    counts = [1] + [0] * most
    for m in others:
        for j in range(most, 0, -1):
            counts[j] += m * counts[j - 1]
    return counts


def _refuse(region: Region) -> None:
    """Raise InputError for a region whose points are not counted."""
    if not region.is_box and region.norm != "l0":
        raise InputError("counting takes a box, an linf ball or an l0 ball; the region is another")
    if region.values is None:
        raise InputError("the region has no grid, so it has infinitely many points; state a grid")


def _inside(ball: Region, places: FloatArray, step: int) -> FloatArray:
    """Return the places moved inwards to values that are exactly inside the ball."""
    assert ball.values is not None
    # The box around a ball is rounded outwards, at most past one value.
    points = ball.values.at(places)
    radius = Fraction(ball.reach)
    pairs = zip(points.tolist(), ball.middle.tolist(), strict=True)
    outside = np.array([abs(Fraction(x) - Fraction(c)) > radius for x, c in pairs])
    return np.asarray(places + step * outside)
