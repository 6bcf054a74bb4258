"""Affine functions f of the signs of the last layer, and bounds that prove f > 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import SignedSums
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below


@dataclass(frozen=True, eq=False)
class Objective:
    """f(x) = <coefficients, x> + constant over the last layer, known to within `error`.

    The property requires f > 0, or f >= 0 if `tie_is_fine`.

    Attributes
    ----------
    coefficients, constant
        The function, with one coefficient for each sign of the last layer.
    error
        A bound of the difference between f and its value in floats.
    tie_is_fine
        Whether f = 0 satisfies the property.
    name
        The name in messages.
    remainder
        The part of the constant that rounding it to a float removed.
    doubt
        The part of the error that remains in rational arithmetic (None: all of it).
    scores, offset
        f as a sum of scores with these weights and a constant, if it was made from scores.
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

    def __repr__(self) -> str:
        relation = "<" if self.tie_is_fine else "<="
        used = int(np.count_nonzero(self.coefficients))
        return f"Objective({self.name} {relation} 0, {used} of {self.coefficients.size} signs)"

    @property
    def exact_error(self) -> Fraction:
        """A bound of the difference between f and :meth:`exactly`."""
        return Fraction(self.error if self.doubt is None else self.doubt)

    def exactly(self, signs: npt.NDArray[Any]) -> Fraction:
        """Evaluate f at a sign vector, in rationals (without the error)."""
        return self._sums.exactly(signs)[0] + Fraction(self.constant) + self.remainder

    @cached_property
    def _sums(self) -> SignedSums:
        return SignedSums(self.coefficients[None, :])

    def is_clearly_met(self, signs: npt.NDArray[Any]) -> bool:
        """Whether f > 0 at a sign vector by more than all errors of an evaluation in floats."""
        return float(self.coefficients @ signs) + self.constant > self._float_error

    @cached_property
    def _float_error(self) -> float:
        """A bound of the difference between f and its evaluation in floats at any sign vector."""
        reach = self.size + abs(self.constant)
        return self.error + (self.coefficients.size + 8) * 2.0**-52 * reach

    @cached_property
    def size(self) -> float:
        """The sum of the magnitudes of the coefficients."""
        return float(np.abs(self.coefficients).sum())

    @cached_property
    def is_whole(self) -> bool:
        """Whether coefficients and constant are integers."""
        whole = self.constant == np.rint(self.constant)
        return bool(whole and np.all(self.coefficients == np.rint(self.coefficients)))

    def is_violated(self, signs: npt.NDArray[Any]) -> bool | None:
        """Decide f <= 0 (f < 0 if `tie_is_fine`) exactly; None if the error is too large."""
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
        """(offset, step) with f in {offset + k step} up to its error; None for a tiny step.

        If q is the greatest common divisor of the coefficients, sum d_i x_i changes by multiples
        of 2q, and one of its values is sum d_i.
        """
        values = [Fraction(c) for c in set(np.abs(self.coefficients).tolist()) if c]
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
        """Round a lower bound up to the smallest value that f can take (itself rounded down)."""
        if self.lattice is None or not math.isfinite(lower):
            return lower
        offset, step = self.lattice
        if step == 0:
            return max(lower, float_below(offset - self.exact_error))
        # f = lattice + e with |e| <= exact error, so the lattice part is >= lower - error.  The
        # whole error is subtracted, because it also covers the rounding of `lower`.
        above, least, unit = self._lattice_numbers
        p, q = lower.as_integer_ratio()
        # This is ceil((lower - error - offset) / step) in integers, and the value of that place.
        k = -((above * q - p * unit) // (q * step.numerator * (unit // step.denominator)))
        return max(lower, float_below(least + k * step))

    @cached_property
    def _lattice_numbers(self) -> tuple[int, Fraction, int]:
        """(error + offset) in units, the offset without the exact error, and the units in 1."""
        assert self.lattice is not None
        offset, step = self.lattice
        above = Fraction(self.error) + offset
        unit = math.lcm(above.denominator, step.denominator)
        return int(above * unit), offset - self.exact_error, unit

    @cached_property
    def enough(self) -> float:
        """A value v <= 0 such that every lower bound above v, rounded up, proves the objective.

        It is a twentieth of a step above the largest value of the lattice that is not a proof.
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

        It is the smallest value of the lattice that is positive, or >= 0 if `tie_is_fine`.
        """
        found = self.round_up(0.0 if self.tie_is_fine else math.nextafter(0.0, 1.0))
        # Without a lattice it is the smallest positive float, which is not better than 0.
        return found if found > 1e-300 else 0.0

    def largest_violation(self) -> float:
        """Find a float v such that the violating values of f are exactly those <= v."""
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
        # A quarter of a step above the last violating value, far from both neighbours.
        return float(value + step / 4)


def score_objective(
    network: Network,
    weights: Mapping[int, Fraction],
    constant: Fraction = Fraction(0),
    *,
    tie_is_fine: bool = False,
    name: str = "f",
) -> Objective:
    """Write f = sum_j weights_j * score_j + constant as a function of the last layer.

    The scores are those without the common gain of the output, which does not affect comparisons.

    Parameters
    ----------
    network
        The network whose scores they are.
    weights
        The weights by the numbers of the scores.
    constant
        The constant term.
    tie_is_fine
        Whether f = 0 satisfies the property; else it requires f > 0.
    name
        The name in messages.

    Returns
    -------
    Objective
        The function.

    Raises
    ------
    InputError
        If a score does not exist, or a constant cannot be compared with the scores because their
        scale is irrational.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import bnncert
    >>> from bnncert.problem import score_objective
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> score_objective(net, {0: Fraction(1), 1: Fraction(-1)}, name="margin")
    Objective(margin <= 0, 2 of 2 signs)
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
    """Compute sum_j factors_j * rows_j as floats, and the sum of their rounding errors."""
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
