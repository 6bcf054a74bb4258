"""The cells of a part of the region: one alternative of every item, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.questions.count.input_groups import Item

#: Numbers of one batch: cells times open neurons.
BATCH_NUMBERS = 2**21

Counts = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Cells:
    """A batch of cells.

    Attributes
    ----------
    low, high
        Bounds of the sums of the open first-layer neurons, one row for each cell.
    ways
        The number of points of each cell; None if it is one for all.
    chosen
        Returns the number of the alternative of each item, for the cell of a row.
    """

    low: FloatArray
    high: FloatArray
    ways: Counts | None
    chosen: Callable[[int], IntArray]


def all_cells(columns: FloatArray, items: Sequence[Item], budget: int | None) -> Iterator[Cells]:
    """Yield all cells with at most `budget` changes; row i of `columns` belongs to item i."""
    left = None if budget is None else budget - sum(item.fewest for item in items)
    if left is None or left >= 0:
        yield from _Cells(columns, items, left).all()


class _Cells:
    """Moves away from a first cell: every move is another alternative of an item.

    `left` is the number of changes that moves may add together.
    """

    def __init__(self, columns: FloatArray, items: Sequence[Item], left: int | None) -> None:
        self.items, self.left = items, left
        self.base = np.array([int(np.argmin(item.changes)) for item in items], dtype=np.int64)
        self.is_exact = all(np.array_equal(item.low, item.high) for item in items)
        choices, costs = [], []
        for item, base in zip(items, self.base.tolist(), strict=True):
            cost = item.changes - item.fewest
            fits = np.ones(item.size, dtype=bool) if left is None else cost <= left
            fits[base] = False
            choices.append(np.flatnonzero(fits))
            costs.append(cost[fits])
        #: The item and the alternative of every move, and the changes that it adds.
        self.owner = np.repeat(np.arange(len(items)), [c.size for c in choices])
        self.choice = np.concatenate([self.base[:0], *choices])
        self.cost = np.concatenate([self.base[:0], *costs])
        #: The first move of a later item.
        self.next = np.searchsorted(self.owner, self.owner, side="right")
        first = self._products(columns, np.arange(len(items)), self.base)
        self.start = tuple(part.sum(axis=0) for part in first)
        old = (part[self.owner] for part in first)
        new = self._products(columns, self.owner, self.choice)
        #: How each move changes both bounds of the sums.
        self.steps = tuple(b - a for a, b in zip(old, new, strict=True))
        self.has_ways = any(item.ways is not None for item in items)
        self._prepare_ways()

    def _products(
        self, columns: FloatArray, owner: IntArray, choice: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds of the products of weights with the values of alternatives."""
        pairs = [*zip(owner.tolist(), choice.tolist(), strict=True)]
        low = np.array([self.items[i].low[k] for i, k in pairs])[:, None]
        high = np.array([self.items[i].high[k] for i, k in pairs])[:, None]
        column = columns[owner]
        if self.is_exact:
            exact = column * low
            return exact, exact
        up, down = np.maximum(column, 0.0), np.minimum(column, 0.0)
        return up * low + down * high, up * high + down * low

    def _prepare_ways(self) -> None:
        """Prepare the numbers of ways: the product of the first cell, times p/q of every move."""
        self.first_ways = 1
        if not self.has_ways:
            return
        weights = [item.weights() for item in self.items]
        for own, b in zip(weights, self.base.tolist(), strict=True):
            self.first_ways *= own[b]
        pairs = zip(self.owner.tolist(), self.choice.tolist(), strict=True)
        self.numerators = np.array([weights[i][k] for i, k in pairs], dtype=object)
        bases = [weights[i][self.base[i]] for i in self.owner.tolist()]
        self.denominators = np.array(bases, dtype=object)

    def all(self) -> Iterator[Cells]:
        """Yield all cells."""
        moves = np.zeros((1, 0), dtype=np.int64)
        low, high = (part[None, :] for part in self.start)
        yield from self._extended(moves, low, high, np.zeros(1, dtype=np.int64))

    def _extended(
        self, moves: IntArray, low: FloatArray, high: FloatArray, cost: IntArray
    ) -> Iterator[Cells]:
        """Yield the cells of these moves, and those with more moves of later items."""
        yield self._cells(moves, low, high)
        after = self.next[moves[:, -1]] if moves.shape[1] else np.zeros(1, dtype=np.int64)
        sizes = self.owner.size - after
        batch = max(1, BATCH_NUMBERS // max(1, low.shape[1]))
        start = 0
        while start < sizes.size:
            # As many cells as fit, at least one.
            ends = np.cumsum(sizes[start:])
            stop = start + max(1, int(np.searchsorted(ends, batch, side="right")))
            own = np.repeat(np.arange(start, stop), sizes[start:stop])
            first = np.repeat(np.cumsum(sizes[start:stop]) - sizes[start:stop], sizes[start:stop])
            move = np.arange(own.size) - first + after[own]
            start = stop
            total = cost[own] + self.cost[move]
            if self.left is not None:
                fits = total <= self.left
                own, move, total = own[fits], move[fits], total[fits]
            if not own.size:
                continue
            grown = np.hstack([moves[own], move[:, None]])
            new_low = low[own] + self.steps[0][move]
            new_high = new_low if self.is_exact else high[own] + self.steps[1][move]
            yield from self._extended(grown, new_low, new_high, total)

    def _cells(self, moves: IntArray, low: FloatArray, high: FloatArray) -> Cells:
        ways: Counts | None = None
        if self.has_ways:
            ways = np.full(moves.shape[0], self.first_ways, dtype=object)
            for column in moves.T:
                ways = ways * self.numerators[column] // self.denominators[column]

        def chosen(row: int) -> IntArray:
            alternatives: IntArray = self.base.copy()
            alternatives[self.owner[moves[row]]] = self.choice[moves[row]]
            return alternatives

        return Cells(low, high, ways, chosen)
