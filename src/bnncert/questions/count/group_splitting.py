"""Which item of a part is split, and where."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.questions.count.counted_space import ItemFrame, Items


class SplitChoice:
    """The choice for one part.

    An item is scored by the share that it has in the range of each open neuron's sum, weighted
    with the influence of the neuron; neurons with known signs have the bounds low = high = 0.
    """

    def __init__(
        self,
        frame: ItemFrame,
        items: Items,
        influence: FloatArray,
        low: FloatArray,
        high: FloatArray,
    ) -> None:
        self._frame, self._items = frame, items
        self._low, self._high = low, high
        self._share = np.where(high > low, influence / np.maximum(high - low, 1.0), 0.0)

    @cached_property
    def _scores(self) -> FloatArray:
        items = self._items
        width = np.array([i.most - i.least if i.size > 1 else 0.0 for i in items])
        score = (np.abs(self._frame.columns) @ self._share) * width
        return score if score.any() else np.array([i.size - 1.0 for i in items])

    def unchanged_items(self) -> list[int]:
        """Return the items of an L0 ball that may change or not, the best one first."""
        if self._frame.budget is None:
            return []
        free = [k for k, i in enumerate(self._items) if i.size > 1 and i.changes[0] == 0]
        return sorted(free, key=lambda k: -self._scores[k])

    def best(self) -> tuple[int, int]:
        """Return the best item, and how many of its alternatives the first part gets."""
        chosen = int(np.argmax(self._scores))
        item, column = self._items[chosen], self._frame.columns[chosen]
        neuron = int(np.argmax(np.abs(column) * self._share)) if column.size else 0
        weight = column[neuron] if column.size else 0.0
        if weight:
            # Where the neuron changes its sign if all other items have their middle values.
            others = (self._low + self._high)[neuron] / 2 - weight * (item.least + item.most) / 2
            threshold = (self._frame.plus + self._frame.minus)[neuron] / 2
            middles = (item.low + item.high) / 2
            at = int(np.searchsorted(middles, (threshold - others) / weight))
            if 0 < at < item.size:
                return chosen, at
        so_far, total, at = 0, sum(item.weights()), 0
        while 2 * so_far < total:
            so_far += item.weights()[at]
            at += 1
        return chosen, min(at, item.size - 1)
