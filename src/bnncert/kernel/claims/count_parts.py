"""Parts of a region in the check of a count: bounds of first-layer sums, and all their cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import SignArray
from bnncert.kernel.budget import refuse_late, timed
from bnncert.kernel.claims.count_items import CountedItem, count_points, joined_item
from bnncert.kernel.claims.count_layers import (
    OTHER,
    SAME,
    UNKNOWN,
    CountedFirstLayer,
    CountedNetwork,
    comparable,
)
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Objects
from bnncert.kernel.sparse import Integers

#: Numbers that are worked on at once, and the most cells of a leaf.
CHUNK, MOST_CELLS = 2**20, 2**28

#: Bytes of a part itself, about.
PART = 1500

#: Why a tree with large parts on many levels is rejected.
TOO_MUCH = "the parts of the region take too much memory"

Numbers = npt.NDArray[Any]


class CountedFrame:
    """The first-layer neurons that are open, and the weights of the items on them.

    The weights of a merged item are those of its first input, whose number is in `inputs`.  `size`
    is about the number of bytes of those items that no other frame has.
    """

    def __init__(
        self,
        layer: CountedFirstLayer,
        open_: Integers,
        inputs: Integers,
        items: Sequence[CountedItem],
        budget: int | None,
        size: int,
    ) -> None:
        self.layer, self.open, self.inputs, self.budget = layer, open_, inputs, budget
        self.size = size + open_.nbytes + inputs.nbytes
        values = [max(abs(item.ends[0]), abs(item.ends[1])) for item in timed(items)]
        sizes = np.abs(layer.columns[np.ix_(inputs, open_)]).max(axis=1, initial=0).tolist()
        reach = sum(a * b for a, b in zip(values, sizes, strict=True))
        # Sums of integers below 2^52 are exact in floats, in any order.
        self.kind: Any = np.float64 if reach < 2**52 else object
        self.plus = comparable(layer.plus[open_].tolist(), self.kind)
        self.minus = comparable(layer.minus[open_].tolist(), self.kind)

    @property
    def signed(self) -> tuple[Numbers, Numbers]:
        """The positive and the negative weights of the items, one row each.

        Only those of the last frame are kept: a tree may have a frame on each of many levels.
        """
        if self.layer.last is None or self.layer.last[0] is not self:
            self.layer.last = None
            columns = self.layer.columns[np.ix_(self.inputs, self.open)].astype(self.kind)
            zero = columns.dtype.type(0) if self.kind is np.float64 else 0
            self.layer.last = self, np.maximum(columns, zero), np.minimum(columns, zero)
        return self.layer.last[1:]

    def bounds(self, items: Sequence[CountedItem]) -> tuple[Numbers, Numbers]:
        """Return the least and the largest sum of every open neuron."""
        ends = np.array([item.ends for item in items], dtype=object).astype(self.kind)
        least, most, near_low, near_high = ends.T
        up, down = self.signed
        if self.budget is None:
            return least @ up + most @ down, most @ up + least @ down
        low = near_low @ up + near_high @ down
        high = near_high @ up + near_low @ down
        left = self.budget - sum(item.fewest for item in items)
        free = np.flatnonzero(((most > near_high) | (least < near_low)).astype(bool))
        if left > 0 and free.size:
            # At most `left` items leave the alternatives with the fewest changes.
            above, below = (most - near_high)[free, None], (near_low - least)[free, None]
            up, down = up[free], down[free]
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
    def size(self) -> int:
        """About the number of bytes of a part, without its frame."""
        return 8 * len(self.items) + PART

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

    def merged(self, open_: Integers, group: Integers, room: int) -> CountedPart:
        """Return the part in which only some neurons are open, and groups of items are one.

        The merged items may take `room` bytes.
        """
        frame, first = self.frame, self.first_signs()
        if np.any(np.diff(open_) <= 0) or not np.all(np.isin(open_, frame.open)):
            raise RejectedError("a merger opens neurons that are not open")
        closed = np.setdiff1d(frame.open, open_)
        if np.any(first[closed] == 0):
            raise RejectedError("a merger closes a neuron that has both signs")
        first[open_] = 0
        if group.size != len(self.items) or np.any(group < 0):
            raise RejectedError("a merger does not have a group for every item")
        kept = frame.layer.columns[np.ix_(frame.inputs, open_)]
        items, leads, size = [], [], 0
        for number in timed(range(int(group.max()) + 1)):
            members = np.flatnonzero(group == number).tolist()
            if not members:
                raise RejectedError("a group of items is empty")
            lead = kept[members[0]]
            signs = [_sign(lead, kept[k]) for k in members]
            chosen = [self.items[k] for k in members]
            leads.append(frame.inputs[members[0]])
            if signs == [1]:
                items.append(chosen[0])
                continue
            items.append(joined_item(chosen, signs, frame.budget))
            size += items[-1].bytes
            if size > room:
                raise RejectedError(TOO_MUCH)
        new = CountedFrame(frame.layer, open_, np.array(leads), items, frame.budget, size)
        return CountedPart(new, tuple(items), first)

    def enumerated(self, network: CountedNetwork) -> tuple[int, int]:
        """Return how many points certainly have another class, and how many have not."""
        states = network.states(self.first_signs())
        inner, open_ = network.inner(states), np.flatnonzero(states[0][self.frame.open] == 0)
        other = same = 0
        for cells in timed(_LeafCells(self, open_, inner.widest).batches()):
            signs = self.frame.signs(cells.low, cells.high, open_)
            verdicts = inner.verdicts(signs)
            for row in timed(np.flatnonzero(verdicts == UNKNOWN).tolist()):
                verdicts[row] = self._decide(network, states[0], cells, row, signs[row])
            other += cells.total(verdicts == OTHER)
            same += cells.total(verdicts == SAME)
        return other, same

    def _decide(
        self, network: CountedNetwork, first: SignArray, cells: Batch, row: int, signs: SignArray
    ) -> int:
        """Return what is known of a cell with ties, if its sums are exact."""
        open_ = self.frame.open[first[self.frame.open] == 0]
        tied = open_[signs == 0]
        exact = bool(np.all((cells.low[row] == cells.high[row]).astype(bool)))
        if not exact or not np.all(self.frame.layer.certain[tied]):
            return UNKNOWN
        full = first.copy()
        full[open_] = signs
        return network.decide(full, tied)


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

    @property
    def size(self) -> int:
        """The number of cells."""
        return int(self.changes.size)

    def rows(self, chosen: Any) -> Batch:
        """Return some of the cells."""
        return Batch(self.low[chosen], self.high[chosen], self.changes[chosen], self.ways[chosen])


class _LeafCells:
    """All cells of a part: first the items that vary without further changes, then the others.

    Cells are worked on in depth, as many at a time as `CHUNK` allows; the more of them wait, the
    fewer are added, so that n waiting batches have CHUNK (1 + 1/2 + .. + 1/n) numbers at most.
    """

    def __init__(self, part: CountedPart, open_: Integers, widest: int) -> None:
        self.frame, self.items = part.frame, part.items
        self.up, self.down = (weights[:, open_] for weights in part.frame.signed)
        # Of a cell both bounds of all sums, and besides changes and ways.
        width = max(open_.size, widest) + 3
        self.most = max(1, CHUNK // (width if part.frame.kind is np.float64 else 8 * width))
        self.left: int | None = None
        if part.frame.budget is not None:
            self.left = part.frame.budget - sum(item.fewest for item in part.items)
        self.number = 0

    def batches(self) -> Iterator[Batch]:
        """Yield all cells."""
        if self.left is not None and self.left < 0:
            return
        if self.left is None and prod(item.size for item in self.items) > MOST_CELLS:
            raise RejectedError("a leaf has too many cells")
        free: list[int] = []
        later: list[int] = []
        for k, item in enumerate(self.items):
            near = int(np.count_nonzero(item.changes == item.fewest))
            (later if self.left is not None and near == 1 else free).append(k)
        waiting, size = [], 0
        for start in self._products(self._start(later), free):
            for batch in self._changed(start, later):
                waiting.append(batch)
                size += batch.size
                if size >= self.most:
                    yield _stacked(waiting)
                    waiting, size = [], 0
        if waiting:
            yield _stacked(waiting)

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
        ways = item.ways[alternatives]
        more, size = item.changes[alternatives] - item.fewest, batch.changes.size
        shape = (size * alternatives.size, self.up.shape[1])
        self.number += shape[0]
        if self.number > MOST_CELLS:
            raise RejectedError("a leaf has too many cells")
        return Batch(
            (batch.low[:, None] + lows).reshape(shape),
            (batch.high[:, None] + highs).reshape(shape),
            (batch.changes[:, None] + more).ravel(),
            (batch.ways[:, None] * ways).ravel(),
        )

    def _cut(
        self, batch: Batch, alternatives: Integers, waiting: int
    ) -> tuple[Batch, Integers, Batch | None, Integers]:
        """Return cells and alternatives that are few together, other cells, other alternatives.

        The other alternatives are those that the first cell still needs.
        """
        most = max(1, self.most // (1 + waiting))
        rows, rest = max(1, most // max(1, alternatives.size)), None
        if rows < batch.size:
            batch, rest = batch.rows(slice(rows)), batch.rows(slice(rows, None))
        return batch, alternatives[:most], rest, alternatives[most:]

    def _products(self, batch: Batch, free: Sequence[int]) -> Iterator[Batch]:
        """Yield all combinations of the alternatives of some items within the budget."""
        stack: list[tuple[Batch, int, Integers | None]] = [(batch, 0, None)]
        while stack:
            refuse_late()
            batch, n, chosen = stack.pop()
            if n == len(free):
                yield batch
                continue
            if chosen is None:
                chosen = np.arange(self.items[free[n]].size)
            part, some, rest, others = self._cut(batch, chosen, len(stack))
            if rest is not None:
                stack.append((rest, n, chosen))
            if others.size:
                stack.append((part, n, others))
            part = self._added(part, free[n], some)
            if self.left is not None:
                part = part.rows(part.changes <= self.left)
            stack.append((part, n + 1, None))

    def _changed(self, batch: Batch, later: Sequence[int]) -> Iterator[Batch]:
        """Yield the cells of a batch, and those in which some later items change."""
        yield batch
        if not self.left:
            return
        options = [(k, *self._others(k)) for k in later]
        options = [option for option in options if option[2].size]
        # Cells that can still change, the next item, and its alternatives; without them, also the
        # cells themselves are kept.
        growing = batch.rows(batch.changes < self.left)
        stack: list[tuple[Batch, int, Integers | None]] = [(growing, 0, None)]
        while stack:
            refuse_late()
            batch, n, chosen = stack.pop()
            if n == len(options) or not batch.size:
                continue
            k, base, everything = options[n]
            stays = chosen is None
            chosen = everything if chosen is None else chosen
            part, some, rest, others = self._cut(batch, chosen, len(stack))
            if rest is not None:
                stack.append((rest, n, None if stays else chosen))
            if others.size:
                stack.append((part, n, others))
            grown = self._moved(part, k, base, some)
            grown = grown.rows(grown.changes <= self.left)
            yield grown
            grown = grown.rows(grown.changes < self.left)
            stack.append((_stacked([part, grown]) if stays else grown, n + 1, None))

    def _others(self, k: int) -> tuple[int, Integers]:
        """Return the one alternative of an item with the fewest changes, and possible others."""
        item = self.items[k]
        base = int(np.flatnonzero(item.changes == item.fewest)[0])
        others = np.flatnonzero(item.changes - item.fewest <= (self.left or 0))
        return base, others[others != base]

    def _moved(self, batch: Batch, k: int, base: int, others: Integers) -> Batch:
        """Return cells in which an item has other alternatives than its base."""
        item = self.items[k]
        grown = self._added(batch, k, others)
        # The base is a part of all sums: it is taken back.
        low, high = (v[[base]].astype(self.frame.kind) for v in (item.low, item.high))
        lows, highs = low * self.up[k] + high * self.down[k], high * self.up[k] + low * self.down[k]
        ways = grown.ways // item.ways[base]
        return Batch(grown.low - lows, grown.high - highs, grown.changes, ways)


def _stacked(batches: Sequence[Batch]) -> Batch:
    return Batch(
        *(
            np.concatenate([getattr(b, name) for b in batches])
            for name in ("low", "high", "changes", "ways")
        )
    )
