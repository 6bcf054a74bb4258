r"""Groups of inputs with their alternatives, and the cells of a part of the region.

A group stands for inputs whose columns of weights on all open first-layer neurons are equal, up to
sign: only the sum of their values (with these signs) matters.  An alternative is one value of this
sum, with the number of ways in which the inputs can have it.  In an L0 ball, alternatives also
differ in the number of changed inputs, and a group's first alternative is the one without changes.
A cell is one alternative of every group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray

#: Numbers of one batch of cells: cells times open neurons.
BATCH_NUMBERS = 2**21


@dataclass(frozen=True, eq=False)
class InputGroup:
    """The alternatives of a group."""

    #: The sum of the inputs' numbers of values, by which alternatives are ordered.
    place: IntArray
    #: The integers that enclose the sum of values.
    low: FloatArray
    high: FloatArray
    #: The number of changed inputs.
    changes: IntArray
    #: The number of ways; None if it is one for all alternatives.
    ways: tuple[int, ...] | None = None
    #: The distance of neighbouring values.  Only sums of values with one step are merged.
    step: float = 0.0
    #: The input of a group of one input.
    source: int | None = None
    #: Of a group whose value does not matter: places of its inputs, with the fewest changes.
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
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a number of changes and how many alternatives have it."""
        numbers, sizes = np.unique(self.changes, return_counts=True)
        return tuple(zip(numbers.tolist(), sizes.tolist(), strict=True))

    @cached_property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a number of changes and how many ways have it."""
        if self.ways is None:
            return self.sizes
        total: Counter[int] = Counter()
        for changes, ways in zip(self.changes.tolist(), self.ways, strict=True):
            total[changes] += ways
        return tuple(sorted(total.items()))

    @property
    def all_ways(self) -> tuple[int, ...]:
        """The number of ways of every alternative."""
        return (1,) * self.size if self.ways is None else self.ways

    @cached_property
    def without_first(self) -> tuple[InputGroup, InputGroup]:
        """The first alternative, and the others; many parts of a search share them."""
        return self.part(0, 1), self.part(1, self.size)

    def part(self, start: int, stop: int) -> InputGroup:
        """Return some of the alternatives."""
        cut = slice(start, stop)
        ways = None if self.ways is None else self.ways[cut]
        numbers = self.place[cut], self.low[cut], self.high[cut], self.changes[cut]
        return InputGroup(*numbers, ways, self.step, self.source, self.example)

    def places(self, alternative: int) -> tuple[tuple[int, int], ...] | None:
        """Return inputs and their places for which first-layer signs are those of an alternative.

        The result is None for a sum of several inputs, whose values may be rounded differently.
        """
        if self.source is not None:
            return ((self.source, int(self.place[alternative])),)
        return self.example


Groups = tuple[InputGroup, ...]

# -- numbers of points --------------------------------------------------------------------


def count_ways(groups: Sequence[InputGroup], budget: int | None, *, as_one: bool = False) -> int:
    """Return the number of points with at most `budget` changes; `as_one` counts alternatives."""
    # Many groups have the same numbers.
    found = Counter(group.sizes if as_one else group.counts for group in groups)
    if budget is None:
        return math.prod(ways**times for ((_, ways),), times in found.items())
    return sum(_all_changes(found, budget))


def first_change_counts(
    groups: Sequence[InputGroup], order: Sequence[int], budget: int
) -> list[int]:
    """Return for each group of an order how many points have it as the first that changes."""
    chosen = set(order)
    rest = _all_changes(Counter(g.counts for k, g in enumerate(groups) if k not in chosen), budget)
    found = []
    for k in reversed(order):
        mine = _power(groups[k].counts, 1, budget)
        # The first alternative is the one without changes, which has one way.
        found.append(sum(_product(rest, [mine[0] - 1, *mine[1:]])))
        rest = _product(rest, mine)
    return found[::-1]


def _all_changes(found: Counter[tuple[tuple[int, int], ...]], budget: int) -> list[int]:
    """Return how many ways the sum of changes of all groups has, up to the budget."""
    counts = [1] + [0] * budget
    for own, times in found.items():
        counts = _product(counts, _power(own, times, budget))
    return counts


def _power(own: tuple[tuple[int, int], ...], times: int, budget: int) -> list[int]:
    """Return how many ways the sum of changes of equal groups has, up to the budget."""
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


# -- sums of groups -----------------------------------------------------------------------


def merged(members: Sequence[InputGroup], signs: Sequence[int], budget: int | None) -> InputGroup:
    """Return the group of the sum of several; a sign is the factor of a member's values.

    A sign of 0 means that the values do not matter at all.  The values of a member with the places
    k are between a + d k and b + d k, with one step d for all members, so their sums are between
    such bounds, too; they are equal on an exact grid.
    """
    step = _common_step(members) if any(signs) else 0
    low = high = 0
    for group, sign in zip(members, signs, strict=True):
        if sign:
            ends = ((group.low - step * group.place).min(), (group.high - step * group.place).max())
            low += int(ends[0] if sign > 0 else -ends[1])
            high += int(ends[1] if sign > 0 else -ends[0])
    ways = _summed(members, signs) if budget is None else _spent(members, signs, budget)
    # The one without changes comes first, as in groups of one input.
    keys = sorted(ways, key=lambda key: (key[1] > 0, key))
    place = np.array([place for place, _ in keys], dtype=np.int64)
    return InputGroup(
        place,
        low + step * place.astype(np.float64),
        high + step * place.astype(np.float64),
        np.array([changes for _, changes in keys], dtype=np.int64),
        tuple(ways[key] for key in keys),
        members[0].step,
        example=_example(members) if not any(signs) else None,
    )


def _common_step(members: Sequence[InputGroup]) -> int:
    """Return the step between values of neighbouring places, of the first group with several."""
    for group in members:
        first, last = int(np.argmin(group.place)), int(np.argmax(group.place))
        places = int(group.place[last] - group.place[first])
        if places:
            return int(group.low[last] - group.low[first]) // places
    return 0


#: The places and numbers of changes of sums, and how many ways they have.
Ways = dict[tuple[int, int], int]


def _spent(members: Sequence[InputGroup], signs: Sequence[int], budget: int) -> Ways:
    """Return the ways of sums with at most `budget` changes."""
    table: Ways = {(0, 0): 1}
    for group, sign in zip(members, signs, strict=True):
        places, changed = (sign * group.place).tolist(), group.changes.tolist()
        steps = [*zip(places, changed, group.all_ways, strict=True)]
        grown: Ways = {}
        for (place, changes), ways in table.items():
            for step, more, factor in steps:
                if changes + more <= budget:
                    key = (place + step, changes + more)
                    grown[key] = grown.get(key, 0) + ways * factor
        table = grown
    return table


def _summed(members: Sequence[InputGroup], signs: Sequence[int]) -> Ways:
    """Return the ways of sums, as the coefficients of a product of polynomials.

    A polynomial is one integer: its value at a power of two that exceeds all coefficients.
    """
    total = count_ways(members, None)
    if not any(signs):
        return {(0, 0): total}
    size = total.bit_length() // 8 + 1
    product, first = 1, 0
    for group, sign in zip(members, signs, strict=True):
        places = sign * group.place
        start = int(places.min())
        first += start
        if group.ways is None and group.size == int(places.max()) - start + 1:
            product = _windows(product, group.size, 8 * size)
        else:
            pairs = zip((places - start).tolist(), group.all_ways, strict=True)
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


def _example(members: Sequence[InputGroup]) -> tuple[tuple[int, int], ...] | None:
    """Return places of all inputs of the members with the fewest changes."""
    found: tuple[tuple[int, int], ...] = ()
    for group in members:
        places = group.places(int(np.argmin(group.changes)))
        if places is None:
            return None
        found += places
    return found


# -- cells --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cells:
    """A batch of cells."""

    #: Bounds of the sums of the open first-layer neurons, one row for each cell.
    low: FloatArray
    high: FloatArray
    #: The number of points of each cell; None if it is one for all.
    ways: npt.NDArray[np.object_] | None
    #: Returns the number of the alternative of each group, for the cell of a row.
    chosen: Callable[[int], IntArray]

    def points(self, rows: npt.NDArray[Any]) -> int:
        """Return the number of points of some cells."""
        if self.ways is None:
            return int(np.count_nonzero(rows))
        return sum(self.ways[rows].tolist())


def all_cells(
    columns: FloatArray, groups: Sequence[InputGroup], budget: int | None
) -> Iterator[Cells]:
    """Yield all cells with at most `budget` changes; row i of `columns` belongs to group i."""
    left = None if budget is None else budget - sum(group.fewest for group in groups)
    if left is None or left >= 0:
        moves = _CellMoves(columns, groups, left)
        low, high = (part[None, :] for part in moves.start)
        none = np.zeros((1, 0), dtype=np.int64)
        yield from moves.extended(none, low, high, np.zeros(1, dtype=np.int64))


class _CellMoves:
    """Moves away from a first cell: every move is another alternative of a group.

    `left` is the number of changes that moves may add together.
    """

    def __init__(self, columns: FloatArray, groups: Sequence[InputGroup], left: int | None) -> None:
        self.groups, self.left = groups, left
        self.base = np.array([int(np.argmin(group.changes)) for group in groups], dtype=np.int64)
        self.is_exact = all(np.array_equal(group.low, group.high) for group in groups)
        choices, costs = [], []
        for group, base in zip(groups, self.base.tolist(), strict=True):
            cost = group.changes - group.fewest
            fits = np.ones(group.size, dtype=bool) if left is None else cost <= left
            fits[base] = False
            choices.append(np.flatnonzero(fits))
            costs.append(cost[fits])
        #: The group and the alternative of every move, and the changes that it adds.
        self.owner = np.repeat(np.arange(len(groups)), [c.size for c in choices])
        self.choice = np.concatenate([self.base[:0], *choices])
        self.cost = np.concatenate([self.base[:0], *costs])
        #: The first move of a later group.
        self.next = np.searchsorted(self.owner, self.owner, side="right")
        first = self._products(columns, np.arange(len(groups)), self.base)
        self.start = tuple(part.sum(axis=0) for part in first)
        old = (part[self.owner] for part in first)
        new = self._products(columns, self.owner, self.choice)
        #: How each move changes both bounds of the sums.
        self.steps = tuple(b - a for a, b in zip(old, new, strict=True))
        self._prepare_ways()

    def _products(
        self, columns: FloatArray, owner: IntArray, choice: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds of the products of weights with the values of alternatives."""
        pairs = [*zip(owner.tolist(), choice.tolist(), strict=True)]
        low = np.array([self.groups[i].low[k] for i, k in pairs])[:, None]
        high = np.array([self.groups[i].high[k] for i, k in pairs])[:, None]
        column = columns[owner]
        if self.is_exact:
            exact = column * low
            return exact, exact
        up, down = np.maximum(column, 0.0), np.minimum(column, 0.0)
        return up * low + down * high, up * high + down * low

    def _prepare_ways(self) -> None:
        """Prepare the numbers of ways: the product of the first cell, times p/q of every move."""
        self.has_ways = any(group.ways is not None for group in self.groups)
        if self.has_ways:
            ways = [group.all_ways for group in self.groups]
            bases = [own[b] for own, b in zip(ways, self.base.tolist(), strict=True)]
            pairs = zip(self.owner.tolist(), self.choice.tolist(), strict=True)
            self.first_ways = math.prod(bases)
            self.numerators = np.array([ways[i][k] for i, k in pairs], dtype=object)
            self.denominators = np.array([bases[i] for i in self.owner.tolist()], dtype=object)

    def extended(
        self, moves: IntArray, low: FloatArray, high: FloatArray, cost: IntArray
    ) -> Iterator[Cells]:
        """Yield the cells of these moves, and those with more moves of later groups."""
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
            yield from self.extended(grown, new_low, new_high, total)

    def _cells(self, moves: IntArray, low: FloatArray, high: FloatArray) -> Cells:
        ways: npt.NDArray[np.object_] | None = None
        if self.has_ways:
            ways = np.full(moves.shape[0], self.first_ways, dtype=object)
            for column in moves.T:
                ways = ways * self.numerators[column] // self.denominators[column]

        def chosen(row: int) -> IntArray:
            alternatives: IntArray = self.base.copy()
            alternatives[self.owner[moves[row]]] = self.choice[moves[row]]
            return alternatives

        return Cells(low, high, ways, chosen)
