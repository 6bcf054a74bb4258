"""A question about two inputs, and the problems about two copies from which its answer follows.

The relations (the same class; a class or score that does not fall) are transitive, so a large
change is a sequence of small ones: from one value to the next one, by one step, or in one attribute
after the other.  Only the small changes are proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.errors import InputError
from bnncert.kernel.claims.two_copies import MOST_PARTS, SmallChange, TwoCopiesClaim
from bnncert.kernel.container import Section
from bnncert.kernel.rules.relation_products import Relation
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.claims import claim_section, read_claim, stated_region
from bnncert.questions.compare.difference import condition_target
from bnncert.regions import Box, EmptyRegionError

#: The names of the inputs.
Names: TypeAlias = tuple[str, ...]

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
        """Write few values out, and of many their number and both ends."""
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
        """Write the numbers as rationals, so that a claim rounds nothing."""
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
    small: SmallChange
    problem: Problem

    def pair(self, point: Sequence[Any]) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Return the two inputs of the network that a point of the product consists of."""
        change, exact = self.small.change, list(map(Fraction, point))
        first, second = change.pair(exact, len(exact) - len(change.features))
        return tuple(first), tuple(second)

    def with_increases(self, point: Sequence[Any]) -> Iterator[tuple[Fraction, ...]]:
        """Yield points in which x' is larger or x smaller, for one with any increase that is 0.

        If ties of the input x = x' can have two classes, one of them is not that of a neighbour.
        """
        exact, change = list(map(Fraction, point)), self.small.change
        if change.values or change.step is not None or exact[-1] != 0:
            return
        f, region = change.features[0], self.problem.region
        low, high = (exact[f] - Fraction(region.lo[f]), Fraction(region.hi[f]) - exact[f])
        for share in SHARES:
            for room, start in ((high, exact[f]), (low, exact[f] - share * low)):
                yield *exact[:f], start, *exact[f + 1 : -1], share * room


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


def relation_claim(question: PairQuestion, failure: list[int] | None = None) -> Section:
    """Return the claim; `failure` is the number of a part and of the way in which it fails."""
    details = {
        "network": question.network.content_hash,
        "relation": vars(question.relation).copy(),
        "changes": [change.exactly() for change in question.changes],
        "one_hot": [list(group) for group in question.one_hot],
        "failure": failure,
    }
    return claim_section("two copies", question.box, details)


class PairParts:
    """The parts of a question, which follow from its claim.

    Raises InputError if there are too many of them, and EmptyRegionError if there are none.
    """

    def __init__(self, question: PairQuestion) -> None:
        if not all(unit_states(group, question.box) for group in question.one_hot):
            raise EmptyRegionError("the region is empty: no category of a one-hot group is in it")
        self._question = question
        self._claim = read_claim(TwoCopiesClaim, relation_claim(question), question.network)
        self.count = self._claim.count
        if self.count > MOST_PARTS:
            raise InputError(
                f"the question has {self.count} parts; at most {MOST_PARTS} are answered"
            )

    def __iter__(self) -> Iterator[PairPart]:
        return map(self.part, self._claim.small_changes())

    def part(self, small: SmallChange) -> PairPart:
        """Return a part with its name, as a problem about the product of two copies."""
        relation, names = self._question.relation, self._question.names
        both, stated = self._claim.made(small)
        region = stated_region(stated)
        wanted = stated.fields.get("grid")
        if region.values is not None and region.values.dtype.name != wanted:
            raise InputError(
                f"the values that change are {region.values.dtype.name} numbers and those of the "
                f"region's grid {wanted}; give bounds and steps that are float32 numbers"
            )
        ways = relation.violations(self._question.network.classes)
        targets = tuple(condition_target(both, name, conditions) for name, conditions in ways)
        fixed = (_state_text(group, state, names) for group, state in small.cell)
        name = ", ".join([_small_text(small, names), *fixed])
        return PairPart(name, small, Problem(both, region, targets))


def _state_text(group: Sequence[int], state: int | tuple[Fraction, ...], names: Names) -> str:
    """Return the value of a feature that is fixed, or which one of a group is 1."""
    if not isinstance(state, int) and len(group) == 1:
        return f"{names[group[0]]} = {float(state[0]):.9g}"
    one = state if isinstance(state, int) else group[state.index(Fraction(1))]
    return f"{names[one]} = 1"


def _small_text(small: SmallChange, names: Names) -> str:
    first, *others = features = small.change.features
    if small.states is None:
        step = small.change.step
        return f"{names[first]} by {'any amount' if step is None else f'{float(step):.9g}'}"
    if others:
        one, two = (names[features[state.index(Fraction(1))]] for state in small.states)
        return f"from {one} to {two}"
    before, after = (f"{float(state[0]):.9g}" for state in small.states)
    return f"{names[first]} from {before} to {after}"
