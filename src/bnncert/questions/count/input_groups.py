r"""Inputs, or groups of inputs, as items with alternatives.

An item stands for inputs whose columns of weights on all open first-layer neurons are equal, up to
sign: only the sum of their values (with these signs) matters.  An alternative is one value of this
sum, with the number of ways in which the inputs can have it.  In an L0 ball, alternatives also
differ in the number of changed inputs, and the item's first alternative is the one without changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.questions.count.first_layer import IntegerFirstLayer
from bnncert.questions.count.grid_points import GridPoints


@dataclass(frozen=True, eq=False)
class Item:
    """The alternatives of an item.

    Attributes
    ----------
    place
        The sum of the inputs' numbers of values, by which alternatives are ordered.
    low, high
        The integers that enclose the sum of values.
    changes
        The number of changed inputs.
    ways
        The number of ways; None if it is one for all alternatives.
    step
        The distance of neighbouring values.  Only sums of values with one step are merged.
    source
        The input that the item is, if it is one.
    example
        Of an item whose value does not matter: places of its inputs, with the fewest changes.
    """

    place: IntArray
    low: FloatArray
    high: FloatArray
    changes: IntArray
    ways: tuple[int, ...] | None = None
    step: float = 0.0
    source: int | None = None
    example: tuple[tuple[int, int], ...] | None = None

    @property
    def size(self) -> int:
        """The number of alternatives."""
        return int(self.place.size)

    @cached_property
    def least(self) -> float:
        """The least sum of values."""
        return float(self.low.min())

    @cached_property
    def most(self) -> float:
        """The largest sum of values."""
        return float(self.high.max())

    @cached_property
    def fewest(self) -> int:
        """The least number of changes."""
        return int(self.changes.min())

    @cached_property
    def near(self) -> tuple[float, float]:
        """The least and the largest sum of values with the fewest changes."""
        chosen = self.changes == self.fewest
        return float(self.low[chosen].min()), float(self.high[chosen].max())

    @cached_property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a number of changes and how many ways have it."""
        if self.ways is None:
            return self.sizes
        total: dict[int, int] = {}
        for changes, ways in zip(self.changes.tolist(), self.ways, strict=True):
            total[changes] = total.get(changes, 0) + ways
        return tuple(sorted(total.items()))

    @cached_property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a number of changes and how many alternatives have it."""
        numbers, sizes = np.unique(self.changes, return_counts=True)
        return tuple(zip(numbers.tolist(), sizes.tolist(), strict=True))

    @cached_property
    def without_first(self) -> tuple[Item, Item]:
        """The first alternative, and the others; many parts of a search share them."""
        return self.part(0, 1), self.part(1, self.size)

    def part(self, start: int, stop: int) -> Item:
        """Return some of the alternatives."""
        cut = slice(start, stop)
        ways = None if self.ways is None else self.ways[cut]
        numbers = self.place[cut], self.low[cut], self.high[cut], self.changes[cut]
        return Item(*numbers, ways, self.step, self.source, self.example)

    def places(self, alternative: int) -> tuple[tuple[int, int], ...] | None:
        """Return inputs and their places for which first-layer signs are those of an alternative.

        The result is None for a sum of several inputs, whose values may be rounded differently.
        """
        if self.source is not None:
            return ((self.source, int(self.place[alternative])),)
        return self.example

    def weights(self) -> tuple[int, ...]:
        """Return the number of ways of every alternative."""
        return (1,) * self.size if self.ways is None else self.ways


def single_items(points: GridPoints, layer: IntegerFirstLayer) -> tuple[Item, ...]:
    """Return one item for each input."""
    items = []
    for i, (low, high) in enumerate(zip(layer.low, layer.high, strict=True)):
        place, changes = np.arange(low.size), np.zeros(low.size, dtype=np.int64)
        order = place
        if points.home is not None:
            home = int(points.home[i])
            changes = (place != home).astype(np.int64)
            # The alternative without changes comes first.
            order = np.concatenate([[home], np.delete(place, home)])
        step = float(points.steps[i])
        items.append(Item(place[order], low[order], high[order], changes[order], None, step, i))
    return tuple(items)


def count_ways(items: Sequence[Item], budget: int | None, *, as_one: bool = False) -> int:
    """Return the number of points with at most `budget` changes; `as_one` counts alternatives."""
    # Many items have the same numbers.
    found = Counter(item.sizes if as_one else item.counts for item in items)
    if budget is None:
        total = 1
        for ((_, ways),), times in found.items():
            total *= ways**times
        return total
    counts = [1] + [0] * budget
    for own, times in found.items():
        counts = _product(counts, _power(own, times, budget))
    return sum(counts)


def first_change_counts(items: Sequence[Item], order: Sequence[int], budget: int) -> list[int]:
    """Return for each item of an order how many points have it as the first that changes."""
    chosen = set(order)
    rest = [1] + [0] * budget
    for own, times in Counter(i.counts for k, i in enumerate(items) if k not in chosen).items():
        rest = _product(rest, _power(own, times, budget))
    found = []
    for k in reversed(order):
        mine = _power(items[k].counts, 1, budget)
        # The first alternative is the one without changes, which has one way.
        found.append(sum(_product(rest, [mine[0] - 1, *mine[1:]])))
        rest = _product(rest, mine)
    return found[::-1]


def _power(own: tuple[tuple[int, int], ...], times: int, budget: int) -> list[int]:
    """Return how many ways the sum of changes of equal items has, up to the budget."""
    result, square = [1] + [0] * budget, [0] * (budget + 1)
    for changes, ways in own:
        if changes <= budget:
            square[changes] += ways
    while times:
        if times & 1:
            result = _product(result, square)
        times >>= 1
        square = _product(square, square) if times else square
    return result


def _product(one: list[int], other: list[int]) -> list[int]:
    """Return the product of two polynomials without the terms above their degree."""
    product = [0] * len(one)
    for i, a in enumerate(one):
        if a:
            for j, b in enumerate(other[: len(one) - i]):
                product[i + j] += a * b
    return product


def merged(members: Sequence[Item], signs: Sequence[int], budget: int | None) -> Item:
    """Return the item of the sum of several; a sign is the factor of a member's values.

    A sign of 0 means that the values do not matter at all.  The values of a member with the places
    k are between a + d k and b + d k, with one step d for all members, so their sums are between
    such bounds, too; they are equal on an exact grid.
    """
    step = _common_step(members) if any(signs) else 0
    low = high = 0
    for item, sign in zip(members, signs, strict=True):
        if sign:
            ends = ((item.low - step * item.place).min(), (item.high - step * item.place).max())
            low += int(ends[0] if sign > 0 else -ends[1])
            high += int(ends[1] if sign > 0 else -ends[0])
    ways = _summed(members, signs) if budget is None else _spent(members, signs, budget)
    # The one without changes comes first, as in items of one input.
    keys = sorted(ways, key=lambda key: (key[1] > 0, key))
    place = np.array([place for place, _ in keys], dtype=np.int64)
    return Item(
        place,
        low + step * place.astype(np.float64),
        high + step * place.astype(np.float64),
        np.array([changes for _, changes in keys], dtype=np.int64),
        tuple(ways[key] for key in keys),
        members[0].step,
        example=_example(members) if not any(signs) else None,
    )


def _common_step(members: Sequence[Item]) -> int:
    """Return the step between values of neighbouring places, of the first item with several."""
    for item in members:
        first, last = int(np.argmin(item.place)), int(np.argmax(item.place))
        places = int(item.place[last] - item.place[first])
        if places:
            return int(item.low[last] - item.low[first]) // places
    return 0


#: The places and numbers of changes of sums, and how many ways they have.
Ways = dict[tuple[int, int], int]


def _spent(members: Sequence[Item], signs: Sequence[int], budget: int) -> Ways:
    """Return the ways of sums with at most `budget` changes."""
    table: Ways = {(0, 0): 1}
    for item, sign in zip(members, signs, strict=True):
        places, changed = (sign * item.place).tolist(), item.changes.tolist()
        steps = [*zip(places, changed, item.weights(), strict=True)]
        grown: Ways = {}
        for (place, changes), ways in table.items():
            for step, more, factor in steps:
                if changes + more <= budget:
                    key = (place + step, changes + more)
                    grown[key] = grown.get(key, 0) + ways * factor
        table = grown
    return table


def _summed(members: Sequence[Item], signs: Sequence[int]) -> Ways:
    """Return the ways of sums, as the coefficients of a product of polynomials.

    A polynomial is one integer: its value at a power of two that exceeds all coefficients.
    """
    total = count_ways(members, None)
    if not any(signs):
        return {(0, 0): total}
    size = total.bit_length() // 8 + 1
    product, first = 1, 0
    for item, sign in zip(members, signs, strict=True):
        places = sign * item.place
        start = int(places.min())
        first += start
        if item.ways is None and item.size == int(places.max()) - start + 1:
            product = _windows(product, item.size, 8 * size)
        else:
            pairs = zip((places - start).tolist(), item.weights(), strict=True)
            product *= sum(ways << (8 * size * place) for place, ways in pairs)
    digits = product.to_bytes(product.bit_length() // 8 + size, "little")
    found = (int.from_bytes(digits[k : k + size], "little") for k in range(0, len(digits), size))
    return {(first + k, 0): ways for k, ways in enumerate(found) if ways}


def _windows(polynomial: int, length: int, bits: int) -> int:
    """Return a polynomial times 1 + z + .. + z^(length - 1), by doubling the length."""
    total, done, power, size = 0, 0, polynomial, 1
    while length:
        if length & 1:
            total += power << (bits * done)
            done += size
        length >>= 1
        if length:
            power += power << (bits * size)
            size *= 2
    return total


def _example(members: Sequence[Item]) -> tuple[tuple[int, int], ...] | None:
    """Return places of all inputs of the members with the fewest changes."""
    found: tuple[tuple[int, int], ...] = ()
    for item in members:
        places = item.places(int(np.argmin(item.changes)))
        if places is None:
            return None
        found += places
    return found
