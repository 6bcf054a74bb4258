"""The public functions: whether a network is monotone in a feature, or fair."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from bnncert.engine.methods import Options, Progress
from bnncert.errors import InputError
from bnncert.kernel.claims.two_copies import has_exact_values
from bnncert.kernel.rules.relation_products import Relation
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.questions.prover import Effort
from bnncert.questions.relations.relation_answer import Change, RelationResult
from bnncert.questions.relations.relation_search import (
    PairQuestion,
    RelationSearch,
    refuse_off_grid,
    unit_states,
)
from bnncert.regions import Box, Region

#: The largest number of values of one feature that are looked at one by one.
MOST_VALUES = 4096


def monotone(
    network: Network,
    feature: int,
    region: Region | None = None,
    *,
    increasing: bool = True,
    label: int | None = None,
    score: int | None = None,
    step: float | None = None,
    values: Sequence[float] | None = None,
    one_hot: Sequence[Sequence[int]] = (),
    names: Sequence[str] | None = None,
    sign_zero: SignZero | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> RelationResult:
    """Decide whether a larger value of one feature can undo a decision or lower a score.

    For all x and x' in the region that are equal but for x'_f > x_f:

        class of x is `label`  implies  class of x' is `label`,      or      score(x') >= score(x).

    Of equal scores the first class counts, as in :meth:`Network.classify`.

    Parameters
    ----------
    feature
        The number f of the input.
    region
        A :class:`Box`, or a :class:`Ball` of the norm "linf"; default: the data box.
    increasing
        Whether the class or score is kept if the feature increases; False: if it decreases.
    label
        The class (default: the second of two classes).
    score
        The number of a score, instead of a class.
    step
        Only changes by multiples of this step count (default: the step of the region's grid, else
        any change counts).
    values
        The values that the feature can take, instead of a step.
    one_hot
        Groups of inputs of which exactly one is 1.
    names
        The names of the inputs for messages.
    network, sign_zero, method, timeout, options, progress, certificate
        Those of :func:`verify`.  If sign(0) may be either, it is +1 or -1 for each neuron, and the
        same one for both inputs.

    Returns
    -------
    RelationResult
        "holds", "fails" with a pair of inputs, "unknown" or "timeout".

    Raises
    ------
    InputError
        If an argument cannot be used.
    Interrupted
        On Ctrl-C; its `answer` is what was known by then.

    Examples
    --------
    A network that approves (class 1) if income - debt >= 2:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, -1]], [[-1], [1]]], [[-2], [0, 0]])
    >>> table = bnncert.Box([0, 0], [9, 9], grid=1)
    >>> bnncert.monotone(net, 0, table, timeout=60).status
    'holds'
    >>> result = bnncert.monotone(net, 1, table, timeout=60)
    >>> result.status, result.pair.classes
    ('fails', (1, 0))
    """
    network, box = network.with_sign_zero(sign_zero), _box(network, region)
    shown = _names(network, names)
    f = _feature(feature, network)
    relation = _kept(network, label, score, increasing)
    groups = _groups(one_hot, network)
    if any(f in group for group in groups):
        raise InputError(f"feature {shown[f]} is a column of a one-hot group and has no order")
    change = feature_change(f, box, shown[f], step, values)
    what = f"score {relation.score}" if score is not None else f"class {relation.label}"
    way = "increasing" if increasing else "decreasing"
    goal = f"monotonically {way} in {change.words(shown)}"
    words = f"{what} is {goal}", f"{what} is not {goal}"
    question = PairQuestion(network, box, (change,), groups, relation, shown, *words)
    return RelationSearch(
        question, Effort(method, timeout, options, progress, certificate)
    ).outcome()


def fair(
    network: Network,
    protected: int | Sequence[int | Sequence[int]],
    region: Region | None = None,
    *,
    values: Mapping[int, Sequence[float]] | None = None,
    step: Mapping[int, float] | None = None,
    one_hot: Sequence[Sequence[int]] = (),
    names: Sequence[str] | None = None,
    sign_zero: SignZero | None = None,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> RelationResult:
    """Decide whether protected attributes can change the class (individual fairness).

    For all x and x' in the region that are equal but for the protected inputs:

        class of x = class of x'.

    Of equal scores the first class counts, as in :meth:`Network.classify`.

    Parameters
    ----------
    protected
        The number of an input, or several: numbers, and one-hot groups as sequences of numbers.
    values, step
        For protected inputs the values that they can take, or the step by whose multiples they
        change (default: the step of the region's grid, else any change counts).
    one_hot
        Other groups of inputs of which exactly one is 1.
    network, region, names, sign_zero, method, timeout, options, progress, certificate
        Those of :func:`monotone`.

    Returns
    -------
    RelationResult
        "holds", "fails" with a pair of inputs, "unknown" or "timeout".

    Raises
    ------
    InputError, Interrupted
        As :func:`monotone`.

    Examples
    --------
    A network that approves (class 1) if income - debt + group >= 2:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, -1, 1]], [[-1], [1]]], [[-2], [0, 0]])
    >>> table = bnncert.Box([0, 0, 0], [9, 9, 1], grid=1)
    >>> result = bnncert.fair(net, 2, table, timeout=60)
    >>> result.status, result.pair.classes
    ('fails', (0, 1))
    >>> rich = bnncert.Box([5, 0, 0], [9, 3, 1], grid=1)
    >>> bnncert.fair(net, 2, rich, timeout=60).status
    'holds'
    """
    network, box = network.with_sign_zero(sign_zero), _box(network, region)
    if network.classes < 2:
        raise InputError("the network has a single score; fairness is about classes")
    shown = _names(network, names)
    groups = _groups(one_hot, network)
    listed = [protected] if isinstance(protected, int) else list(protected)
    changes = [
        _change(attribute, network, box, shown, values or {}, step or {}) for attribute in listed
    ]
    used = [f for change in changes for f in change.features]
    if not used:
        raise InputError("no protected feature is given")
    if len(set(used)) < len(used):
        raise InputError(f"feature {shown[max(used, key=used.count)]} is protected twice")
    for f in (*(values or {}), *(step or {})):
        if f not in used:
            raise InputError(f"feature {f} has values or a step but is not protected")
    # A protected group is also one of the groups if the caller lists all of them.
    owners = [c.features for c in changes if len(c.features) > 1]
    others = tuple(group for group in groups if group not in owners)
    for group in others:
        mixed = [shown[f] for f in group if f in used]
        if mixed:
            raise InputError(
                f"feature {mixed[0]} is a column of a one-hot group; protect the whole group"
            )
    what = " and ".join(change.words(shown) for change in changes)
    words = f"the class does not depend on {what}", f"the class depends on {what}"
    question = PairQuestion(network, box, tuple(changes), others, Relation(), shown, *words)
    return RelationSearch(
        question, Effort(method, timeout, options, progress, certificate)
    ).outcome()


def _change(
    attribute: int | Sequence[int],
    network: Network,
    box: Box,
    names: Sequence[str],
    values: Mapping[int, Sequence[float]],
    step: Mapping[int, float],
) -> Change:
    """Return the change of a protected attribute: one feature, or a one-hot group."""
    if isinstance(attribute, Sequence):
        group = _groups([attribute], network)[0]
        if any(f in values or f in step for f in group):
            raise InputError("a one-hot group has no values and no step of its own")
        return group_change(group, box, names)
    f = _feature(attribute, network)
    return feature_change(f, box, names[f], step.get(f), values.get(f))


def _kept(network: Network, label: int | None, score: int | None, increasing: bool) -> Relation:
    """Choose what must not fall: a score, a class, or the second one of two classes."""
    if label is not None and score is not None:
        raise InputError("a class and a score are given; monotonicity is about one of them")
    for name, number in (("label", label), ("score", score)):
        if number is not None and not 0 <= number < network.classes:
            raise InputError(
                f"{name} is {number}; the network has {name}s 0 to {network.classes - 1}"
            )
    if score is None and network.classes < 2:
        raise InputError("the network has a single score; give it as the score (0)")
    if score is None and label is None and network.classes > 2:
        raise InputError(f"the network has {network.classes} classes; give the class or the score")
    if score is None and label is None:
        label = 1
    return Relation(label, score, not increasing)


def _box(network: Network, region: Region | None) -> Box:
    """Return the region of both inputs as a box."""
    if region is None:
        if network.input_lo is None or network.input_hi is None:
            raise InputError("the network states no data box; give the region of its inputs")
        size = network.inputs
        lo, hi = (np.broadcast_to(v, size) for v in (network.input_lo, network.input_hi))
        region = Box(lo, hi)
    if not region.is_box:
        raise InputError("the region of both inputs has to be a box or a ball of the norm linf")
    if region.size != network.inputs:
        raise InputError(f"the region has {region.size} inputs, the network {network.inputs}")
    # Made of the outermost grid values, so that the box of every part has the same grid.
    return Box(region.lo, region.hi, region.grid)


def _names(network: Network, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(f"input {i}" for i in range(network.inputs))
    if len(names) != network.inputs:
        raise InputError(f"there are {len(names)} names for {network.inputs} inputs")
    return tuple(names)


def _feature(feature: int, network: Network) -> int:
    if not 0 <= feature < network.inputs:
        raise InputError(f"feature {feature} does not exist; there are 0 to {network.inputs - 1}")
    return int(feature)


def _groups(one_hot: Sequence[Sequence[int]], network: Network) -> tuple[tuple[int, ...], ...]:
    """Return one-hot groups after a check that they have no input in common."""
    groups = tuple(tuple(_feature(f, network) for f in group) for group in one_hot)
    used = [f for group in groups for f in group]
    if len(set(used)) < len(used):
        raise InputError(f"input {max(used, key=used.count)} is in a one-hot group twice")
    if any(len(group) < 2 for group in groups):
        raise InputError("a one-hot group has at least two inputs")
    return groups


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
    rational = (Fraction(float(v[feature])) for v in (box.values.origin, box.lo, box.hi))
    origin, *ends = rational
    if has_exact_values(Fraction(own), origin, (ends[0], ends[1]), box.values.dtype.name):
        return Change((feature,), chosen)
    return Change((feature,), values=_grid_values(box, feature, name, round(chosen / own)))


def group_change(group: Sequence[int], box: Box, names: Sequence[str]) -> Change:
    """Return the change of a one-hot group from one category to another."""
    states = unit_states(group, box)
    if len(states) < 2:
        shown = ", ".join(names[f] for f in group)
        raise InputError(
            f"one-hot group {shown} cannot change: the region has {len(states)} of its categories"
        )
    return Change(tuple(group), values=states)


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
        refuse_off_grid(v, feature, box, f"feature {name}")
    return tuple((v,) for v in found)
