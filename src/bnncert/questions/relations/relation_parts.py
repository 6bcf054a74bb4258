"""The problems about the product of two copies from which a relation follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.kernel.claims.two_copies import takes_all_values
from bnncert.kernel.rules.product import Product
from bnncert.kernel.rules.relation_products import (
    Relation,
    any_increase_product,
    increase_product,
    values_product,
)
from bnncert.kernel.space import read_space
from bnncert.model.network import Network
from bnncert.model.rationals import float_above
from bnncert.problem import Problem, Target
from bnncert.proofs.statement_section import region_section
from bnncert.questions.compare.difference import condition_target
from bnncert.questions.relations.changes import Change, PairQuestion, categories
from bnncert.regions import Box, EmptyRegionError, Grid, Polytope, Region

#: The largest number of problems of one question.
MOST_PARTS = 10_000

#: Increases that are tried instead of 0, as shares of the room that the region leaves.
SHARES = tuple(Fraction(1, 2**k) for k in (0, 1, 3, 6, 10, 20))


@dataclass(frozen=True, eq=False)
class PairPart:
    """A small change on a part of the region, as a problem about the product of two copies."""

    name: str
    change: Change
    problem: Problem

    def pair(self, point: Sequence[Any]) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Return the two inputs of the network that a point of the product consists of."""
        exact = tuple(map(Fraction, point))
        size = len(exact) - (len(self.change.features) if self.change.values else 1)
        first, second = exact[:size], list(exact[:size])
        for k, f in enumerate(self.change.features):
            second[f] = exact[size + k] if self.change.values else exact[f] + exact[size]
        return first, tuple(second)

    def with_increases(self, point: Sequence[Any]) -> Iterator[tuple[Fraction, ...]]:
        """Yield points in which x' is larger or x smaller, for one with any increase that is 0.

        If ties of the input x = x' can have two classes, one of them is not that of a neighbour.
        """
        exact = list(map(Fraction, point))
        if self.change.kind != "any" or exact[-1] != 0:
            return
        f, region = self.change.features[0], self.problem.region
        low, high = (exact[f] - Fraction(region.lo[f]), Fraction(region.hi[f]) - exact[f])
        for share in SHARES:
            for room, start in ((high, exact[f]), (low, exact[f] - share * low)):
                yield *exact[:f], start, *exact[f + 1 : -1], share * room


@dataclass(frozen=True, eq=False)
class _Bounds:
    """The bounds of a region, its grid, and further inputs of the product."""

    lo: FloatArray
    hi: FloatArray
    step: FloatArray | None
    origin: FloatArray | None

    @staticmethod
    def of(box: Box) -> _Bounds:
        grid = box.values
        if grid is None:
            return _Bounds(box.lo.copy(), box.hi.copy(), None, None)
        return _Bounds(box.lo.copy(), box.hi.copy(), grid.step.copy(), grid.origin.copy())

    def fixed(self, inputs: Sequence[int], values: Sequence[float]) -> _Bounds:
        """Return the bounds with some inputs at fixed values, which the grid begins with."""
        made = _Bounds(*(None if v is None else v.copy() for v in vars(self).values()))  # type: ignore[arg-type]
        chosen = list(inputs)
        made.lo[chosen] = made.hi[chosen] = values
        if made.origin is not None:
            made.origin[chosen] = values
        return made

    def extended(self, inputs: Sequence[int]) -> _Bounds:
        """Return the bounds with copies of some inputs as further ones."""
        chosen = [*range(self.lo.size), *inputs]
        return _Bounds(*(None if v is None else v[chosen] for v in vars(self).values()))  # type: ignore[arg-type]

    @property
    def grid(self) -> Grid | None:
        """The grid, with numbers for each input."""
        return None if self.step is None or self.origin is None else Grid(self.step, self.origin)


def part_count(question: PairQuestion) -> int:
    """Return the number of problems of a question; raise if there are none or too many."""
    if not all(categories(group, question.box) for group in question.one_hot):
        raise EmptyRegionError("the region is empty: no category of a one-hot group is in it")
    sizes = ([len(states) for _, states in _fixed(question, c)] for c in question.changes)
    pairs = zip(question.changes, sizes, strict=True)
    count = sum(max(1, len(c.values) - 1) * prod(states) for c, states in pairs)
    if count > MOST_PARTS:
        raise InputError(f"the question has {count} parts; at most {MOST_PARTS} are answered")
    return count


def make_parts(question: PairQuestion) -> Iterator[PairPart]:
    """Yield the problems that together decide a question, one change after the other."""
    network, box = question.network, question.box
    for change in question.changes:
        fixed = _fixed(question, change)
        for cell in product(*(states for _, states in fixed)):
            bounds, words = _Bounds.of(box), []
            for (group, _), state in zip(fixed, cell, strict=True):
                bounds = bounds.fixed(group, state)
                place = state.index(1.0) if len(group) > 1 else 0
                words.append(f"{question.names[group[place]]} = {state[place]:.9g}")
            regions = _regions(change, bounds, question.names)
            for both, (name, region) in zip(_products(network, change), regions, strict=True):
                _refuse_other_grid(region, box)
                problem = Problem(both.network, region, _targets(both, question.relation))
                yield PairPart(", ".join([name, *words]), change, problem)


def _products(network: Network, change: Change) -> Iterator[Product]:
    """Yield the products of two copies for the small changes that a change consists of."""
    if not change.values:
        make = any_increase_product if change.step is None else increase_product
        yield make(network, change.features[0])
        return
    for before, after in pairwise(change.values):
        yield values_product(network, change.features, before, after)


def _fixed(
    question: PairQuestion, change: Change
) -> list[tuple[tuple[int, ...], Sequence[tuple[float, ...]]]]:
    """Return the inputs that are fixed while something else changes, with all their states.

    These are the one-hot groups that do not change, and what changes in other parts, unless its
    values are all that the region has.
    """
    found: list[tuple[tuple[int, ...], Sequence[tuple[float, ...]]]] = []
    for group in question.one_hot:
        chosen = categories(group, question.box)
        found.append((group, [tuple(float(f == k) for f in group) for k in chosen]))
    # The checker derives the same parts from the same region.
    space, _, _ = read_space(region_section(question.box), question.network)
    others = (c for c in question.changes if c is not change and c.values)
    return found + [(c.features, c.values) for c in others if not takes_all_values(space, c)]


def _targets(both: Product, relation: Relation) -> tuple[Target, ...]:
    """Return the ways to violate the relation as targets."""
    found = list(relation.violations(both.first.classes))
    return tuple(condition_target(both.network, name, conditions) for name, conditions in found)


def _regions(change: Change, bounds: _Bounds, names: Sequence[str]) -> Iterator[tuple[str, Region]]:
    """Yield the regions of the product for one change, with their names."""
    size = bounds.lo.size
    if change.values:
        wide = bounds.extended(change.features)
        new = [size + k for k in range(len(change.features))]
        for before, after in pairwise(change.values):
            fixed = wide.fixed([*change.features, *new], [*before, *after])
            yield _pair_name(change, before, after, names), Box(fixed.lo, fixed.hi, fixed.grid)
        return
    f = change.features[0]
    low, high = Fraction(float(bounds.lo[f])), Fraction(float(bounds.hi[f]))
    wide = bounds.extended([f])
    if change.step is None:
        wide.lo[size], wide.hi[size] = 0.0, float_above(high - low)
        yield f"{names[f]} by any amount", _below(wide, f, size)
        return
    wide.lo[size] = wide.hi[size] = change.step
    last = high - Fraction(change.step)
    name = f"{names[f]} by {change.step:.9g}"
    if Fraction(float(last)) != last:
        yield name, _below(wide, f, size)
        return
    wide.hi[f] = float(last)
    if wide.step is not None and wide.origin is not None:
        wide.step[size], wide.origin[size] = change.step, 0.0
    yield name, Box(wide.lo, wide.hi, wide.grid)


def _below(bounds: _Bounds, feature: int, increase: int) -> Polytope:
    """Return the region in which the feature with its increase is at most its upper bound."""
    row = np.zeros((1, bounds.lo.size))
    row[0, [feature, increase]] = 1.0
    return Polytope(row, bounds.hi[[feature]], bounds.lo, bounds.hi)


def _pair_name(
    change: Change, before: Sequence[float], after: Sequence[float], names: Sequence[str]
) -> str:
    if len(change.features) == 1:
        return f"{names[change.features[0]]} from {before[0]:.9g} to {after[0]:.9g}"
    one, two = (names[change.features[list(v).index(1.0)]] for v in (before, after))
    return f"from {one} to {two}"


def _refuse_other_grid(region: Region, box: Box) -> None:
    """Raise if the grid of a part is one of numbers of another type."""
    one, two = region.values, box.values
    if one is not None and two is not None and one.dtype != two.dtype:
        raise InputError(
            f"the values that change are {one.dtype.name} numbers and those of the region's grid "
            f"{two.dtype.name}; give bounds and steps that are float32 numbers"
        )
