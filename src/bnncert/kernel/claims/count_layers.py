"""The network in whole numbers, for the check of a count: what is known of points and of parts.

Sums of the first layer are integers in one unit.  Neuron n can be +1 from `plus[n]` on and -1 up to
`minus[n]`.  Above it, sums of signs are integers below 2^24, which float32 products give exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, SignArray
from bnncert.kernel.container import RejectedError
from bnncert.kernel.counterexample import is_violated, last_signs
from bnncert.kernel.function import Function, Objects, scaled
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction
from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import MOST_TIE_CHOICES, Network

#: What is known of points: the class does not change, or it does.
SAME, UNKNOWN, OTHER = -1, 0, 1

#: The most weights of a layer, and the largest sum of a layer above the first.
MOST_WEIGHTS, MOST_SUM = 2**27, 2**24

Numbers = npt.NDArray[Any]


class CountedFirstLayer:
    """The weights and thresholds of the first layer in units of 2^-shift."""

    def __init__(self, layer: ThresholdLayer, shift: int) -> None:
        rows = SparseRows.of_weights(layer.rows)
        if rows.count * rows.width > MOST_WEIGHTS:
            raise RejectedError("the first layer has too many weights for a count")
        values: Numbers = rows.values
        finer = 0
        if values.dtype.kind == "f":
            values, finer = scaled(values)
        #: The weights, one row for each input.
        self.columns: Numbers = np.zeros((rows.width, rows.count), dtype=values.dtype)
        #: The weights of the frame that was used last.
        self.last: tuple[object, Numbers, Numbers] | None = None
        np.add.at(self.columns, (rows.columns, rows.row), values)
        unit = 1 << (shift + finer)
        bounds = [[Fraction(b) * unit for b in bias.tolist()] for bias in layer.enclosure]
        self.certain: BoolArray = np.array([a == b for a, b in zip(*bounds, strict=True)])
        plus = [ceil(-b) for b in bounds[1]]
        minus = [floor(-b) for b in bounds[0]]
        for n, is_certain in enumerate(self.certain.tolist()):
            if is_certain and layer.sign_zero == "plus":
                minus[n] = plus[n] - 1
            elif is_certain and layer.sign_zero == "minus":
                plus[n] = minus[n] + 1
        self.plus: Objects = np.array(plus, dtype=object)
        self.minus: Objects = np.array(minus, dtype=object)


class CountedMargins:
    """Functions of the last layer's signs that all have to be positive."""

    def __init__(self, network: Network, targets: Sequence[Sequence[ScoreFunction]]) -> None:
        self.functions = [target[0].of(network) for target in targets]
        kind: Any = np.float64
        if any(sum(map(abs, f.weights.tolist())) >= 2**52 for f in self.functions):
            kind = object
        self.rows: Numbers = np.array([f.weights for f in self.functions]).astype(kind)
        self.safe = comparable([f.least_sum for f in self.functions], kind)
        self.bad = comparable([_largest_violation(f) for f in self.functions], kind)

    def verdicts(self, least: Numbers, most: Numbers) -> SignArray:
        """Return what is known of points with margins between two bounds."""
        same = np.all((least >= self.safe).astype(bool), axis=1)
        other = np.any((most <= self.bad).astype(bool), axis=1)
        return np.where(other, OTHER, np.where(same, SAME, UNKNOWN)).astype(np.int8)


def comparable(limits: Sequence[int], kind: Any) -> Numbers:
    """Return integers that sums are compared with; as floats, sums are smaller than 2^52."""
    if kind is object:
        return np.array(limits, dtype=object)
    return np.array([max(-(2**52), min(2**52, v)) for v in limits], dtype=np.float64)


def _largest_violation(f: Function) -> int:
    """Return the largest sum of weights at which f is certainly violated."""
    limit = (-f.doubt - f.constant) * f.denominator
    return ceil(limit) - 1 if f.tie_is_fine else floor(limit)


class CountedNetwork:
    """All layers above the first, and the margins."""

    def __init__(self, network: Network, targets: Sequence[Sequence[ScoreFunction]]) -> None:
        self.margins = CountedMargins(network, targets)
        self._upper = replace(network, layers=network.layers[1:])
        self._weights, self._limits = [], []
        for layer in network.layers[1:]:
            rows = SparseRows.of_weights(layer.rows)
            if rows.count * rows.width > MOST_WEIGHTS or layer.norm.max(initial=0) >= MOST_SUM:
                raise RejectedError("a layer has too many weights for a count")
            dense = np.zeros((rows.count, rows.width), dtype=np.float32)
            np.add.at(dense, (rows.row, rows.columns), rows.values)
            self._weights.append(dense)
            self._limits.append((layer.plus_from, layer.minus_upto))

    def states(self, first: SignArray) -> list[SignArray]:
        """Return the signs of all layers that follow from those of the first; 0 if unknown."""
        signs = [first]
        for weights, limits in zip(self._weights, self._limits, strict=True):
            least, most = _range(signs[-1][None].astype(np.float32), weights)
            signs.append(_signs(least, most, *limits)[0])
        return signs

    def verdict(self, last: SignArray) -> int:
        """Return what the known signs of the last layer show."""
        kind = self.margins.rows.dtype
        least, most = _range(last[None].astype(kind), self.margins.rows)
        return int(self.margins.verdicts(least, most)[0])

    def inner(self, states: list[SignArray]) -> InnerNetwork:
        """Return the network of the signs that are not known."""
        return InnerNetwork(self._weights, self._limits, self.margins, states)

    def decide(self, first: SignArray, tied: Integers) -> int:
        """Return what is known of a point by trying all signs at ties."""
        tried, is_same = 0, True
        for last in last_signs(self._upper, first, tied):
            tried += 1
            if any(is_violated(f, last) for f in self.margins.functions):
                return OTHER
            is_same = is_same and self.verdict(last) == SAME
        return SAME if is_same and tried < MOST_TIE_CHOICES else UNKNOWN


class InnerNetwork:
    """The neurons that are not known, as functions of those of the first layer."""

    def __init__(
        self, weights: Any, limits: Any, margins: CountedMargins, states: list[SignArray]
    ) -> None:
        self._layers, self._margins = [], margins
        below = np.flatnonzero(states[0] == 0)
        for number, (matrix, (plus, minus)) in enumerate(zip(weights, limits, strict=True)):
            rows = np.flatnonzero(states[number + 1] == 0)
            fixed = matrix[rows] @ states[number].astype(np.float32)
            part = np.ascontiguousarray(matrix[np.ix_(rows, below)])
            self._layers.append((part, plus[rows] - fixed, minus[rows] - fixed))
            below = rows
        #: The most neurons of a layer.
        self.widest = max([len(margins.functions), *(part.shape[0] for part, _, _ in self._layers)])
        kind = margins.rows.dtype
        self._fixed = margins.rows @ states[-1].astype(kind)
        self._rows = margins.rows[:, below]

    def verdicts(self, signs: SignArray) -> SignArray:
        """Return what is known of points, each a row of signs, 0 if unknown."""
        for part, plus, minus in self._layers:
            signs = _signs(*_range(signs.astype(np.float32), part), plus, minus)
        least, most = _range(signs.astype(self._rows.dtype), self._rows)
        return self._margins.verdicts(least + self._fixed, most + self._fixed)


def _range(signs: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return the least and the largest sums for rows of signs."""
    middle, unknown = signs @ rows.T, signs == 0
    if not unknown.any():
        return middle, middle
    radius = unknown.astype(signs.dtype) @ np.abs(rows).T
    return middle - radius, middle + radius


def _signs(least: Numbers, most: Numbers, plus: Numbers, minus: Numbers) -> SignArray:
    """Return the signs of sums, 0 if both are possible."""
    can_plus, can_minus = (most >= plus).astype(bool), (least <= minus).astype(bool)
    return (can_plus.astype(np.int8) - can_minus.astype(np.int8)).astype(np.int8)
