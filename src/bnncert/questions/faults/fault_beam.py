r"""A beam search for few wrong signs of one layer that change the class at a point.

A set S of wrong signs changes the sums of the next layer by -2 sum_{i in S} x_i w_i; the class
follows from these sums.  For every number of faults the search keeps the sets with the smallest
margins, and extends them by one neuron.  If the next layer is the last one, sets are compared by a
smooth margin, with tanh(distance from the threshold / WIDTH_OF_SIGN) in the place of signs: it
also counts neurons that come near to their thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bnncert.arrays import Float32Array, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.kernel.rules.fault_questions import PointSigns

#: Sets that are kept for each number of faults, and how many faults one more neuron may take.
WIDTH, DEAREST = 24, 24

#: The distance from a threshold within which a smooth sign differs from the sign.
WIDTH_OF_SIGN = 2.0

#: Sums that are evaluated together, and entries of the table of their changes.
CELLS = 2**24


@dataclass(frozen=True, eq=False)
class WrongSigns:
    """Neurons of a layer with wrong signs, and the sums of the next layer."""

    neurons: frozenset[int]
    sums: Float32Array
    margin: float


class Beam:
    """The sets of wrong signs of one layer, for 0, 1, 2, .. faults.

    Parameters
    ----------
    at
        The point and its signs.
    number
        The layer, which is below the last one.
    cost
        The faults that each wrong sign takes.
    label, rivals
        The class, and those that it is compared with.
    """

    def __init__(
        self, at: PointSigns, number: int, cost: IntArray, label: int, rivals: list[int]
    ) -> None:
        self._network, self._above = at.network, number + 1
        self._label, self._rivals = label, rivals
        layer = at.network.layers[number + 1]
        home = at.signs[number].astype(np.float32)
        sums = layer.operator(np.float32).forward(home[None, :])[0]
        #: The change of the sums by each neuron, as an array if it is small.
        self._steps: Any = layer.weights.T.tocsr().astype(np.float32).multiply(-2 * home[:, None])
        self._steps = self._steps.tocsr()
        if layer.size * layer.inputs <= CELLS:
            self._steps = self._steps.toarray()
        self._by_cost = {c: np.flatnonzero(cost == c) for c in range(1, DEAREST + 1)}
        start = WrongSigns(frozenset(), sums, float(self._margins(sums[None, :])[0]))
        self.levels: list[list[WrongSigns]] = [[start]]

    def _changes(self, neurons: list[int]) -> Float32Array:
        """Return the changes of the sums by other signs of some neurons."""
        rows = self._steps[neurons]
        return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())

    def _margins(self, sums: Float32Array) -> FloatArray:
        """Return the least margin for each row of sums of the next layer."""
        layers, output = self._network.layers, self._network.output
        signs = np.where(sums >= layers[self._above].threshold(np.float32), 1.0, -1.0)
        for layer in layers[self._above + 1 :]:
            value = layer.operator(np.float32).forward(signs.astype(np.float32))
            signs = np.where(value >= layer.threshold(np.float32), 1.0, -1.0)
        scores = signs @ output.weights.T + output.bias
        return np.asarray((scores[:, [self._label]] - scores[:, self._rivals]).min(axis=1))

    def _ranks(self, sums: Float32Array) -> FloatArray:
        """Return the numbers by which sets are compared, the smallest being the best."""
        layers, output = self._network.layers, self._network.output
        if self._above + 1 < len(layers):
            return self._margins(sums)
        limit = layers[self._above].threshold(np.float32)
        signs = np.tanh((sums - limit) / np.float32(WIDTH_OF_SIGN))
        scores = signs @ output.weights.T.astype(np.float32) + output.bias.astype(np.float32)
        return np.asarray((scores[:, [self._label]] - scores[:, self._rivals]).min(axis=1))

    def grow(self, most: int, deadline: Deadline) -> Iterator[list[WrongSigns]]:
        """Yield the best sets for 1, 2, .. faults."""
        while len(self.levels) <= most and not deadline.passed():
            self.levels.append(self._next(deadline))
            yield self.levels[-1]

    def _next(self, deadline: Deadline) -> list[WrongSigns]:
        """Return the best sets with one more fault, of those that are reached in time."""
        faults = len(self.levels)
        height = max(1, CELLS // self.levels[0][0].sums.size)
        seen: set[frozenset[int]] = set()
        found: list[tuple[float, WrongSigns, int]] = []
        for cost, members in self._by_cost.items():
            if cost > faults:
                continue
            # A dear neuron is added to fewer sets.
            for base in self.levels[faults - cost][: max(WIDTH // cost, 2)]:
                new = [i for i in members.tolist() if i not in base.neurons]
                new = [i for i in new if base.neurons | {i} not in seen]
                seen.update(base.neurons | {i} for i in new)
                for start in range(0, len(new), height):
                    if deadline.passed():
                        break
                    part = new[start : start + height]
                    ranks = self._ranks(base.sums + self._changes(part))
                    best = np.argsort(ranks, kind="stable")[:WIDTH]
                    found += [(float(ranks[k]), base, part[k]) for k in best]
        found.sort(key=lambda entry: entry[0])
        best_sets = [(b.neurons | {i}, b.sums + self._changes([i])[0]) for _, b, i in found[:WIDTH]]
        if not best_sets:
            return []
        margins = self._margins(np.stack([sums for _, sums in best_sets]))
        made = [WrongSigns(*entry, float(m)) for entry, m in zip(best_sets, margins, strict=True)]
        return sorted(made, key=lambda entry: entry.margin)
