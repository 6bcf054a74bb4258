r"""The first-layer signs along a path of images, in exact arithmetic.

On a path  y(t) = clip(a + t d, lo, hi)  the sum of a neuron is piecewise linear in t,

    s_j(t) = sum_i w_ji y_i(t) + b_j  =  (A_j + t B_j) / scale   between two bends of the path,

where an input bends when it meets the data box.  All numbers of the file are dyadic, so A and B are
vectors of integers that change by columns of W at a bend.  The signs change at the zeros of s_j:
finitely many rational numbers, or intervals on which s_j vanishes.  They divide [first, last] into
*cells*, intervals with constant signs, which are listed completely and in order.

A bias that is known only up to an enclosure has two sums, one for each end; the sign is undecided
where one is negative and the other is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import SignArray
from bnncert.deadline import Deadline
from bnncert.model.layers import TIED, UNDECIDED, ThresholdLayer
from bnncert.regions.image_path import ImagePath

#: Arrays of Python integers, which have no largest value.
Integers: TypeAlias = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Cell:
    """An interval of t with constant first-layer signs, and whether its ends belong to it."""

    lo: Fraction
    hi: Fraction
    has_lo: bool
    has_hi: bool
    #: +1, -1, TIED or UNDECIDED for each neuron.
    signs: SignArray

    def point(self) -> Fraction:
        """Return a number inside with few binary digits."""
        return self.lo if self.lo == self.hi else simplest_between(self.lo, self.hi)


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return a number with the fewest binary digits strictly between two numbers."""
    if low < 0 < high:
        return Fraction(0)
    # Between two numbers at a distance above 2^-k there is a multiple of 2^-k.
    bits = 0
    while True:
        scaled = low * 2**bits
        whole = Fraction(scaled.numerator // scaled.denominator + 1, 2**bits)
        if whole < high:
            return whole
        bits += 1


def path_cells(layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> Iterator[Cell]:
    """Yield the cells of a path in ascending order; neighbouring cells have different signs.

    Raises OutOfTimeError after the deadline.
    """
    current: Cell | None = None
    for piece in _pieces(layer, path, deadline):
        if current is not None and np.array_equal(current.signs, piece.signs):
            current = Cell(current.lo, piece.hi, current.has_lo, piece.has_hi, current.signs)
            continue
        if current is not None:
            yield current
        current = piece
    assert current is not None
    yield current


def _pieces(layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> Iterator[Cell]:
    """Yield points and open intervals that cover the path, each with constant signs."""
    sums = _PathSums(layer, path, deadline)
    before = sums.signs_at(path.first)
    yield Cell(path.first, path.first, True, True, sums.settled(before))
    bends = sums.bends()
    for low, high in pairwise([path.first, *sorted(bends), path.last]):
        deadline.check()
        sums.bend(bends.pop(low, ()))
        after = sums.signs_at(high)
        if low < high:
            for piece in _linear_pieces(sums, low, high, before, after):
                deadline.check()
                yield piece
        before = after


def _linear_pieces(
    sums: _PathSums, low: Fraction, high: Fraction, before: SignArray, after: SignArray
) -> Iterator[Cell]:
    """Yield the pieces after `low` up to `high`, between which all sums are linear."""
    # A sum that is zero at `low` has the sign that it has at `high`.
    signs = np.where(before != 0, before, after)
    zeros: dict[Fraction, list[int]] = {}
    for k in np.flatnonzero(before * after < 0).tolist():
        zeros.setdefault(sums.zero(k), []).append(k)
    last = low
    for zero in sorted(zeros):
        yield Cell(last, zero, False, False, sums.settled(signs))
        crossing = zeros[zero]
        signs = signs.copy()
        signs[crossing] = 0
        yield Cell(zero, zero, True, True, sums.settled(signs))
        signs = signs.copy()
        signs[crossing] = after[crossing]
        last = zero
    yield Cell(last, high, False, False, sums.settled(signs))
    yield Cell(high, high, True, True, sums.settled(after))


class _PathSums:
    """The sums A + t B of all neurons on one linear part, with the lower and then the upper bias.

    If all biases are exact, the two are the same and only one is kept.
    """

    def __init__(self, layer: ThresholdLayer, path: ImagePath, deadline: Deadline) -> None:
        self._layer, self._path, self._deadline = layer, path, deadline
        self._columns = layer.weights.tocsc()
        low, high = layer.enclosure
        self._is_exact = bool(np.array_equal(low, high))
        self._has_exact_bias = low == high
        self._weights, self._weight_unit = _whole_weights(self._columns.data)
        biases = low if self._is_exact else np.concatenate([low, high])
        #: The state of every input: -1 below the data box, 0 inside, 1 above.
        self._place = [self._state(i, path.first) for i in range(path.size)]
        #: The numbers alpha and beta with y_i = alpha_i + t beta_i.
        parts = [self._part(i) for i in range(path.size)]
        numbers = [v for part in parts for v in part]
        starts, slopes = path.line
        numbers += [*starts, *slopes, *(v for b in path.bounds for v in b if v is not None)]
        numbers += [Fraction(b) / self._weight_unit for b in biases.tolist()]
        self._unit = max(v.denominator for v in numbers)
        self._constant = self._whole([Fraction(b) / self._weight_unit for b in biases.tolist()])
        self._slope = np.array([0] * biases.size, dtype=object)
        for i, part in enumerate(parts):
            self._add(i, part)

    def _whole(self, numbers: list[Fraction]) -> Integers:
        return np.array([int(v * self._unit) for v in numbers], dtype=object)

    def _state(self, i: int, t: Fraction) -> int:
        a, d, lo, hi = self._numbers(i)
        y = a + t * d
        if lo is not None and y < lo:
            return -1
        return 1 if hi is not None and y > hi else 0

    def _numbers(self, i: int) -> tuple[Fraction, Fraction, Fraction | None, Fraction | None]:
        (starts, slopes), (lows, highs) = self._path.line, self._path.bounds
        return starts[i], slopes[i], lows[i], highs[i]

    def _part(self, i: int) -> tuple[Fraction, Fraction]:
        """Return alpha and beta of an input in its current state."""
        a, d, lo, hi = self._numbers(i)
        side = {-1: lo, 0: None, 1: hi}[self._place[i]]
        return (a, d) if side is None else (side, Fraction(0))

    def _add(self, i: int, change: tuple[Fraction, Fraction]) -> None:
        """Add the column of an input to both vectors, times the changes of alpha and beta."""
        self._deadline.check()
        start, stop = self._columns.indptr[i], self._columns.indptr[i + 1]
        rows = self._columns.indices[start:stop]
        weights = self._weights[start:stop]
        if not self._is_exact:
            rows = np.concatenate([rows, rows + self._layer.size])
            weights = np.concatenate([weights, weights])
        for vector, factor in zip((self._constant, self._slope), change, strict=True):
            if factor:
                vector[rows] += weights * int(factor * self._unit)

    def bends(self) -> dict[Fraction, list[tuple[int, int]]]:
        """Return the values of t at which inputs bend, with the inputs and their new states."""
        found: dict[Fraction, list[tuple[int, int]]] = {}
        for i in range(self._path.size):
            a, d, lo, hi = self._numbers(i)
            if d == 0:
                continue
            # A rising input leaves `lo` and then meets `hi`, a falling one the other way round.
            states = ((lo, 0), (hi, 1)) if d > 0 else ((hi, 0), (lo, -1))
            for limit, state in states:
                t = None if limit is None else (limit - a) / d
                if t is not None and self._path.first <= t < self._path.last:
                    found.setdefault(t, []).append((i, state))
        return found

    def bend(self, changes: Any) -> None:
        """Change the states of inputs."""
        for i, state in changes:
            alpha, beta = self._part(i)
            self._place[i] = state
            new_alpha, new_beta = self._part(i)
            self._add(i, (new_alpha - alpha, new_beta - beta))

    def signs_at(self, t: Fraction) -> SignArray:
        """Return the signs -1, 0 or 1 of all sums."""
        values = self._constant * t.denominator + self._slope * t.numerator
        return np.asarray((values > 0).astype(np.int8) - (values < 0).astype(np.int8))

    def zero(self, k: int) -> Fraction:
        """Return the t at which a sum that is not constant is zero."""
        return Fraction(-self._constant[k], self._slope[k])

    def settled(self, signs: SignArray) -> SignArray:
        """Return the signs of the neurons, given those of the sums."""
        size = self._layer.size
        low, high = (signs, signs) if self._is_exact else (signs[:size], signs[size:])
        tie = {"plus": 1, "minus": -1, "either": TIED}[self._layer.sign_zero]
        between = np.where(self._has_exact_bias, tie, UNDECIDED)
        return np.where(low > 0, 1, np.where(high < 0, -1, between)).astype(np.int8)


def _whole_weights(weights: npt.NDArray[Any]) -> tuple[Integers, Fraction]:
    """Return integers and a power of two, at most 1, whose products are the weights."""
    if np.issubdtype(weights.dtype, np.integer):
        return weights.astype(object), Fraction(1)
    exact = [Fraction(w) for w in weights.tolist()]
    scale = max((w.denominator for w in exact), default=1)
    return np.array([int(w * scale) for w in exact], dtype=object), Fraction(1, scale)
