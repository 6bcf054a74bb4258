r"""Targets, and the problem that no target can be reached.

A *target* is one way in which the property can fail: a conjunction f_1 <= 0, .., f_m <= 0 of
affine functions of the signs of the last layer (for a classifier: one function, the margin over a
rival).  The property holds iff no target can be reached inside the region, which means
F = max_i f_i > 0 for every target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import OutputLayer
from bnncert.model.network import Network
from bnncert.problem.objective import Objective, score_objective
from bnncert.regions import InputSet, Region

#: The rivals of a question; several ones are in ascending order.
Rivals: TypeAlias = Literal["all", "runner-up"] | int | tuple[int, ...]
Ties: TypeAlias = Literal["violation", "robust"]


@dataclass(frozen=True, eq=False)
class Target:
    """One way to fail: all objectives are violated at once.

    Attributes
    ----------
    name
        The name in tables, such as "class 3".
    objectives
        The functions f_1, .., f_m of the signs of the last layer.
    rival
        The rival, if the target is about one.
    """

    name: str
    objectives: tuple[Objective, ...]
    rival: int | None = None

    def __repr__(self) -> str:
        names = " and ".join(repr(o) for o in self.objectives)
        return f"Target({self.name}: {names})"

    def is_violated(self, signs: npt.NDArray[Any]) -> bool | None:
        """Decide exactly whether all objectives are violated; None if one is undecidable."""
        answers = [objective.is_violated(signs) for objective in self.objectives]
        if any(answer is False for answer in answers):
            return False
        return None if any(answer is None for answer in answers) else True

    def is_clearly_met(self, signs: npt.NDArray[Any]) -> bool:
        """Whether a float evaluation shows that some objective is not violated."""
        return any(objective.is_clearly_met(signs) for objective in self.objectives)

    def strictly(self) -> Target:
        """Make the target f_1 < 0, .., f_m < 0, which equality does not reach."""
        strict = tuple(replace(o, tie_is_fine=True) for o in self.objectives)
        return replace(self, objectives=strict)

    @cached_property
    def largest_violation(self) -> float:
        """A float v such that F > v only where some objective is not violated."""
        return max((o.largest_violation() for o in self.objectives), default=math.inf)

    def is_proved_by(self, lowers: Sequence[float]) -> bool:
        """Whether lower bounds of the objectives prove that one of them is not violated."""
        pairs = zip(self.objectives, lowers, strict=True)
        return any(objective.is_proved_by(lower) for objective, lower in pairs)

    def values(self, signs: npt.NDArray[Any]) -> FloatArray:
        """Evaluate F = max_i f_i for rows of sign vectors, in floating point."""
        if not self.objectives:
            return np.full(signs.shape[0], -np.inf)
        parts = [signs @ o.coefficients + o.constant for o in self.objectives]
        return np.asarray(np.max(np.stack(parts), axis=0), dtype=np.float64)

    def exactly(self, signs: npt.NDArray[Any]) -> Fraction:
        """Bound F at one sign vector from above, by a rational."""
        return max(
            (o.exactly(signs) + o.exact_error for o in self.objectives), default=Fraction(-1)
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """The question whether the network reaches a target on the region.

    Attributes
    ----------
    network, inputs
        The network, and the inputs that count: a region, or a cover of several.
    targets
        The ways in which the property can fail.
    label
        The class of all inputs, if the property is one about classes.
    """

    network: Network
    inputs: InputSet
    targets: tuple[Target, ...]
    label: int | None = None

    def __repr__(self) -> str:
        names = ", ".join(t.name for t in self.targets[:4]) + (
            ", ..." if len(self.targets) > 4 else ""
        )
        label = "" if self.label is None else f"label {self.label}, "
        targets = f"{len(self.targets)} target{'s' * (len(self.targets) != 1)} ({names})"
        return f"Problem({self.network!r}, {self.inputs!r}, {label}{targets})"

    def __post_init__(self) -> None:
        if self.inputs.size != self.network.inputs:
            raise InputError(
                f"the region has {self.inputs.size} inputs, the network {self.network.inputs}"
            )

    @cached_property
    def region(self) -> Region:
        """The region of the inputs that count; a box with more inputs if these are a cover."""
        return self.inputs.hull


def rivals_of(value: object) -> Rivals | None:
    """Read the rivals that a text, a class or a list of classes names, or None if none.

    Raises InputError if a class is named twice.
    """
    if value == "all":
        return "all"
    if value == "runner-up":
        return "runner-up"
    if _is_class(value):
        return int(value)  # type: ignore[call-overload, no-any-return]
    if not isinstance(value, list | tuple) or not value or not all(map(_is_class, value)):
        return None
    classes = tuple(sorted(map(int, value)))
    twice = next((a for a, b in pairwise(classes) if a == b), None)
    if twice is not None:
        raise InputError(f"rivals name class {twice} twice")
    return classes if len(classes) > 1 else classes[0]


def _is_class(value: object) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and int(value) >= 0  # type: ignore[call-overload]


def rivals_text(rivals: Rivals) -> str:
    """Write rivals as a user does: `all`, `runner-up`, `1` or `1,2`."""
    return ",".join(map(str, rivals)) if isinstance(rivals, tuple) else str(rivals)


def robustness(
    network: Network,
    region: InputSet,
    label: int,
    rivals: Rivals = "all",
    ties: Ties = "violation",
) -> Problem:
    """State the problem "every point of the region is classified as `label`".

    Parameters
    ----------
    network, region, label
        The network, the inputs that count, and the class that all of them should have.
    rivals, ties
        Those of :func:`bnncert.verify`.

    Returns
    -------
    Problem
        The problem, with one target for each rival.

    Raises
    ------
    InputError
        If the network does not have the label or a rival, or the region has another size.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.problem import robustness
    >>> from bnncert.questions.prover import solve
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> problem = robustness(net, bnncert.Ball("linf", [0.5, 0], 0.2), label=0)
    >>> problem
    Problem(Network(2-2-2, <arrays>), Ball(linf, radius 0.2, 2 inputs), label 0, 1 target (class 1))
    >>> solve([problem], timeout=60).status
    'robust'
    """
    if ties not in ("violation", "robust"):
        raise InputError(f"ties is {ties!r}; expected violation or robust")
    if not isinstance(label, int | np.integer) or not 0 <= label < network.classes:
        raise InputError(f"label is {label}; the network has classes 0 to {network.classes - 1}")
    if network.classes < 2:
        raise InputError("the network has a single score; classification needs at least two")
    label = int(label)
    classes: Sequence[int]
    if rivals == "all":
        classes = [k for k in range(network.classes) if k != label]
    elif rivals == "runner-up":
        scores = network.evaluate(region.center)
        scores[label] = -np.inf
        classes = [int(np.argmax(scores))]
    else:
        classes = _chosen_rivals(network, label, rivals)
    made = tuple(_rival_target(network, label, k, ties == "robust") for k in classes)
    return Problem(network, region, made, label)


#: The targets of the networks in use, by label, rival and ties: many questions share them.
_RIVAL_TARGETS: WeakKeyDictionary[OutputLayer, dict[tuple[int, int, bool], Target]]
_RIVAL_TARGETS = WeakKeyDictionary()


def _rival_target(network: Network, label: int, rival: int, tie_is_fine: bool) -> Target:
    """Make the target of one rival, once for each network."""
    known = _RIVAL_TARGETS.setdefault(network.output, {})
    key = label, rival, tie_is_fine
    if key not in known:
        weights = {label: Fraction(1), rival: Fraction(-1)}
        name = f"score {label} - score {rival}"
        objective = score_objective(network, weights, tie_is_fine=tie_is_fine, name=name)
        known[key] = Target(f"class {rival}", (objective,), rival)
    return known[key]


def _chosen_rivals(network: Network, label: int, rivals: object) -> list[int]:
    """Check rivals that are stated one by one."""
    found = rivals_of(rivals)
    if found is None or isinstance(found, str):
        raise InputError(
            f"rival is {rivals!r}; expected all, runner-up or classes from 0 to "
            f"{network.classes - 1}"
        )
    classes = [found] if isinstance(found, int) else list(found)
    for rival in classes:
        if rival >= network.classes:
            raise InputError(
                f"rival is {rival}; the network has classes 0 to {network.classes - 1}"
            )
        if rival == label:
            raise InputError(f"rival {rival} is the label itself")
    return classes


def output_polytope(
    network: Network, region: Region, matrix: npt.ArrayLike, right: npt.ArrayLike
) -> Problem:
    """State the problem "the scores y satisfy A y <= b on the whole region", row by row.

    Parameters
    ----------
    network, region
        The network, and the inputs that count.
    matrix, right
        The matrix A with one column for each score, and the limits b, one for each row.

    Returns
    -------
    Problem
        The problem, with one target for each row; equality is not a violation.

    Raises
    ------
    InputError
        If the shapes do not fit, or a number is not finite.

    Examples
    --------
    Both scores are at most 2:

    >>> import bnncert
    >>> from bnncert.problem import output_polytope
    >>> from bnncert.questions.prover import solve
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    >>> problem = output_polytope(net, ball, [[1, 0], [0, 1]], [2, 2])
    >>> solve([problem], timeout=60).status
    'robust'
    """
    rows = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    limits = np.asarray(right, dtype=np.float64).reshape(-1)
    if rows.shape != (limits.size, network.classes):
        raise InputError(
            f"output polytope with matrix {rows.shape} and right-hand side {limits.shape}; "
            f"expected {network.classes} columns and as many rows as limits"
        )
    if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(limits))):
        raise InputError("the output polytope contains NaN or infinity")
    targets = []
    for i, (row, limit) in enumerate(zip(rows.tolist(), limits.tolist(), strict=True)):
        weights = {j: -Fraction(c) for j, c in enumerate(row) if c}
        # The property is b_i - A_i y >= 0, so equality is not a violation.
        objective = score_objective(
            network, weights, Fraction(limit), tie_is_fine=True, name=f"row {i}"
        )
        targets.append(Target(f"row {i}", (objective,)))
    return Problem(network, region, tuple(targets))


Arithmetic: TypeAlias = Literal["real", "float32"]

UNIT = 2.0**-24

#: A factor that covers the rounding errors of this computation.
SAFETY = 1.0 + 2.0**-20


def float32_network(network: Network, region: InputSet) -> Network:
    r"""Make the network as float32 hardware may run it: with biases widened by its rounding.

    A deployed network computes w.x + b of its first layer in float32, in an unknown order.  With n
    weights and u = 2^-24 the result differs from the true value by at most

        gamma (sum |w_i| |x_i| + |b|),      gamma = k u / (1 - k u),  k = n + 3

    (n products, n sums, and the rounding of weights and bias to float32), for any order of the
    sums, with or without fused operations.  With each bias widened by this error over the region,
    every sign of such an execution is possible, so that a proof for the widened network holds for
    all executions.  Above the first layer, sums of less than 2^24 units are exact in float32.

    The inputs are assumed to be float32 numbers inside the region.  Batch normalisation is assumed
    to be folded: w.x + b >= 0 in the first layer, and integer thresholds above it, which float32
    compares exactly.  Scores are assumed to be exact, even if their weights are not small integers.
    """
    layer = network.layers[0]
    bias_lo, bias_hi = layer.enclosure
    terms = np.diff(layer.weights.indptr) + 3.0
    if float(terms.max(initial=0.0)) >= 2**22:
        raise InputError("a neuron has too many inputs for a bound of the float32 rounding error")
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
    size = np.asarray(abs(layer.weights).astype(np.float64) @ reach)
    size = size + np.maximum(np.abs(bias_lo), np.abs(bias_hi))
    error = SAFETY * terms * UNIT / (1 - terms * UNIT) * size + 1e-35
    widened = replace(
        layer,
        bias_lo=np.nextafter(bias_lo - error, -np.inf),
        bias_hi=np.nextafter(bias_hi + error, np.inf),
    )
    return replace(network, layers=(widened, *network.layers[1:]))
