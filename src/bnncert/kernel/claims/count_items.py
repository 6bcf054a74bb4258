"""Points of a grid as alternatives of items, for the check of a count.

An item is an input or the sum of several inputs with equal weights, up to sign.  Each alternative
has a place, bounds of its value in whole units, a number of changed inputs and a number of ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Objects, scaled
from bnncert.kernel.space import Space
from bnncert.kernel.sparse import Integers

#: The most values of all inputs together, alternatives of an item, and bits of all its ways.
MOST_VALUES, MOST_ALTERNATIVES, MOST_WAY_BITS = 2**22, 2**20, 2**26

#: Bytes of an alternative, about.
ALTERNATIVE = 160


@dataclass(frozen=True, eq=False)
class CountedItem:
    """The alternatives of an item; the first one of an input of an L0 ball has no changes."""

    place: Integers
    low: Objects
    high: Objects
    changes: Integers
    ways: Objects

    @property
    def size(self) -> int:
        """The number of alternatives."""
        return int(self.place.size)

    @property
    def bytes(self) -> int:
        """About the number of bytes of a merged item."""
        bits: int = sum(way.bit_length() for way in self.ways.tolist())
        return ALTERNATIVE * self.size + bits // 8

    @cached_property
    def fewest(self) -> int:
        """The least number of changes."""
        return int(self.changes.min())

    @cached_property
    def polynomial(self) -> tuple[tuple[int, int], ...]:
        """Numbers of changes, each with its ways."""
        total: dict[int, int] = {}
        for changes in timed(np.unique(self.changes).tolist()):
            total[changes] = int(self.ways[self.changes == changes].sum())
        return tuple(total.items())

    @cached_property
    def ends(self) -> tuple[int, int, int, int]:
        """The least and largest value, and those of alternatives with the fewest changes."""
        near = self.changes == self.fewest
        return self.low.min(), self.high.max(), self.low[near].min(), self.high[near].max()

    def part(self, start: int, stop: int) -> CountedItem:
        """Return some of the alternatives."""
        k = slice(start, stop)
        numbers = self.place[k], self.low[k], self.high[k], self.changes[k], self.ways[k]
        return CountedItem(*numbers)


def read_items(space: Space) -> tuple[list[CountedItem], int, int | None]:
    """Return an item for each input, the shift of its values, and the budget of changes."""
    grid = space.grid
    if grid is None or space.norm not in (None, "l0") or space.right.size:
        raise RejectedError("the points of the region cannot be counted")
    lower, upper = space.rationals(space.lower), space.rationals(space.upper)
    table, left = [], MOST_VALUES
    for i, (low, high) in enumerate(timed(zip(lower, upper, strict=True))):
        first, last = grid.place(i, low), grid.place(i, high)
        left -= last - first + 1
        if last < first or left < 0:
            raise RejectedError("an input has no value, or the inputs have too many values")
        places = range(first, last + 1)
        values = np.fromiter((grid.value(i, k) for k in timed(places)), np.float64, len(places))
        # The places of the ends are those of the outermost values, and values increase.
        ends = Fraction(float(values[0])), Fraction(float(values[-1]))
        if ends != (low, high) or np.any(values[1:] <= values[:-1]):
            raise RejectedError("the grid is too fine for its floating-point numbers")
        table.append(values)
    _refuse_wide(table)
    shift = max(scaled(values)[1] for values in timed(table))
    center = space.rationals(space.center)
    items = []
    for i, values in enumerate(timed(table)):
        order = np.arange(values.size)
        changes = np.zeros(values.size, dtype=np.int64)
        if space.norm == "l0":
            # The centre is a value of the grid.
            home = int(np.flatnonzero(values == float(center[i]))[0])
            order = np.concatenate([[home], np.delete(order, home)])
            changes[1:] = 1
        whole, own = scaled(values[order])
        whole = whole << (shift - own)
        items.append(CountedItem(order, whole, whole, changes, np.full(order.size, 1, object)))
    return items, shift, space.radius if space.norm == "l0" else None


def _refuse_wide(table: Sequence[FloatArray]) -> None:
    """Reject values whose integers over one power of two take too many bytes."""
    bits = [np.frexp(values[values != 0])[1] for values in table]
    lowest = min(int(e.min(initial=0)) for e in bits)
    total = sum(int((e - lowest + 53).sum()) for e in bits)
    if total > MOST_WAY_BITS * 8:
        raise RejectedError("the values of the inputs have too many digits")


def count_points(items: Sequence[CountedItem], budget: int | None) -> int:
    """Return how many points have at most `budget` changes."""
    equal = Counter(item.polynomial for item in items)
    if budget is None:
        total = 1
        for polynomial, times in timed(equal.items()):
            total *= sum(ways for _, ways in polynomial) ** times
        return total
    counts = {0: 1}
    for polynomial, times in equal.items():
        for _ in timed(range(times)):
            grown: dict[int, int] = {}
            for changes, ways in counts.items():
                for more, factor in polynomial:
                    if changes + more <= budget:
                        grown[changes + more] = grown.get(changes + more, 0) + ways * factor
            counts = grown
    return sum(counts.values())


def joined_item(
    members: Sequence[CountedItem], signs: Sequence[int], budget: int | None
) -> CountedItem:
    """Return the sum of items, each with a sign; with signs 0 the values do not matter.

    With places k and one step d for all, the values of a member are between a + d k and b + d k.
    """
    step = 0
    for item in members:
        first, last = int(np.argmin(item.place)), int(np.argmax(item.place))
        if any(signs) and item.place[first] < item.place[last]:
            gap = int(item.place[last]) - int(item.place[first])
            step = int(item.low[last] - item.low[first]) // gap
            break
    low = high = 0
    ways: dict[tuple[int, int], int] = {(0, 0): 1}
    # Changes that the members after each one need at least.
    later = np.cumsum([0, *(item.fewest for item in members[:0:-1])])[::-1].tolist()
    for item, sign, needed in zip(members, signs, later, strict=True):
        if sign:
            offset = step * item.place.astype(object)
            a, b = int((item.low - offset).min()), int((item.high - offset).max())
            low, high = (low + a, high + b) if sign > 0 else (low - b, high - a)
        ways = _convolved(ways, item, sign, None if budget is None else budget - needed)
        # Neither of these numbers decreases by further members.
        bits = sum(number.bit_length() for number in ways.values())
        if not ways or len(ways) > MOST_ALTERNATIVES or bits > MOST_WAY_BITS:
            raise RejectedError("merged inputs have no values, or too many")
    keys = sorted(ways, key=lambda key: (key[1] > 0, key))
    place = np.array([k for k, _ in keys], dtype=np.int64)
    return CountedItem(
        place,
        low + step * place.astype(object),
        high + step * place.astype(object),
        np.array([c for _, c in keys], dtype=np.int64),
        np.array([ways[key] for key in keys], dtype=object),
    )


def _convolved(
    ways: dict[tuple[int, int], int], item: CountedItem, sign: int, budget: int | None
) -> dict[tuple[int, int], int]:
    """Return the ways of the sums of what is known and one more item."""
    fewest = min(changes for _, changes in ways)
    fitting = item.size
    if budget is not None:
        fitting = int(np.count_nonzero(item.changes + fewest <= budget))
    if sign and fitting > MOST_ALTERNATIVES:
        raise RejectedError("merged inputs have no values, or too many")
    steps = Counter[tuple[int, int]]()
    for place, more, factor in zip(
        (sign * item.place).tolist(), item.changes.tolist(), item.ways.tolist(), strict=True
    ):
        steps[place, more] += factor
    if budget is None and len(steps) > 2:
        return _convolved_rows(ways, steps)
    grown: dict[tuple[int, int], int] = {}
    for (place, changes), number in timed(ways.items()):
        for (step, more), factor in steps.items():
            if len(grown) > MOST_ALTERNATIVES:
                return grown
            if budget is None or changes + more <= budget:
                key = (place + step, changes + more)
                grown[key] = grown.get(key, 0) + number * factor
    return grown


def _convolved_rows(
    ways: dict[tuple[int, int], int], steps: dict[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Return the same without a budget, with one vector operation for each alternative."""
    first, last = min(ways)[0], max(ways)[0]
    lowest, highest = min(steps)[0], max(steps)[0]
    if last - first + highest - lowest >= MOST_ALTERNATIVES:
        raise RejectedError("merged inputs have no values, or too many")
    known = np.zeros(last - first + 1, dtype=object)
    for (place, _), number in ways.items():
        known[place - first] = number
    total = np.zeros(known.size + highest - lowest, dtype=object)
    for (place, _), factor in timed(steps.items()):
        start = place - lowest
        total[start : start + known.size] += known * factor
    return {(first + lowest + k, 0): n for k, n in enumerate(total.tolist()) if n}
