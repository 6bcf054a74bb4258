"""The changes between the two inputs of a question, and which of them have to be looked at.

The relations (the same class; a class or score that does not fall) are transitive, so a large
change is a sequence of small ones: from one value to the next one, by one step, or in one attribute
after the other.  Only the small changes are proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from bnncert.errors import InputError
from bnncert.kernel.rules.relation_products import Relation
from bnncert.model.network import Network
from bnncert.regions import Box

#: The largest number of values of one feature that are looked at one by one.
MOST_VALUES = 4096

#: The largest number of values that are written out in words.
MOST_WORDS = 4


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


def feature_change(
    feature: int,
    box: Box,
    name: str,
    step: float | None = None,
    values: Sequence[float] | None = None,
) -> Change:
    """Return the change of one feature.

    Without a step and values a feature on a grid takes all its values in the box, and a real one
    changes by any amount.
    """
    if values is not None:
        if step is not None:
            raise InputError(f"feature {name} has both values and a step; give one")
        return Change((feature,), values=_checked_values(values, feature, box, name))
    low, high = float(box.lo[feature]), float(box.hi[feature])
    if low == high:
        raise InputError(f"feature {name} cannot change: its only value in the region is {low:.9g}")
    if step is not None and not (np.isfinite(step) and 0 < step <= high - low):
        raise InputError(
            f"the step of feature {name} is {step:g}; expected a number in (0, {high - low:.9g}]"
        )
    if box.values is None:
        return Change((feature,), None if step is None else float(step))
    own = float(box.values.step[feature])
    chosen = own if step is None else float(step)
    if (Fraction(chosen) / Fraction(own)).denominator != 1:
        raise InputError(
            f"the step of feature {name} is {chosen:.9g}, which is not a multiple of the grid's "
            f"step {own:.9g}"
        )
    if is_exact(box, feature):
        return Change((feature,), chosen)
    return Change((feature,), values=_grid_values(box, feature, name, round(chosen / own)))


def group_change(group: Sequence[int], box: Box, names: Sequence[str]) -> Change:
    """Return the change of a one-hot group from one category to another."""
    allowed = categories(group, box)
    if len(allowed) < 2:
        shown = ", ".join(names[f] for f in group)
        raise InputError(
            f"one-hot group {shown} cannot change: the region has {len(allowed)} of its categories"
        )
    units = tuple(tuple(float(f == chosen) for f in group) for chosen in allowed)
    return Change(tuple(group), values=units)


def categories(group: Sequence[int], box: Box) -> list[int]:
    """Return the columns of a one-hot group that can be 1 in the box, the others being 0.

    Raises InputError if 0 or 1 is in the bounds, but not on the grid of the box.
    """
    found = []
    for chosen in group:
        wanted = np.array([float(f == chosen) for f in group])
        columns = list(group)
        if np.all((box.lo[columns] <= wanted) & (wanted <= box.hi[columns])):
            for f, v in zip(columns, wanted.tolist(), strict=True):
                _refuse_off_grid(v, f, box, f"input {f}, which is in a one-hot group,")
            found.append(chosen)
    return found


def _refuse_off_grid(value: float, feature: int, box: Box, name: str) -> None:
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


def is_exact(box: Box, feature: int) -> bool:
    """Whether the grid values of a feature are exactly first + k step.

    It is so if all of them are multiples of one power of two, and not too many.
    """
    grid = box.values
    assert grid is not None
    step, origin = (Fraction(float(v[feature])) for v in (grid.step, grid.origin))
    low, high = (Fraction(float(v[feature])) for v in (box.lo, box.hi))
    if any(((v - origin) / step).denominator != 1 for v in (low, high)):
        return False
    unit = max(v.denominator for v in (step, origin))
    largest = max(abs(v) for v in (step, origin, low, high)) * unit
    return largest < (2**24 if grid.dtype == np.float32 else 2**53)


def _grid_values(box: Box, feature: int, name: str, every: int) -> tuple[tuple[float, ...], ...]:
    """Return the values of a feature on a grid, of which each `every`-th counts."""
    grid = box.values
    assert grid is not None
    first, last = grid.first_from(box.lo), grid.last_until(box.hi)
    count = int(last[feature] - first[feature]) // every + 1
    if count > MOST_VALUES:
        raise InputError(
            f"feature {name} has {count} values on the grid; at most {MOST_VALUES} are looked at "
            "one by one (a step that is a power of two has no such limit)"
        )
    found = []
    for k in range(count):
        places = first.copy()
        places[feature] += k * every
        found.append((float(grid.at(places)[feature]),))
    return tuple(found)


def _checked_values(
    values: Sequence[float], feature: int, box: Box, name: str
) -> tuple[tuple[float, ...], ...]:
    found = sorted({float(v) + 0.0 for v in values})
    if len(found) < 2:
        raise InputError(f"feature {name} has {len(found)} values; expected at least two")
    for v in found:
        if not np.isfinite(v) or not box.lo[feature] <= v <= box.hi[feature]:
            raise InputError(
                f"value {v:.9g} of feature {name} is outside the region "
                f"[{box.lo[feature]:.9g}, {box.hi[feature]:.9g}]"
            )
        _refuse_off_grid(v, feature, box, f"feature {name}")
    return tuple((v,) for v in found)
