r"""Boxes with few free inputs, proved again by halving them until the ranges of all sums suffice.

All numbers are integers.  The box and the sums of its fixed inputs are rounded outwards to
multiples of a power of two; a proof for this larger box holds for the box itself.
The weights of the first layer have to be integers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.budget import refuse_late
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Function, scaled
from bnncert.kernel.geometry import digits, dot
from bnncert.kernel.sparse import SparseRows
from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import Network

Integers = npt.NDArray[np.int64]

#: Boxes at once, and halves of one box at most.
BATCH, MOST_HALVES = 2048, 4_000_000

#: Numbers of the halves of one box that wait, and products that are summed at once, at most.
MOST_WAITING, MOST_PRODUCTS = 2**24, 2**26

#: All sums are below this power of two, and numbers have at most so many binary places.
MOST_BITS, MOST_PLACES = 60, 40


class SplitCheck:
    """Proves boxes of one network."""

    def __init__(self, network: Network, functions: list[Function]) -> None:
        self._layers = network.layers
        self._rows = SparseRows.of_weights(network.layers[0].rows)
        if self._rows.values.dtype.kind != "i":
            raise RejectedError("a box without a part needs integer weights in the first layer")
        if any(float(layer.norm.max(initial=0.0)) >= 2**24 for layer in network.layers[1:]):
            raise RejectedError("a box without a part needs sums below 2^24")
        self._weights = np.stack([f.weights for f in functions])
        if max(int(np.abs(row).sum()) for row in self._weights) >= 2**MOST_BITS:
            raise RejectedError("the weights of the scores are too large for a box without a part")
        self._least = np.array([f.least_sum for f in functions], dtype=object)

    def refuse_unproved(self, lo: FloatArray, hi: FloatArray) -> None:
        """Reject a box on which a function may not be positive."""
        first = _FirstLayer(self._layers[0], self._rows, lo, hi)
        states = [first.root()]
        for layer in self._layers[1:]:
            states.append(_ranges(layer, states[-1]))
        first.keep(np.flatnonzero(states[0] == 0))
        upper = [
            _Upper(layer, *pair)
            for layer, pair in zip(self._layers[1:], pairwise(states), strict=True)
        ]
        last = states[-1]
        open_ = np.flatnonzero(last == 0)
        fixed = (self._weights * last.astype(object)).sum(axis=1)
        least = np.array([int(v) for v in self._least - fixed], dtype=object)
        # A limit beyond all sums stays beyond them.
        least = np.clip(least, -(2**MOST_BITS), 2**MOST_BITS).astype(np.int64)
        weights = self._weights[:, open_].astype(np.int64)
        stack, halves = [(first.lo[None, :], first.hi[None, :])], 0
        # Products that take long are made for fewer boxes, so that the clock is read in between.
        batch = min(
            BATCH, 1 + MOST_PRODUCTS // (1 + first.lo.size * np.count_nonzero(states[0] == 0))
        )
        #: Numbers of all boxes on the stack.
        waiting = first.lo.size
        while stack:
            refuse_late()
            low, high = stack.pop()
            waiting -= low.size
            # Many waiting halves are worked on in depth, so that few more are added.
            together = batch if waiting < MOST_WAITING // 2 else 1 + batch // 64
            if low.shape[0] > together:
                stack.append((low[together:], high[together:]))
                waiting += low[together:].size
                low, high = low[:together], high[:together]
            halves += low.shape[0]
            signs = open_signs = first.signs(low, high)
            for above in upper:
                signs = above.signs(signs)
            whole = signs.astype(np.int64)
            sums = whole @ weights.T - (whole == 0).astype(np.int64) @ np.abs(weights).T
            left = np.any(sums < least, axis=1)
            if not np.any(left):
                continue
            if halves > MOST_HALVES or waiting > MOST_WAITING:
                raise RejectedError("a box needs too many halves")
            stack.append(first.halved(low[left], high[left], open_signs[left]))
            waiting += stack[-1][0].size


class _FirstLayer:
    """The first layer over one box, in units of 2^-places."""

    def __init__(
        self, layer: ThresholdLayer, rows: SparseRows, lo: FloatArray, hi: FloatArray
    ) -> None:
        free = np.flatnonzero(lo < hi)
        top = float(layer.norm.max(initial=0.0)) * float(
            np.abs(np.stack([lo, hi])).max(initial=0.0)
        )
        top += float(np.abs(np.stack(layer.enclosure)).max(initial=0.0)) + 1.0
        places = min(MOST_PLACES, MOST_BITS - 2 - int(np.ceil(np.log2(top))))
        if places < 0:
            raise RejectedError("the inputs are too large for a box without a part")
        whole, shift = scaled(np.concatenate([lo, hi, *layer.enclosure]))
        size, neurons = lo.size, layer.size
        low, high = whole[:size], whole[size : 2 * size]
        fixed = low.copy()
        fixed[free] = 0
        base = dot([rows.with_values(part) for part in digits(rows.values)], digits(fixed))
        bias_lo, bias_hi = whole[2 * size : 2 * size + neurons], whole[2 * size + neurons :]
        self._is_tie = bias_lo == bias_hi
        self._sign_zero = layer.sign_zero
        self._base = _down(base + bias_lo, shift - places), _up(base + bias_hi, shift - places)
        self.lo, self.hi = _down(low[free], shift - places), _up(high[free], shift - places)
        weights, place = np.zeros((free.size, neurons), dtype=np.int64), np.full(size, -1)
        place[free] = np.arange(free.size)
        mine = place[rows.columns] >= 0
        np.add.at(weights, (place[rows.columns[mine]], rows.row[mine]), rows.values[mine])
        self._plus, self._minus = np.maximum(weights, 0), np.minimum(weights, 0)

    def root(self) -> SignArray:
        """Return the signs of all neurons on the whole box, 0 where both may occur."""
        return np.asarray(self.signs(self.lo[None, :], self.hi[None, :])[0])

    def keep(self, open_: Integers) -> None:
        """Leave out all other neurons."""
        self._base = self._base[0][open_], self._base[1][open_]
        self._plus, self._minus = self._plus[:, open_], self._minus[:, open_]
        self._is_tie = self._is_tie[open_]

    def signs(self, low: Integers, high: Integers) -> SignArray:
        """Return the signs of the kept neurons on boxes."""
        least = low @ self._plus + high @ self._minus + self._base[0]
        most = high @ self._plus + low @ self._minus + self._base[1]
        on, off = least > 0, most < 0
        if self._sign_zero == "plus":
            on |= (least == 0) & self._is_tie
        if self._sign_zero == "minus":
            off |= (most == 0) & self._is_tie
        return _signs(on, off)

    def halved(self, low: Integers, high: Integers, signs: SignArray) -> tuple[Integers, Integers]:
        """Halve boxes at the input that moves the sums of open neurons most."""
        if not self.lo.size:
            raise RejectedError("a function may not be positive at an image of the claim")
        moves = (signs == 0).astype(np.int64) @ (self._plus - self._minus).T
        chosen = np.argmax(moves * (high - low).astype(np.float64), axis=1)
        rows = np.arange(low.shape[0])
        cut = (low[rows, chosen] + high[rows, chosen]) >> 1
        if np.any(cut <= low[rows, chosen]):
            raise RejectedError("a box may violate the property, or is too fine for halves")
        left, right = high.copy(), low.copy()
        left[rows, chosen], right[rows, chosen] = cut, cut
        return np.concatenate([low, right]), np.concatenate([left, high])


class _Upper:
    """The open neurons of a later layer, given those below; float32 has exact sums here."""

    def __init__(self, layer: ThresholdLayer, below: SignArray, states: SignArray) -> None:
        open_ = np.flatnonzero(states == 0)
        rows = SparseRows.of_weights(layer.rows).take(open_)
        dense = np.zeros((open_.size, below.size), dtype=np.float32)
        np.add.at(dense, (rows.row, rows.columns), rows.values.astype(np.float32))
        self._fixed = dense @ below.astype(np.float32)
        self._weights = dense[:, below == 0].T
        self._from, self._upto = layer.plus_from[open_], layer.minus_upto[open_]

    def signs(self, below: SignArray) -> SignArray:
        """Return the signs of the open neurons."""
        sums = below.astype(np.float32) @ self._weights + self._fixed
        reach = (below == 0).astype(np.float32) @ np.abs(self._weights)
        on, off = sums - reach > self._upto, sums + reach < self._from
        return _signs(on, off)


def _ranges(layer: ThresholdLayer, below: SignArray) -> SignArray:
    """Return the signs of all neurons of a later layer, 0 where both may occur."""
    rows = SparseRows.of_weights(layer.rows)
    sums = rows.times(below.astype(np.int64))
    reach = rows.with_values(np.abs(rows.values)).times((below == 0).astype(np.int64))
    on, off = sums - reach > layer.minus_upto, sums + reach < layer.plus_from
    return _signs(on, off)


def _signs(on: npt.NDArray[np.bool_], off: npt.NDArray[np.bool_]) -> SignArray:
    """Return 1 where a sign is +1, -1 where it is -1, and 0 where it is open."""
    return np.asarray(on.astype(np.int8) - off.astype(np.int8))


def _down(numbers: npt.NDArray[np.object_], bits: int) -> Integers:
    """Return numbers / 2^bits, rounded down."""
    return np.asarray(numbers >> bits if bits >= 0 else numbers << -bits).astype(np.int64)


def _up(numbers: npt.NDArray[np.object_], bits: int) -> Integers:
    """Return numbers / 2^bits, rounded up."""
    return -_down(-numbers, bits)
