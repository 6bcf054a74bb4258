r"""Verification problems: a network, a region, and what must hold there.

A *target* is one way in which the property can fail: a conjunction f_1 <= 0, .., f_m <= 0 of
affine functions of the last layer's signs (for a classifier: one function, the margin over a
rival class).  The property holds iff no target can be reached inside the region, so a problem is
settled target by target, with F = max_i f_i > 0 to be shown for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.description.rationals import float_above, float_below, square_root
from bnncert.errors import InputError
from bnncert.formats.vnnlib.query import Disjunct, EuclideanBall, LinearConstraint, Specification
from bnncert.network import Network
from bnncert.network.signed_sums import SignedSums
from bnncert.regions import Ball, Box, EmptyRegionError, Polytope, Region

Targets: TypeAlias = Literal["all", "runner-up"] | int
Ties: TypeAlias = Literal["violation", "robust"]


@dataclass(frozen=True, eq=False)
class Objective:
    """f(x) = <coefficients, x> + constant over the last layer, known to within `error`.

    The property wants f > 0, or f >= 0 if `tie_is_fine`.  Part of the error may be that the
    constant is no float: `remainder` is what rounding left out of it, and `doubt` (None: the same
    as `error`) what stays unknown even in rationals.  `scores` and `offset` say what f is in terms
    of the network's scores, where that is how it was made.
    """

    coefficients: FloatArray
    constant: float
    error: float = 0.0
    tie_is_fine: bool = False
    name: str = "f"
    remainder: Fraction = Fraction(0)
    doubt: float | None = None
    scores: tuple[tuple[int, Fraction], ...] | None = None
    offset: Fraction = Fraction(0)

    @property
    def exact_error(self) -> Fraction:
        """How far f may be from :meth:`exactly`."""
        return Fraction(self.error if self.doubt is None else self.doubt)

    def exactly(self, signs: npt.NDArray[Any]) -> Fraction:
        """Return f at a sign vector, in rationals (without the error)."""
        return self._sums.exactly(signs)[0] + Fraction(self.constant) + self.remainder

    @cached_property
    def _sums(self) -> SignedSums:
        return SignedSums(self.coefficients[None, :])

    def is_violated(self, signs: npt.NDArray[Any]) -> bool | None:
        """Decide f <= 0 (f < 0 if ties are fine) exactly; None if the error forbids it."""
        value, error = self.exactly(signs), self.exact_error
        low, high = value - error, value + error
        if self.tie_is_fine:
            return True if high < 0 else False if low >= 0 else None
        return True if high <= 0 else False if low > 0 else None

    def is_proved_by(self, lower: float) -> bool:
        """Whether a lower bound of f shows that the objective cannot fail."""
        return lower >= 0 if self.tie_is_fine else lower > 0

    @cached_property
    def lattice(self) -> tuple[Fraction, Fraction] | None:
        """(offset, step) with f in {offset + k step} up to its error, or None if too fine.

        With q the greatest common divisor of the coefficients, sum d_i x_i changes by multiples
        of 2q and can be sum d_i.
        """
        values = [Fraction(c) for c in np.unique(np.abs(self.coefficients)).tolist() if c]
        if not values:
            return Fraction(self.constant) + self.remainder, Fraction(0)
        denominator = math.lcm(*(v.denominator for v in values))
        if denominator > 2**40:
            return None
        divisor = math.gcd(*(int(v * denominator) for v in values))
        step = 2 * Fraction(divisor, denominator)
        if float(np.abs(self.coefficients).sum()) > step * 2**40:
            return None
        return self.exactly(np.ones(self.coefficients.size, dtype=np.int8)), step

    def round_up(self, lower: float) -> float:
        """Return the smallest value f can take that is not below `lower` (rounded down)."""
        if self.lattice is None or not math.isfinite(lower):
            return lower
        offset, step = self.lattice
        if step == 0:
            return max(lower, float_below(offset - self.exact_error))
        # f = lattice + e with |e| <= exact error, so the lattice part is >= lower - error.  The
        # whole error is taken off: it also covers what float arithmetic made of `lower`.
        k = math.ceil((Fraction(lower) - Fraction(self.error) - offset) / step)
        return max(lower, float_below(offset + k * step - self.exact_error))

    @cached_property
    def enough(self) -> float:
        """A value v <= 0 such that every lower bound above v, rounded up, proves the objective.

        It is a twentieth of a step above the last value of the lattice that proves nothing.
        """
        if self.lattice is None or not self.lattice[1]:
            return 0.0
        offset, step = self.lattice
        last = offset + math.floor((self.exact_error - offset) / step) * step
        if last == self.exact_error and self.tie_is_fine:
            last -= step
        found = min(0.0, float_above(last + Fraction(self.error) + step / 20))
        more = math.nextafter(found, math.inf)
        return found if self.is_proved_by(self.round_up(more)) else 0.0

    @cached_property
    def least_good_value(self) -> float:
        """A lower bound of f, at least 0, that holds wherever the objective is not violated.

        It is the smallest value of the lattice above 0, or from 0 on where a tie is fine.
        """
        found = self.round_up(0.0 if self.tie_is_fine else math.nextafter(0.0, 1.0))
        # Without a lattice the smallest positive float is no better than 0, and looks like noise.
        return found if found > 1e-300 else 0.0

    def largest_violation(self) -> float:
        """Return a float v such that the violating values of f are exactly those <= v."""
        if self.lattice is None or self.exact_error:
            return float_above(Fraction(self.error))
        offset, step = self.lattice
        if step == 0:
            # f is constant: either every value violates or none does.
            violated = offset < 0 or (offset == 0 and not self.tie_is_fine)
            return float_above(offset) if violated else float_below(offset - 1)
        k = math.floor(-offset / step)
        value = offset + k * step
        if value == 0 and self.tie_is_fine:
            value -= step
        # Half a step above the last violating value: no rounding can reach either neighbour.
        return float(value + step / 4)


@dataclass(frozen=True, eq=False)
class Target:
    """One way to fail: all objectives violated at once.  `rival` is the class it stands for."""

    name: str
    objectives: tuple[Objective, ...]
    rival: int | None = None

    def is_violated(self, signs: npt.NDArray[Any]) -> bool | None:
        """Decide exactly whether all objectives are violated; None if one is undecidable."""
        answers = [objective.is_violated(signs) for objective in self.objectives]
        if any(answer is False for answer in answers):
            return False
        return None if any(answer is None for answer in answers) else True

    def values(self, signs: npt.NDArray[Any]) -> FloatArray:
        """Return F = max_i f_i for rows of sign vectors, in floating point."""
        if not self.objectives:
            return np.full(signs.shape[0], -np.inf)
        parts = [signs @ o.coefficients + o.constant for o in self.objectives]
        return np.asarray(np.max(np.stack(parts), axis=0), dtype=np.float64)

    def exactly(self, signs: npt.NDArray[Any]) -> Fraction:
        """Return F at one sign vector, in rationals, and above by the objectives' error."""
        return max(
            (o.exactly(signs) + o.exact_error for o in self.objectives), default=Fraction(-1)
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Show that no target is reachable by the network on the region."""

    network: Network
    region: Region
    targets: tuple[Target, ...]
    label: int | None = None

    def __post_init__(self) -> None:
        if self.region.size != self.network.inputs:
            raise InputError(
                f"the region has {self.region.size} inputs, the network {self.network.inputs}"
            )


def score_objective(
    network: Network,
    weights: Mapping[int, Fraction],
    constant: Fraction = Fraction(0),
    *,
    tie_is_fine: bool = False,
    name: str = "f",
) -> Objective:
    """Return f = sum_j weights_j * score_j + constant as a function of the last layer.

    The scores are those without the output's common gain, which no comparison can see.
    """
    output = network.output
    if not weights:
        value = float(constant)
        left = constant - Fraction(value)
        nothing = np.zeros(output.weights.shape[1])
        rounding = float_above(abs(left))
        return Objective(nothing, value, rounding, tie_is_fine, name, left, 0.0, (), constant)
    for j in weights:
        if not 0 <= j < network.classes:
            raise InputError(f"score {j} does not exist; the network has {network.classes}")
    if constant and not output.gain_is_one:
        raise InputError("scores with an irrational scale can only be compared with each other")
    coefficients, error = _combination([output.weights[j] for j in weights], list(weights.values()))
    total = sum((c * Fraction(float(output.bias[j])) for j, c in weights.items()), constant)
    rounded = float(total)
    remainder = total - Fraction(rounded)
    groups: dict[int, Fraction] = {}
    for j, c in weights.items():
        groups[int(output.group[j])] = groups.get(int(output.group[j]), Fraction(0)) + c
    for j, c in weights.items():
        error += abs(c) * Fraction(float(output.weight_error[j]))
        # Equal irrational biases cancel exactly in a difference of scores.
        if groups[int(output.group[j])] != 0:
            error += abs(c) * Fraction(float(output.bias_error[j]))
    doubt = float_above(error)
    error += abs(remainder)
    return Objective(
        coefficients,
        rounded,
        float_above(error),
        tie_is_fine,
        name,
        remainder,
        doubt,
        tuple(weights.items()),
        constant,
    )


def _combination(rows: list[FloatArray], factors: list[Fraction]) -> tuple[FloatArray, Fraction]:
    """Return sum_j factors_j * rows_j as floats, and the sum of their rounding errors."""
    total = np.zeros(rows[0].size if rows else 0)
    whole = all(c.denominator == 1 for c in factors)
    size = sum(
        (
            abs(c) * Fraction(float(np.abs(r).max(initial=0)))
            for c, r in zip(factors, rows, strict=True)
        ),
        Fraction(0),
    )
    if whole and size < 2**52 and all(np.all(r == np.rint(r)) for r in rows):
        for c, row in zip(factors, rows, strict=True):
            total += float(c) * row
        return total, Fraction(0)
    error = Fraction(0)
    used = np.flatnonzero(np.any(np.array(rows) != 0, axis=0))
    for i in used.tolist():
        exact = sum(
            (c * Fraction(float(r[i])) for c, r in zip(factors, rows, strict=True)), Fraction(0)
        )
        total[i] = float(exact)
        error += abs(exact - Fraction(float(total[i])))
    return total, error


def robustness(
    network: Network,
    region: Region,
    label: int,
    targets: Targets = "all",
    ties: Ties = "violation",
) -> Problem:
    """Return the problem "every point of the region is classified as `label`".

    Parameters
    ----------
    targets
        "all" rivals, the "runner-up" (the strongest rival at the region's centre, as in the
        paper), or one class.
    ties
        Whether an equal score of a rival counts as a violation.
    """
    if ties not in ("violation", "robust"):
        raise InputError(f"ties is {ties!r}; expected violation or robust")
    if not isinstance(label, int | np.integer) or not 0 <= label < network.classes:
        raise InputError(f"label is {label}; the network has classes 0 to {network.classes - 1}")
    if network.classes < 2:
        raise InputError("the network has a single score; classification needs at least two")
    label = int(label)
    rivals: Sequence[int]
    if targets == "all":
        rivals = [k for k in range(network.classes) if k != label]
    elif targets == "runner-up":
        scores = network.evaluate(region.center)
        scores[label] = -np.inf
        rivals = [int(np.argmax(scores))]
    elif isinstance(targets, int | np.integer) and 0 <= targets < network.classes:
        if int(targets) == label:
            raise InputError(f"target {targets} is the label itself")
        rivals = [int(targets)]
    else:
        raise InputError(
            f"target is {targets!r}; expected all, runner-up or a class from 0 to "
            f"{network.classes - 1}"
        )
    made = []
    for k in rivals:
        objective = score_objective(
            network,
            {label: Fraction(1), k: Fraction(-1)},
            tie_is_fine=ties == "robust",
            name=f"score {label} - score {k}",
        )
        made.append(Target(f"class {k}", (objective,), k))
    return Problem(network, region, tuple(made), label)


def output_polytope(
    network: Network, region: Region, matrix: npt.ArrayLike, right: npt.ArrayLike
) -> Problem:
    """Return the problem "the scores y satisfy A y <= b on the whole region", row by row."""
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
        # b_i - A_i y >= 0 is wanted, so meeting the limit is no violation.
        objective = score_objective(
            network, weights, Fraction(limit), tie_is_fine=True, name=f"row {i}"
        )
        targets.append(Target(f"row {i}", (objective,)))
    return Problem(network, region, tuple(targets))


def from_vnnlib(network: Network, specification: Specification) -> tuple[Problem, ...]:
    """Return one problem for each input region of a VNN-LIB query (which states the violation)."""
    where = specification.path
    if specification.input_count != network.inputs:
        raise InputError(
            f"{where}: declares {specification.input_count} inputs, the network has "
            f"{network.inputs}"
        )
    if network.output_transform == "argmax":
        raise InputError(f"{where}: the network ends in ArgMax, so its scores cannot be queried")
    if specification.output_count != network.classes:
        raise InputError(
            f"{where}: declares {specification.output_count} outputs, the network has "
            f"{network.classes}"
        )
    groups: dict[tuple[Any, ...], list[tuple[int, Disjunct]]] = {}
    for number, disjunct in enumerate(specification.disjuncts):
        # The reader shares equal boxes between disjuncts: identity is enough, and fast.
        box = (id(disjunct.lower), id(disjunct.upper), id(disjunct.ball))
        key = (*box, disjunct.input_constraints)
        groups.setdefault(key, []).append((number, disjunct))
    problems = []
    for members in groups.values():
        try:
            region = _vnnlib_region(members[0][1])
        except EmptyRegionError:
            continue
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        targets = tuple(_vnnlib_target(network, d, n, where) for n, d in members)
        problems.append(Problem(network, region, targets))
    return tuple(problems)


def _vnnlib_region(disjunct: Disjunct) -> Region:
    # Decimals such as 0.1 are not floats: outwards, so that a proof covers the query.
    lo = np.array([float_below(v) for v in disjunct.lower])
    hi = np.array([float_above(v) for v in disjunct.upper])
    if disjunct.ball is not None:
        return _vnnlib_ball(disjunct.ball, disjunct, Box(lo, hi))
    if not disjunct.input_constraints:
        return Box(lo, hi)
    matrix = np.zeros((len(disjunct.input_constraints), lo.size))
    right = np.zeros(len(disjunct.input_constraints))
    reach = [
        max(abs(Fraction(a)), abs(Fraction(b)))
        for a, b in zip(lo.tolist(), hi.tolist(), strict=True)
    ]
    for i, constraint in enumerate(disjunct.input_constraints):
        loss = Fraction(0)
        for j, c in constraint.inputs:
            matrix[i, j] = float(c)
            loss += abs(c - Fraction(matrix[i, j])) * reach[j]
        right[i] = float_above(-constraint.constant + loss)
    return Polytope(matrix, right, lo, hi)


def _vnnlib_ball(ball: EuclideanBall, disjunct: Disjunct, box: Box) -> Ball:
    """Return a ball in a box of floats that contains the exact ball in its exact box."""
    # A region wants its centre in the box. With p the box's point nearest to the centre c,
    # |x - c|^2 >= |x - p|^2 + |p - c|^2 on the box: the ball around p with what is left of the
    # squared radius contains all that counts, and it is the same ball where c is in the box.
    nearest = [
        min(max(c, low), high)
        for c, low, high in zip(ball.centre, disjunct.lower, disjunct.upper, strict=True)
    ]
    gap = sum(((p - c) ** 2 for p, c in zip(nearest, ball.centre, strict=True)), Fraction(0))
    if gap > ball.squared_radius:
        raise EmptyRegionError("the region is empty: the ball does not meet the box")
    middle = [float(p) for p in nearest]
    # Decimals such as 0.1 are not floats: the radius grows by what rounding moves the centre.
    moved = sum(((p - Fraction(m)) ** 2 for p, m in zip(nearest, middle, strict=True)), Fraction(0))
    radius = square_root(ball.squared_radius - gap, 64).hi + square_root(moved, 64).hi
    return Ball("l2", middle, float_above(radius), box.lo, box.hi)


def _vnnlib_target(network: Network, disjunct: Disjunct, number: int, where: str) -> Target:
    objectives = []
    for constraint in disjunct.output_constraints:
        weights = {j: c for j, c in constraint.outputs if c}
        if network.output_transform == "softmax":
            _check_monotone(constraint, where)
        try:
            objectives.append(
                score_objective(
                    network,
                    weights,
                    constraint.constant,
                    tie_is_fine=constraint.strict,
                    name=f"line {constraint.line}",
                )
            )
        except InputError as error:
            raise InputError(f"{where}:{constraint.line}: {error}") from error
    rival = None
    if len(disjunct.output_constraints) == 1:
        raised = [j for j, c in disjunct.output_constraints[0].outputs if c < 0]
        rival = raised[0] if len(raised) == 1 else None
    return Target(f"disjunct {number}", tuple(objectives), rival)


def _check_monotone(constraint: LinearConstraint, where: str) -> None:
    """Softmax keeps the order of scores and nothing else."""
    coefficients = [c for _, c in constraint.outputs if c]
    if constraint.constant or sum(coefficients) or len(coefficients) > 2:
        raise InputError(
            f"{where}:{constraint.line}: the network ends in Softmax, so a query can only "
            "compare two outputs (Y_i >= Y_j)"
        )
