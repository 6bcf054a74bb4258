"""Parts of a region in the check of a count: bounds of first-layer sums, and all their cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import SignArray
from bnncert.checking.claims.count_items import CountedItem, count_points, joined_item
from bnncert.checking.claims.count_layers import (
    OTHER,
    SAME,
    UNKNOWN,
    CountedFirstLayer,
    CountedNetwork,
    comparable,
)
from bnncert.checking.container import Budget, RejectedError
from bnncert.checking.function import Objects
from bnncert.checking.sparse import Integers

#: Numbers that are worked on at once, and the most cells of a leaf.
CHUNK, MOST_CELLS = 2**21, 2**22

Numbers = npt.NDArray[Any]


class CountedFrame:
    """The first-layer neurons that are open, and the weights of the items on them."""

    def __init__(
        self,
        layer: CountedFirstLayer,
        open_: Integers,
        columns: Objects,
        items: Sequence[CountedItem],
        budget: int | None,
    ) -> None:
        self.layer, self.open, self.budget = layer, open_, budget
        values = [max(abs(item.ends[0]), abs(item.ends[1])) for item in items]
        sizes = np.abs(columns).max(axis=1, initial=0).tolist()
        reach = sum(a * b for a, b in zip(values, sizes, strict=True))
        # Sums of integers below 2^52 are exact in floats, in any order.
        self.kind: Any = np.float64 if reach < 2**52 else object
        self.columns: Numbers = columns.astype(self.kind)
        zero = self.columns.dtype.type(0) if self.kind is np.float64 else 0
        self.up, self.down = np.maximum(self.columns, zero), np.minimum(self.columns, zero)
        self.plus = comparable(layer.plus[open_].tolist(), self.kind)
        self.minus = comparable(layer.minus[open_].tolist(), self.kind)

    def bounds(self, items: Sequence[CountedItem]) -> tuple[Numbers, Numbers]:
        """Return the least and the largest sum of every open neuron."""
        ends = np.array([item.ends for item in items], dtype=object).astype(self.kind)
        least, most, near_low, near_high = ends.T
        if self.budget is None:
            return least @ self.up + most @ self.down, most @ self.up + least @ self.down
        low = near_low @ self.up + near_high @ self.down
        high = near_high @ self.up + near_low @ self.down
        left = self.budget - sum(item.fewest for item in items)
        free = np.flatnonzero(((most > near_high) | (least < near_low)).astype(bool))
        if left > 0 and free.size:
            # At most `left` items leave the alternatives with the fewest changes.
            above, below = (most - near_high)[free, None], (near_low - least)[free, None]
            up, down = self.up[free], self.down[free]
            low = low - _largest(up * below - down * above, left)
            high = high + _largest(up * above - down * below, left)
        return low, high

    def signs(self, low: Numbers, high: Numbers, open_: Any = slice(None)) -> SignArray:
        """Return the signs of sums between two bounds, 0 if both are possible."""
        plus = (high >= self.plus[open_]).astype(bool)
        minus = (low <= self.minus[open_]).astype(bool)
        return np.asarray(plus.astype(np.int8) - minus.astype(np.int8))


def _largest(gains: Numbers, count: int) -> Numbers:
    """Return the sum of the largest numbers of every column."""
    return np.asarray(np.sort(gains, axis=0)[-count:].sum(axis=0))


@dataclass(frozen=True, eq=False)
class CountedPart:
    """Some of the alternatives of every item; `signs` are those of neurons that are not open."""

    frame: CountedFrame
    items: tuple[CountedItem, ...]
    signs: SignArray

    @property
    def points(self) -> int:
        """The number of points."""
        return count_points(self.items, self.frame.budget)

    def first_signs(self) -> SignArray:
        """Return the signs of all first-layer neurons, 0 if unknown."""
        signs: SignArray = self.signs.copy()
        signs[self.frame.open] = self.frame.signs(*self.frame.bounds(self.items))
        return signs

    def split(self, item: int, at: int) -> tuple[CountedPart, CountedPart]:
        """Return the parts with the first `at` alternatives of an item, and with the others."""
        if not 0 <= item < len(self.items) or not 0 < at < self.items[item].size:
            raise RejectedError("a split is not one of alternatives")
        parts = []
        for start, stop in ((0, at), (at, self.items[item].size)):
            own = (
                *self.items[:item],
                self.items[item].part(start, stop),
                *self.items[item + 1 :],
            )
            parts.append(CountedPart(self.frame, own, self.signs))
        return parts[0], parts[1]

    def merged(self, open_: Integers, group: Integers) -> CountedPart:
        """Return the part in which only some neurons are open, and groups of items are one."""
        frame, first = self.frame, self.first_signs()
        place = {int(n): k for k, n in enumerate(frame.open.tolist())}
        if np.any(np.diff(open_) <= 0) or not set(open_.tolist()) <= place.keys():
            raise RejectedError("a merger opens neurons that are not open")
        closed = np.setdiff1d(frame.open, open_)
        if np.any(first[closed] == 0):
            raise RejectedError("a merger closes a neuron that has both signs")
        first[open_] = 0
        if group.size != len(self.items) or np.any(group < 0):
            raise RejectedError("a merger does not have a group for every item")
        kept = frame.columns[:, [place[n] for n in open_.tolist()]]
        items, columns = [], []
        for number in range(int(group.max()) + 1):
            members = np.flatnonzero(group == number).tolist()
            if not members:
                raise RejectedError("a group of items is empty")
            lead = kept[members[0]]
            signs = [_sign(lead, kept[k]) for k in members]
            chosen = [self.items[k] for k in members]
            alone = signs == [1]
            items.append(chosen[0] if alone else joined_item(chosen, signs, frame.budget))
            columns.append([int(w) for w in lead.tolist()])
        table = np.array(columns, dtype=object).reshape(len(items), open_.size)
        new = CountedFrame(frame.layer, open_, table, items, frame.budget)
        return CountedPart(new, tuple(items), first)

    def enumerated(self, network: CountedNetwork, budget: Budget) -> tuple[int, int]:
        """Return how many points certainly have another class, and how many have not."""
        states = network.states(self.first_signs())
        inner, open_ = network.inner(states), np.flatnonzero(states[0][self.frame.open] == 0)
        other = same = 0
        for cells in _LeafCells(self, open_).batches():
            budget.refuse_late()
            signs = self.frame.signs(cells.low, cells.high, open_)
            verdicts = inner.verdicts(signs)
            for row in np.flatnonzero(verdicts == UNKNOWN).tolist():
                budget.refuse_late()
                verdicts[row] = self._decide(network, states[0], cells, row, signs[row])
            other += cells.total(verdicts == OTHER)
            same += cells.total(verdicts == SAME)
        return other, same

    def _decide(
        self, network: CountedNetwork, first: SignArray, cells: Batch, row: int, signs: SignArray
    ) -> int:
        """Return what is known of a cell with ties, if its sums are exact."""
        open_ = self.frame.open[states_open(first, self.frame.open)]
        tied = open_[signs == 0]
        exact = bool(np.all((cells.low[row] == cells.high[row]).astype(bool)))
        if not exact or not np.all(self.frame.layer.certain[tied]):
            return UNKNOWN
        full = first.copy()
        full[open_] = signs
        return network.decide(full, tied)


def states_open(first: SignArray, neurons: Integers) -> Integers:
    """Return which of some neurons have no sign."""
    return np.flatnonzero(first[neurons] == 0)


def _sign(lead: Numbers, column: Numbers) -> int:
    """Return the factor of a column of weights to that of the first member of its group."""
    if not np.any(lead != 0):
        if np.any(column != 0):
            raise RejectedError("items with different weights are merged")
        return 0
    if np.array_equal(lead, column):
        return 1
    if np.array_equal(lead, -column):
        return -1
    raise RejectedError("items with different weights are merged")


@dataclass(frozen=True, eq=False)
class Batch:
    """Bounds of the sums of cells, one row each, their changes and their numbers of points."""

    low: Numbers
    high: Numbers
    changes: Integers
    ways: Objects

    def total(self, chosen: Any) -> int:
        """Return the number of points of some cells."""
        return sum(self.ways[chosen].tolist())

    def rows(self, chosen: Any) -> Batch:
        """Return some of the cells."""
        return Batch(self.low[chosen], self.high[chosen], self.changes[chosen], self.ways[chosen])


class _LeafCells:
    """All cells of a part: first the items that vary without further changes, then the others."""

    def __init__(self, part: CountedPart, open_: Integers) -> None:
        self.frame, self.items = part.frame, part.items
        self.up, self.down = part.frame.up[:, open_], part.frame.down[:, open_]
        self.width = max(1, open_.size)
        self.left: int | None = None
        if part.frame.budget is not None:
            self.left = part.frame.budget - sum(item.fewest for item in part.items)
        self.number = 0

    def batches(self) -> Iterator[Batch]:
        """Yield all cells."""
        if self.left is not None and self.left < 0:
            return
        free: list[int] = []
        later: list[int] = []
        for k, item in enumerate(self.items):
            near = int(np.count_nonzero(item.changes == item.fewest))
            (later if self.left is not None and near == 1 else free).append(k)
        for batch in self._products(self._start(later), free):
            yield from self._changed(batch, later)

    def _start(self, later: Sequence[int]) -> Batch:
        """Return a cell in which some items have their one alternative with the fewest changes."""
        items = [self.items[k] for k in later]
        base = [int(np.argmin(item.changes)) for item in items]
        pairs = [*zip(items, base, strict=True)]
        low = np.array([item.low[b] for item, b in pairs], dtype=object).astype(self.frame.kind)
        high = np.array([item.high[b] for item, b in pairs], dtype=object).astype(self.frame.kind)
        up, down, ways = self.up[list(later)], self.down[list(later)], 1
        for item, b in pairs:
            ways *= item.ways[b]
        none = np.zeros(self.up.shape[1], dtype=self.frame.kind)
        return Batch(
            (none + low @ up + high @ down)[None, :],
            (none + high @ up + low @ down)[None, :],
            np.zeros(1, dtype=np.int64),
            np.array([ways], dtype=object),
        )

    def _added(self, batch: Batch, k: int, alternatives: Integers) -> Batch:
        """Return every cell with each of the alternatives of an item."""
        item = self.items[k]
        low, high = (v[alternatives].astype(self.frame.kind) for v in (item.low, item.high))
        up, down = self.up[k], self.down[k]
        lows = low[:, None] * up + high[:, None] * down
        highs = high[:, None] * up + low[:, None] * down
        ways = np.array([item.ways[a] for a in alternatives.tolist()], dtype=object)
        more, size = item.changes[alternatives] - item.fewest, batch.changes.size
        shape = (size * alternatives.size, self.up.shape[1])
        self.number += shape[0]
        if self.number > 64 * MOST_CELLS:
            raise RejectedError("a leaf has too many cells")
        return Batch(
            (batch.low[:, None] + lows).reshape(shape),
            (batch.high[:, None] + highs).reshape(shape),
            (batch.changes[:, None] + more).ravel(),
            (batch.ways[:, None] * ways).ravel(),
        )

    def _products(self, batch: Batch, free: Sequence[int]) -> Iterator[Batch]:
        """Yield all combinations of the alternatives of some items within the budget."""
        for n, k in enumerate(free):
            size = batch.changes.size
            if size > 1 and size * self.items[k].size * self.width > CHUNK:
                half = size // 2
                yield from self._products(batch.rows(slice(None, half)), free[n:])
                yield from self._products(batch.rows(slice(half, None)), free[n:])
                return
            batch = self._added(batch, k, np.arange(self.items[k].size))
            if self.left is not None:
                batch = batch.rows(batch.changes <= self.left)
        yield batch

    def _changed(self, batch: Batch, later: Sequence[int]) -> Iterator[Batch]:
        """Yield the cells of a batch, and those in which some later items change."""
        yield batch
        if not self.left:
            return
        # Cells that can still change, and cells that are complete.
        growing, waiting, size = [batch.rows(batch.changes < self.left)], [], 0
        for k in later:
            item = self.items[k]
            base = int(np.flatnonzero(item.changes == item.fewest)[0])
            others = np.flatnonzero(item.changes - item.fewest <= self.left)
            others = others[others != base]
            if not others.size:
                continue
            fresh = []
            for old in growing:
                for part in _slices(old, max(1, CHUNK // (others.size * self.width))):
                    grown = self._moved(part, k, base, others)
                    grown = grown.rows(grown.changes <= self.left)
                    waiting.append(grown)
                    size += grown.changes.size
                    fresh.append(grown.rows(grown.changes < self.left))
                    if size * self.width > CHUNK:
                        yield _stacked(waiting)
                        waiting, size = [], 0
            growing = [_stacked([*growing, *fresh])]
        if waiting:
            yield _stacked(waiting)

    def _moved(self, batch: Batch, k: int, base: int, others: Integers) -> Batch:
        """Return cells in which an item has other alternatives than its base."""
        item = self.items[k]
        grown = self._added(batch, k, others)
        # The base is a part of all sums: it is taken back.
        low, high = (v[[base]].astype(self.frame.kind) for v in (item.low, item.high))
        lows, highs = low * self.up[k] + high * self.down[k], high * self.up[k] + low * self.down[k]
        ways = grown.ways // item.ways[base]
        return Batch(grown.low - lows, grown.high - highs, grown.changes, ways)


def _slices(batch: Batch, size: int) -> Iterator[Batch]:
    for start in range(0, batch.changes.size, size):
        yield batch.rows(slice(start, start + size))


def _stacked(batches: Sequence[Batch]) -> Batch:
    """Return the cells of several batches."""
    return Batch(
        *(
            np.concatenate([getattr(b, name) for b in batches])
            for name in ("low", "high", "changes", "ways")
        )
    )
