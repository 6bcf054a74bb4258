"""A question about two inputs, and the problems about two copies from which its answer follows.

The relations (the same class; a class or score that does not fall) are transitive, so a large
change is a sequence of small ones: from one value to the next one, by one step, or in one attribute
after the other.  Only the small changes are proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

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
from bnncert.proofs.writing import region_section
from bnncert.questions.compare.difference import condition_target
from bnncert.regions import Box, EmptyRegionError, Grid, Polytope, Region

#: The largest number of problems of one question.
MOST_PARTS = 10_000

#: The largest number of values that are written out in words.
MOST_WORDS = 4

#: Increases that are tried instead of 0, as shares of the room that the region leaves.
SHARES = tuple(Fraction(1, 2**k) for k in (0, 1, 3, 6, 10, 20))


@dataclass(frozen=True)
class Change:
    """A feature that changes, or a group of features of which exactly one is 1.

    Attributes
    ----------
    features
        The numbers of the inputs that change.
    step
        The value changes by multiples of this step; None for any change, or if there are values.
    values
        The values that the features can take, one tuple for each state; empty if there is a step or
        if the change is any one.
    """

    features: tuple[int, ...]
    step: float | None = None
    values: tuple[tuple[float, ...], ...] = ()

    @property
    def kind(self) -> Literal["values", "step", "any"]:
        """How the second input arises from the first one."""
        return "values" if self.values else "any" if self.step is None else "step"

    def words(self, names: Sequence[str]) -> str:
        """Return the change in words."""
        if len(self.features) > 1:
            return f"which of {', '.join(names[f] for f in self.features)} is 1"
        name = names[self.features[0]]
        if self.step is not None:
            return f"{name} (steps of {self.step:.9g})"
        if not self.values:
            return f"{name} (real values)"
        shown = [f"{v[0]:.9g}" for v in self.values]
        if len(shown) > MOST_WORDS:
            return f"{name} ({len(shown)} values from {shown[0]} to {shown[-1]})"
        return f"{name} (values {', '.join(shown)})"

    def exactly(self) -> dict[str, Any]:
        """Return the change with exact numbers, for a claim."""
        return {
            "features": list(self.features),
            "step": None if self.step is None else str(Fraction(self.step)),
            "values": [[str(Fraction(v)) for v in state] for state in self.values],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "features": list(self.features),
            "kind": self.kind,
            "step": self.step,
            "values": [list(v) for v in self.values],
        }


@dataclass(frozen=True, eq=False)
class PairQuestion:
    """A relation between two inputs of a network that differ only in what may change.

    Attributes
    ----------
    network, box
        The network, and the region of both inputs.
    changes
        What may change.
    one_hot
        Groups of inputs that do not change and of which exactly one is 1.
    relation
        What has to hold between the classes or scores of both inputs.
    names
        The names of the inputs.
    statement, negation
        The property in words, and what is true if it fails.
    """

    network: Network
    box: Box
    changes: tuple[Change, ...]
    one_hot: tuple[tuple[int, ...], ...]
    relation: Relation
    names: tuple[str, ...]
    statement: str = ""
    negation: str = ""


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


class _BoundRows:
    """The bounds of a region as rows `lo` and `hi`, and of a grid also `step` and `origin`."""

    def __init__(self, rows: FloatArray) -> None:
        self.rows = rows

    @staticmethod
    def of(box: Box) -> _BoundRows:
        grid = [] if box.values is None else [box.values.step, box.values.origin]
        return _BoundRows(np.array([box.lo, box.hi, *grid]))

    def fix(self, inputs: Sequence[int], values: Sequence[float]) -> None:
        """Fix inputs at values, at which their grid begins."""
        self.rows[:2, list(inputs)] = values
        self.rows[3:, list(inputs)] = values

    def extended(self, inputs: Sequence[int]) -> _BoundRows:
        """Return the bounds with copies of some inputs as further ones."""
        return _BoundRows(self.rows[:, [*range(self.rows.shape[1]), *inputs]])

    def box(self) -> Box:
        """Return the box, with the grid if there is one."""
        lo, hi, *grid = self.rows.copy()
        return Box(lo, hi, Grid(*grid) if grid else None)

    def below(self, feature: int) -> Polytope:
        """Return the part in which the feature plus the last input is at most its upper bound."""
        lo, hi = self.rows[:2].copy()
        row = np.zeros((1, lo.size))
        row[0, [feature, -1]] = 1.0
        return Polytope(row, hi[[feature]], lo, hi)


def unit_states(group: Sequence[int], box: Box) -> tuple[tuple[float, ...], ...]:
    """Return the states of a one-hot group in the box: one input is 1, and the others are 0.

    Raises InputError if 0 or 1 is in the bounds, but not on the grid of the box.
    """
    columns, found = list(group), []
    for state in np.eye(len(columns)):
        if np.all((box.lo[columns] <= state) & (state <= box.hi[columns])):
            for f, v in zip(columns, state.tolist(), strict=True):
                refuse_off_grid(v, f, box, f"input {f}, which is in a one-hot group,")
            found.append(tuple(state.tolist()))
    return tuple(found)


def refuse_off_grid(value: float, feature: int, box: Box, name: str) -> None:
    """Raise if a value in the bounds of a feature is not one of the box's grid."""
    if box.values is None:
        return
    point = box.lo.copy()
    point[feature] = value
    near = float(box.values.at(box.values.nearest(point))[feature])
    if near != value:
        step, origin = (float(v[feature]) for v in (box.values.step, box.values.origin))
        raise InputError(
            f"value {value:.9g} of {name} is not on the grid of step {step:.9g} from {origin:.9g}; "
            f"the nearest value is {near:.9g}"
        )


def part_count(question: PairQuestion) -> int:
    """Return the number of problems of a question; raise if there are none or too many."""
    if not all(unit_states(group, question.box) for group in question.one_hot):
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
            rows, words = _BoundRows.of(box), []
            for (group, _), state in zip(fixed, cell, strict=True):
                rows.fix(group, state)
                place = state.index(1.0) if len(group) > 1 else 0
                words.append(f"{question.names[group[place]]} = {state[place]:.9g}")
            regions = _regions(change, rows, question.names)
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
) -> list[tuple[tuple[int, ...], tuple[tuple[float, ...], ...]]]:
    """Return the inputs that are fixed while something else changes, with all their states.

    These are the one-hot groups that do not change, and what changes in other parts, unless its
    values are all that the region has.
    """
    found = [(group, unit_states(group, question.box)) for group in question.one_hot]
    # The checker derives the same parts from the same region.
    space, _, _ = read_space(region_section(question.box), question.network)
    others = (c for c in question.changes if c is not change and c.values)
    return found + [(c.features, c.values) for c in others if not takes_all_values(space, c)]


def _targets(both: Product, relation: Relation) -> tuple[Target, ...]:
    """Return the ways to violate the relation as targets."""
    found = list(relation.violations(both.first.classes))
    return tuple(condition_target(both.network, name, conditions) for name, conditions in found)


def _regions(
    change: Change, bounds: _BoundRows, names: Sequence[str]
) -> Iterator[tuple[str, Region]]:
    """Yield the regions of the product for one change, with their names."""
    wide = bounds.extended(change.features)
    if change.values:
        size = bounds.rows.shape[1]
        new = range(size, size + len(change.features))
        for before, after in pairwise(change.values):
            wide.fix([*change.features, *new], [*before, *after])
            yield _pair_name(change, before, after, names), wide.box()
        return
    f, rows = change.features[0], wide.rows
    low, high = Fraction(float(rows[0, f])), Fraction(float(rows[1, f]))
    if change.step is None:
        rows[:2, -1] = 0.0, float_above(high - low)
        yield f"{names[f]} by any amount", wide.below(f)
        return
    rows[:2, -1] = change.step
    last, name = high - Fraction(change.step), f"{names[f]} by {change.step:.9g}"
    if Fraction(float(last)) != last:
        yield name, wide.below(f)
        return
    rows[1, f] = float(last)
    rows[2:, -1] = (change.step, 0.0)[: len(rows) - 2]
    yield name, wide.box()


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
