"""Claims about two inputs of one network that differ only in some inputs.

The details are the hash of the `network`, the `relation` (:class:`Relation`: the same class, or a
class or score that does not fall), the `changes`, the `one_hot` groups that do not change, the
`region`, which is a box, and the `failure`: None if the relation holds, else the numbers of a part
and of a violation.

A change is about one feature with a step (x' = x + k step for k >= 1), about one feature without a
step and values (x' > x), or about one or more features with values (the states that they can take,
in order).  Each part is about the product of two copies and one small change: one step, any
increase, or from one state to the next one; the features of other changes with values have these
values.  The relation is transitive and both inputs of a part lie in the region, so it follows for
sequences of small changes.  Values and categories are those of the region's grid.

A failure is a pair of inputs of the region; if sign(0) may be either, the same choice for both of
them violates the relation (:mod:`bnncert.kernel.rules.relation_products`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, StatedRegion, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.rules.disagreement import no_violation
from bnncert.kernel.rules.relation_products import (
    Relation,
    any_increase_product,
    increase_product,
    paired_signs,
    values_product,
    violation,
)
from bnncert.kernel.space import Space
from bnncert.kernel.statement import SIGN_OF_ZERO
from bnncert.model.network import Network

NAMES = ("network", "relation", "changes", "one_hot", "region", "failure")

#: Parts of one claim, at most, and values that its words list.
MOST_PARTS, MOST_WORDS = 10_000, 8

T = TypeVar("T")

#: Inputs with their values in a part: of a one-hot group, the input that is 1.
_State: TypeAlias = int | tuple[Fraction, ...]
_Cell: TypeAlias = tuple[tuple[tuple[int, ...], _State], ...]


@dataclass(frozen=True, eq=False)
class ExactChange:
    """A change of the claim, in exact numbers."""

    features: tuple[int, ...]
    step: Fraction | None
    values: tuple[tuple[Fraction, ...], ...]

    def pair(self, point: list[Fraction], size: int) -> tuple[list[Fraction], list[Fraction]]:
        """Return the two inputs of the network that a point of a product consists of."""
        first, more = point[:size], point[size:]
        second = first.copy()
        for f, v in zip(self.features, more, strict=True):
            second[f] = v if self.values else first[f] + v
        return first, second

    @property
    def words(self) -> str:
        """The change in words."""
        names = ", ".join(map(str, self.features))
        if self.step is not None:
            return f"input {names}, by multiples of {self.step}"
        if not self.values:
            return f"input {names}, by any amount"
        one = len(self.features) == 1
        states = [str(v[0]) if one else f"({', '.join(map(str, v))})" for v in self.values]
        if len(states) > MOST_WORDS:
            states = [*states[:2], "..", f"{states[-1]}: {len(states)} values"]
        return f"input{'' if one else 's'} {names}, with the values {', '.join(states)}"


@dataclass(frozen=True, eq=False)
class SmallChange:
    """What a part is about: an increase, or a change from the first of two states to the second.

    `cell` has the inputs that are fixed meanwhile: one-hot groups, and what changes in other parts.
    """

    change: ExactChange
    cell: _Cell
    states: tuple[tuple[Fraction, ...], tuple[Fraction, ...]] | None = None


@dataclass(frozen=True, eq=False)
class _Arrays:
    """The bounds of a region, and its grid if it has one."""

    lo: FloatArray
    hi: FloatArray
    grid: tuple[FloatArray, FloatArray] | None
    kind: str | None

    @staticmethod
    def of(region: Section, size: int) -> _Arrays:
        lo, hi = region.floats("lo", size), region.floats("hi", size)
        if (kind := region.fields.get("grid")) is None:
            return _Arrays(lo, hi, None, None)
        grid = region.floats("grid_step", size), region.floats("grid_origin", size)
        return _Arrays(lo, hi, grid, kind)

    def with_more(self, features: tuple[int, ...]) -> _Arrays:
        """Return the arrays with copies of some inputs at their end."""
        chosen = [*range(self.lo.size), *features]
        grid = None if self.grid is None else (self.grid[0][chosen], self.grid[1][chosen])
        return _Arrays(self.lo[chosen], self.hi[chosen], grid, self.kind)

    def fix(self, place: int, value: float) -> None:
        """Fix an input at a value, at which its grid begins."""
        self.lo[place] = self.hi[place] = value
        if self.grid is not None:
            self.grid[1][place] = value

    def section(self, row: FloatArray | None, limit: float) -> Section:
        """Return the region as a section, with at most one inequality."""
        fields: dict[str, Any] = {"region": "box"}
        arrays = {"lo": self.lo, "hi": self.hi}
        if self.grid is not None:
            fields["grid"] = self.kind
            arrays |= {"grid_step": self.grid[0], "grid_origin": self.grid[1]}
        if row is not None:
            fields |= {"region": "polytope", "inequalities": 1}
            arrays |= {"matrix": row, "right": np.array([limit])}
        return Section("statement", fields, arrays)


class TwoCopiesClaim:
    """The claim about two copies of the network."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found, self._network = subject.details(section, NAMES), subject.network
        self._relation = _relation(found["relation"], self._network)
        self._region = StatedRegion.read(section, self._network)
        region, size = self._region.section, self._network.inputs
        if region.fields["region"] != "box":
            raise UnreadableError("section claim: the region is not a box")
        self._arrays = _Arrays.of(region, size)
        self._one_hot = _groups(found["one_hot"], size)
        self._changes = _changes(found["changes"], self._relation, self._arrays, self._one_hot)
        self._groups = [(group, list(_categories(group, self._arrays))) for group in self._one_hot]
        space = self._region.space
        _refuse_off_grid(space, self._groups, self._changes)
        #: In the parts of one change, the features of another one have its values, too.
        self._limited = [c for c in timed(self._changes) if c.values and not _is_full(space, c)]
        self._failure = None if found["failure"] is None else _failure(found["failure"])

    @property
    def count(self) -> int:
        """The number of parts of a relation that holds."""
        groups = prod(len(states) for _, states in self._groups)
        cells = groups * prod(len(c.values) for c in self._limited)
        own = {c: len(c.values) for c in self._limited}
        sizes = (max(1, len(c.values) - 1) * cells // own.get(c, 1) for c in self._changes)
        return sum(timed(sizes))

    def small_changes(self) -> Iterator[SmallChange]:
        """Yield what the parts of a relation that holds are about, in order."""
        if not all(states for _, states in self._groups):
            raise RejectedError("no category of a one-hot group lies in the region")
        if self.count > MOST_PARTS:
            raise RejectedError("it has too many parts")
        for change in self._changes:
            others = ((c.features, c.values) for c in self._limited if c is not change)
            fixed: list[tuple[tuple[int, ...], Sequence[_State]]] = [*self._groups, *others]
            for states in product(*(states for _, states in fixed)):
                cell = tuple((group, s) for (group, _), s in zip(fixed, states, strict=True))
                if not change.values:
                    yield SmallChange(change, cell)
                for pair in pairwise(change.values):
                    yield SmallChange(change, cell, pair)

    def made(self, small: SmallChange) -> tuple[Network, Section]:
        """Return the product of two copies for a part, and its region."""
        network, change = self._network, small.change
        base = self._arrays.with_more(change.features)
        for features, state in small.cell:
            values = [f == state for f in features] if isinstance(state, int) else state
            for f, value in zip(features, values, strict=True):
                base.fix(f, float(value))
        if small.states is None:
            (feature,) = change.features
            make = any_increase_product if change.step is None else increase_product
            return make(network, feature).network, _increase(base, feature, change.step)
        before, after = ([*map(float, state)] for state in small.states)
        for k, f in enumerate(change.features):
            base.fix(f, before[k])
            base.fix(network.inputs + k, after[k])
        both = values_product(network, change.features, before, after)
        return both.network, base.section(None, 0.0)

    def parts(self) -> ClaimParts:
        """Yield a part for every small change, or the one that fails."""
        network, space, needed = self._network, self._region.space, self.small_changes()
        violations = (targets for _, targets in self._relation.violations(network.classes))
        if self._failure is None:
            goal = no_violation(violations)
            for small in timed(needed):
                yield ClaimPart(*self.made(small), goal)
            return
        number, wrong = self._failure
        conditions = _nth(violations, wrong)
        if conditions is None:
            raise UnreadableError("section claim: the failure is not one")
        chosen = _nth(needed, number)
        if chosen is None:
            raise RejectedError("it is about a part that does not exist")
        proved = yield ClaimPart(*self.made(chosen), no_violation([conditions]), "not_robust")
        pair = chosen.change.pair(list(proved.point), network.inputs)
        if not all(space.contains(x) for x in pair):
            raise RejectedError("an input of the pair lies outside the region")
        signs = timed(paired_signs(network, *pair))
        if violation(network, self._relation, signs) is None:
            raise RejectedError("the pair does not violate the relation")

    def shown(self) -> Shown:
        """Return the relation of two inputs, or its failure, in words."""
        relation, network, place = self._relation, self._network, self._region.place
        what = " and ".join(change.words for change in self._changes)
        groups = "".join(
            f", exactly one of inputs {', '.join(map(str, group))} being 1 and the others 0"
            for group in self._one_hot
        )
        way = "smaller" if relation.falling else "larger"
        if relation.score is not None:
            goal = f"score {relation.score} of the one with the {way} value is at least as large"
        elif relation.label is not None:
            k = relation.label
            goal = f"if one has class {k}, the one with the {way} value has class {k}"
        else:
            goal = "both have the same class"
        pairs = f"two inputs in {place}{groups} that are equal up to {what}"
        text, verdict = f"for every {pairs}: {goal}", "relation_holds"
        if self._failure is not None:
            text, verdict = f"for some {pairs}, this is wrong: {goal}", "relation_fails"
        settings = ["real arithmetic", SIGN_OF_ZERO[network.sign_zero]]
        if any(layer.sign_zero == "either" for layer in network.layers):
            settings.append("the same for both inputs")
        settings += ["of equal scores the first counts"] if relation.score is None else []
        assumptions = {
            "sign_zero": network.sign_zero,
            "arithmetic": "real",
            "ties": "the first of equal scores",
            "data_box": f"the region's own bounds {place}",
        }
        words = f"{text} ({', '.join(settings)})"
        return Shown(words, verdict, assumptions, self._region.space.named)


def _relation(value: Any, network: Network) -> Relation:
    names = {"label", "score", "falling"}
    if not isinstance(value, dict) or value.keys() != names or type(value["falling"]) is not bool:
        raise UnreadableError("section claim: the relation is not one")
    for name in ("label", "score"):
        number = value[name]
        if number is not None and (type(number) is not int or not 0 <= number < network.classes):
            raise RejectedError("the relation names a class or score that does not exist")
    relation = Relation(**value)
    if relation.label is not None and relation.score is not None:
        raise UnreadableError("section claim: the relation is about a class and a score")
    if relation.score is None and network.classes < 2:
        raise RejectedError("the network has no classes")
    if relation.label is None and relation.score is None and relation.falling:
        raise UnreadableError("section claim: equal classes do not fall")
    return relation


def _numbers(value: Any, size: int) -> tuple[int, ...]:
    """Return numbers of inputs, each at most once."""
    if not isinstance(value, list) or not value or not all(type(f) is int for f in value):
        raise UnreadableError("section claim: a list of inputs is not one")
    if len(set(value)) < len(value) or not all(0 <= f < size for f in value):
        raise RejectedError("the claim names an input twice, or one that does not exist")
    return tuple(value)


def _groups(value: Any, size: int) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        raise UnreadableError("section claim: one_hot is not a list")
    groups = tuple(_numbers(group, size) for group in value)
    if any(len(group) < 2 for group in groups):
        raise RejectedError("a one-hot group has a single input")
    return groups


def _changes(
    value: Any, relation: Relation, arrays: _Arrays, one_hot: tuple[tuple[int, ...], ...]
) -> list[ExactChange]:
    """Return the changes, after a check that the relation is transitive for them."""
    if not isinstance(value, list) or not value:
        raise UnreadableError("section claim: there are no changes")
    changes = [_change(entry, arrays) for entry in value]
    used = [f for change in changes for f in change.features]
    used += [f for group in one_hot for f in group]
    if len(set(used)) < len(used):
        raise RejectedError("an input belongs to two changes or groups")
    if relation.label is None and relation.score is None:
        return changes
    # Larger and smaller are defined for one feature, whose values are in ascending order.
    first = changes[0]
    if len(changes) > 1 or len(first.features) > 1:
        raise RejectedError("a class or score that does not fall is about one feature")
    if any(a >= b for a, b in pairwise(first.values)):
        raise RejectedError("the values of the feature are not in ascending order")
    return changes


def _change(value: Any, arrays: _Arrays) -> ExactChange:
    if not isinstance(value, dict) or value.keys() != {"features", "step", "values"}:
        raise UnreadableError("section claim: a change is not one")
    features = _numbers(value["features"], arrays.lo.size)
    states = value["values"]
    if not isinstance(states, list) or not all(isinstance(s, list) for s in states):
        raise UnreadableError("section claim: the values of a change are not a list")
    values = tuple(tuple(_float(v) for v in state) for state in timed(states))
    step = None if value["step"] is None else _float(value["step"])
    if values:
        if step is not None or any(len(state) != len(features) for state in values):
            raise UnreadableError("section claim: a change with values and a step")
        if len(values) < 2 or len(set(values)) < len(values):
            raise RejectedError("a change has a single value, or one value twice")
        for state in timed(values):
            for f, v in zip(features, state, strict=True):
                if not Fraction(float(arrays.lo[f])) <= v <= Fraction(float(arrays.hi[f])):
                    raise RejectedError("a value lies outside the region")
        return ExactChange(features, None, values)
    if len(features) != 1:
        raise RejectedError("a change of several features has no values")
    if step is not None and step <= 0:
        raise RejectedError("a step is not positive")
    low, high = (Fraction(float(side[features[0]])) for side in (arrays.lo, arrays.hi))
    if high - (step or 0) < low:
        raise RejectedError("a step is larger than the region")
    if arrays.grid is not None:
        _refuse_inexact(features[0], step, arrays)
    return ExactChange(features, step, ())


def _float(value: Any) -> Fraction:
    """Return an exact number that is a float64 number."""
    number = exactly(value)
    if abs(number) > 1e100 or Fraction(float(number)) != number:
        raise UnreadableError("section claim: a number is not a float64 number")
    return number


def _refuse_inexact(feature: int, step: Fraction | None, arrays: _Arrays) -> None:
    """Reject a step after which an input need not be on the grid.

    The values origin + k (step of the grid) are exact, and the step is a multiple of that one.
    """
    assert arrays.grid is not None
    own, origin = (Fraction(float(v[feature])) for v in arrays.grid)
    low, high = Fraction(float(arrays.lo[feature])), Fraction(float(arrays.hi[feature]))
    if own <= 0 or step is None or (step / own).denominator != 1:
        raise RejectedError("a step is not one of the grid")
    if not has_exact_values(own, origin, (low, high), arrays.kind):
        raise RejectedError("the values of a feature are rounded, or do not end at its bounds")


def has_exact_values(
    step: Fraction, origin: Fraction, ends: tuple[Fraction, Fraction], kind: str | None
) -> bool:
    """Whether the values of a grid between two ends are exactly  first + k step.

    It is so if the ends are values, all of them are multiples of one power of two, and they are
    small enough for numbers of this kind, "float32" or "float64".
    """
    if any(((v - origin) / step).denominator != 1 for v in ends):
        return False
    unit, limit = max(step.denominator, origin.denominator), 24 if kind == "float32" else 53
    return max(map(abs, (step, origin, *ends))) * unit < 1 << limit


def _refuse_off_grid(
    space: Space, groups: list[tuple[tuple[int, ...], list[int]]], changes: list[ExactChange]
) -> None:
    """Reject states of features that are not values of the region's grid."""
    grid, zero, one = space.grid, Fraction(0), Fraction(1)
    if grid is None:
        return
    stated = [(f, v) for c in changes for s in c.values for f, v in zip(c.features, s, strict=True)]
    for group, categories in groups:
        known = set(categories)
        stated += [(f, one) for f in categories]
        # An input is 0 in every state in which another one is 1.
        stated += [(f, zero) for f in group if len(known) > (f in known)]
    for f, value in timed(stated):
        if not grid.has_value(f, value):
            raise RejectedError(f"the value {value} of input {f} is not on the grid")


def _is_full(space: Space, change: ExactChange) -> bool:
    """Whether the values of a change are all that its feature can have in the region."""
    if space.grid is None or len(change.features) > 1:
        return False
    grid, f = space.grid, change.features[0]
    ends = (space.rationals(side[f : f + 1])[0] for side in (space.lower, space.upper))
    first, last = (grid.place(f, end) for end in ends)
    # The values of a change are different, on the grid and in the region.
    return len(change.values) == last - first + 1


def _categories(group: tuple[int, ...], arrays: _Arrays) -> Iterator[int]:
    """Yield the inputs of a one-hot group that can be 1 in the region while all others are 0."""
    lo, hi = arrays.lo[list(group)], arrays.hi[list(group)]
    cannot_be_0, can_be_1 = (lo > 0) | (hi < 0), (lo <= 1) & (hi >= 1)
    for f, needed, can in zip(group, cannot_be_0.tolist(), can_be_1.tolist(), strict=True):
        if can and np.count_nonzero(cannot_be_0) == needed:
            yield f


def _increase(arrays: _Arrays, feature: int, step: Fraction | None) -> Section:
    """Return the region of an input and its increase, the last input of the product."""
    low, high = Fraction(float(arrays.lo[feature])), Fraction(float(arrays.hi[feature]))
    row = np.zeros(arrays.lo.size)
    row[[feature, -1]] = 1.0
    if step is None:
        most = float(high - low)
        arrays.lo[-1] = 0.0
        # The inequality limits the increase; a larger bound changes nothing.
        arrays.hi[-1] = most if Fraction(most) >= high - low else np.nextafter(most, np.inf)
        return arrays.section(row, float(high))
    arrays.lo[-1] = arrays.hi[-1] = float(step)
    last = high - step
    if Fraction(float(last)) != last:
        return arrays.section(row, float(high))
    arrays.hi[feature] = float(last)
    if arrays.grid is not None:
        arrays.grid[0][-1], arrays.grid[1][-1] = float(step), 0.0
    return arrays.section(None, 0.0)


def _failure(value: Any) -> tuple[int, int]:
    known = isinstance(value, list) and len(value) == 2 and all(type(k) is int for k in value)
    if not known or min(value) < 0:
        raise UnreadableError("section claim: the failure is not one")
    return value[0], value[1]


def _nth(items: Iterable[T], number: int) -> T | None:
    """Return an item by its number, which can be larger than any index; None if it is missing."""
    return next((item for k, item in enumerate(timed(items)) if k == number), None)
