"""The points of a region on a grid: the values of every input, and how many inputs may change.

The points of a box, or of an L-inf ball, are all combinations of the values first_i..last_i of each
input.  The points of an L0 ball are those with at most k inputs away from the centre.
"""

from __future__ import annotations

import math
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
    """The points of a region."""

    #: For each input the values that it can have, ascending, and the step of its grid.
    values: tuple[FloatArray, ...]
    steps: FloatArray
    #: In an L0 ball, for each input the number of the centre's value among them.
    home: IntArray | None = None
    #: The number of inputs that may differ from the centre; None if all may.
    changes: int | None = None

    @staticmethod
    def of(region: Region) -> GridPoints:
        """Return the points of a region; raise InputError if they cannot be counted."""
        if not region.is_box and region.norm != "l0":
            raise InputError(
                "counting takes a box, an linf ball or an l0 ball; the region is another"
            )
        grid = region.values
        if grid is None:
            raise InputError(
                "the region has no grid, so it has infinitely many points; state a grid"
            )
        first, last = grid.first_from(region.lo), grid.last_until(region.hi)
        if region.norm is not None:
            # The box around a ball is rounded outwards, at most past one value.
            first = first + _is_outside(region, grid.at(first))
            last = last - _is_outside(region, grid.at(last))
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
        places = (np.searchsorted(v, c) for v, c in zip(values, region.middle, strict=True))
        home = np.array([int(place) for place in places])
        return GridPoints(values, grid.step, home, int(region.radius))

    @property
    def total(self) -> int:
        """The number of points: a product, or the sum of the first terms of a polynomial.

        With m_i values of input i that differ from the centre's, at most k changes have
        e_0(m) + .. + e_k(m) points, with the elementary symmetric polynomials e_j.
        """
        if self.changes is None:
            return math.prod(values.size for values in self.values)
        counts = [1] + [0] * self.changes
        for values in self.values:
            _with_input(counts, values.size - 1)
        return sum(counts)

    def at(self, places: IntArray) -> FloatArray:
        """Return the point with these numbers of values."""
        return np.array([v[k] for v, k in zip(self.values, places.tolist(), strict=True)])

    def random_places(self, generator: np.random.Generator, count: int) -> IntArray:
        """Return the places of uniform random points, one in each row.

        In an L0 ball, the inputs are decided one after the other: with j changes left of which the
        inputs from i on have e_0(i) + .. + e_j(i) possible combinations, input i changes with the
        share of these combinations in which it does.
        """
        sizes = np.array([v.size for v in self.values])
        drawn = generator.random((count, sizes.size))
        places: IntArray = np.floor(drawn * sizes).astype(np.int64)
        if self.changes is None:
            return np.asarray(np.minimum(places, sizes - 1))
        assert self.home is not None
        shares = _change_shares((sizes - 1).tolist(), self.changes)
        left = np.full(count, self.changes)
        drawn = generator.random((count, sizes.size))
        for i, home in enumerate(self.home.tolist()):
            is_changed = drawn[:, i] < shares[i, left]
            left = left - is_changed
            others = np.floor(generator.random(count) * (sizes[i] - 1)).astype(np.int64)
            others = np.minimum(others, max(0, sizes[i] - 2))
            places[:, i] = np.where(is_changed, others + (others >= home), home)
        return places


def _is_outside(ball: Region, points: FloatArray) -> IntArray:
    """Return 1 for values that are outside of a ball in exact arithmetic, else 0."""
    pairs = zip(points.tolist(), ball.middle.tolist(), strict=True)
    radius = Fraction(ball.reach)
    return np.array([int(abs(Fraction(x) - Fraction(c)) > radius) for x, c in pairs])


def _with_input(counts: list[int], others: int) -> None:
    """Add an input with some other values to the numbers of points with j = 0, 1, .. changes."""
    for j in range(len(counts) - 1, 0, -1):
        counts[j] += others * counts[j - 1]


def _change_shares(others: list[int], most: int) -> FloatArray:
    """Return for each input and number of changes left the probability that the input changes."""
    shares = np.zeros((len(others), most + 1))
    counts = [1] + [0] * most
    for i in range(len(others) - 1, -1, -1):
        sums = np.cumsum(np.array(counts, dtype=object)).tolist()
        for left in range(1, most + 1):
            changed = others[i] * sums[left - 1]
            # Integers of any size are divided with correct rounding.
            shares[i, left] = changed / (changed + sums[left])
        _with_input(counts, others[i])
    return shares
