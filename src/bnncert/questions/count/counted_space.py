r"""Items and the first-layer neurons that they can change.

A frame fixes which first-layer neurons are open and which inputs form an item; all parts of the
region that a search makes in one frame differ only in the alternatives of the items.  Sums over a
part lie between bounds that are attained coordinate by coordinate.  With at most k changes, of
which the items need at least m, no more than k - m items leave the alternatives with the fewest
changes: the k - m largest gains are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.questions.count.input_groups import Item, merged

#: Bits of all numbers of ways of an item, at most, and in L0 balls steps of their computation.
MOST_BITS, MOST_STEPS = 2**24, 2**20

Items = tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class ItemFrame:
    """The open first-layer neurons, and the weights of the items on them.

    Attributes
    ----------
    open
        The numbers of the open neurons.
    signs
        The signs of all first-layer neurons, 0 if open.
    columns
        The weights, one row for each item and one column for each open neuron.
    plus, minus, tied
        Those of :class:`IntegerFirstLayer`, for the open neurons.
    budget
        The number of inputs that may change; None if all may.
    """

    open: IntArray
    signs: SignArray
    columns: FloatArray
    plus: FloatArray
    minus: FloatArray
    tied: BoolArray
    budget: int | None

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray]:
        """The positive and the negative weights, one row for each open neuron."""
        rows = np.ascontiguousarray(self.columns.T)
        return np.maximum(rows, 0.0), np.minimum(rows, 0.0)

    def bounds(self, items: Sequence[Item], neurons: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest sum of some open neurons over a part of the region."""
        up, down = self._parts
        if neurons.size < self.open.size:
            up, down = up[neurons], down[neurons]
        least = np.array([item.least for item in items])
        most = np.array([item.most for item in items])
        if self.budget is None:
            return up @ least + down @ most, up @ most + down @ least
        near_low, near_high = np.array([item.near for item in items]).T
        low, high = up @ near_low + down @ near_high, up @ near_high + down @ near_low
        left = self.budget - sum(item.fewest for item in items)
        free = np.flatnonzero((most > near_high) | (least < near_low))
        if left > 0 and free.size:
            up, down = up[:, free], down[:, free]
            above, below = (most - near_high)[free], (near_low - least)[free]
            low -= _largest(up * below - down * above, left)
            high += _largest(up * above - down * below, left)
        return low, high

    def settle(self, low: FloatArray, high: FloatArray, neurons: IntArray) -> SignArray:
        """Return the signs of some open neurons for bounds of their sums, 0 if both can be."""
        can_plus, can_minus = high >= self.plus[neurons], low <= self.minus[neurons]
        return (can_plus.astype(np.int8) - can_minus).astype(np.int8)

    def groups(self, items: Items, signs: SignArray, *, with_values: bool) -> IntArray:
        """Return for each item the number of its group when the neurons with signs are dropped.

        Items with equal columns up to sign form a group; without `with_values` only those form one
        whose values do not matter.  Groups are numbered by their first members.
        """
        rest = self.columns[:, signs == 0]
        lead = np.zeros(len(items))
        if rest.shape[1]:
            lead = np.sign(rest[np.arange(len(items)), (rest != 0).argmax(axis=1)])
        turned = rest * lead[:, None] + 0.0
        seen: dict[bytes, int] = {}
        costs: dict[int, tuple[int, float, int]] = {}
        number = []
        for i, item in enumerate(items):
            key = b"" if lead[i] == 0 else b"item %d" % i
            if with_values and lead[i] != 0:
                key = turned[i].tobytes() + np.float64(item.step).tobytes()
            group = seen.setdefault(key, len(costs))
            cost = self._cost(costs.get(group, (1, 0.0, 0)), item)
            if lead[i] != 0 and (cost[0] * cost[1] > MOST_BITS or cost[2] > MOST_STEPS):
                # The sums have too many values: a new group begins.
                group = seen[key] = len(costs)
                cost = self._cost((1, 0.0, 0), item)
            costs[group] = cost
            number.append(group)
        return np.array(number, dtype=np.int64)

    def _cost(self, cost: tuple[int, float, int], item: Item) -> tuple[int, float, int]:
        """Return the values, bits and steps of a group after one more item is merged."""
        size, bits, steps = cost
        ways = sum(w for _, w in item.counts)
        more = 0 if self.budget is None else size * item.size * (self.budget + 1)
        return size + item.size - 1, bits + math.log2(ways), steps + more

    def merge(self, items: Items, signs: SignArray, group: IntArray) -> tuple[ItemFrame, Items]:
        """Return the frame without the neurons that have signs, and the items of the groups."""
        kept = signs == 0
        rest = self.columns[:, kept]
        columns, made = [], []
        for members in _members(group):
            lead = rest[members[0]]
            factors = [_factor(lead, rest[i]) for i in members]
            columns.append(lead)
            alone = len(members) == 1 and factors[0] == 1
            chosen = [items[i] for i in members]
            made.append(chosen[0] if alone else merged(chosen, factors, self.budget))
        all_signs = self.signs.copy()
        all_signs[self.open] = signs
        frame = ItemFrame(
            self.open[kept],
            all_signs,
            np.array(columns).reshape(len(columns), int(kept.sum())),
            self.plus[kept],
            self.minus[kept],
            self.tied[kept],
            self.budget,
        )
        return frame, tuple(made)


def _members(group: IntArray) -> list[list[int]]:
    """Return the members of every group."""
    found: list[list[int]] = [[] for _ in range(int(group.max(initial=-1)) + 1)]
    for i, g in enumerate(group.tolist()):
        found[g].append(i)
    return found


def _factor(lead: FloatArray, column: FloatArray) -> int:
    """Return the factor of a column in its group: 0 if the values do not matter."""
    if not lead.any():
        return 0
    return 1 if np.array_equal(lead, column) else -1


def _largest(gains: FloatArray, count: int) -> FloatArray:
    """Return the sum of the `count` largest numbers of every row."""
    if count == 1:
        return np.asarray(gains.max(axis=1, initial=0.0))
    if count >= gains.shape[1]:
        return np.asarray(gains.sum(axis=1))
    cut = gains.shape[1] - count
    return np.asarray(np.partition(gains, cut, axis=1)[:, cut:].sum(axis=1))
