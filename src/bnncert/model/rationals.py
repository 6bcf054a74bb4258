"""Interval arithmetic with rational end points, including square roots.

All numbers of a model file are dyadic rationals; the only irrational operation in a binary network
is the square root of batch normalisation.  An interval [lo, hi] is a single point as long as no
irrational square root is taken; the width of the enclosure of a root is set by `bits`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Interval:
    """A closed interval [lo, hi] of rationals; lo == hi is an exact number."""

    lo: Fraction
    hi: Fraction

    @staticmethod
    def exactly(value: float | int | Fraction) -> Interval:
        """Make the interval of one number; a float is taken at its exact dyadic value."""
        number = Fraction(value)
        return Interval(number, number)

    @property
    def is_exact(self) -> bool:
        """Whether the interval is a single number."""
        return self.lo == self.hi

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lo + other.lo, self.hi + other.hi)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.lo - other.hi, self.hi - other.lo)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __mul__(self, other: Interval) -> Interval:
        if self.is_exact and other.is_exact:
            return Interval.exactly(self.lo * other.lo)
        products = (self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi)
        return Interval(min(products), max(products))

    def __truediv__(self, other: Interval) -> Interval:
        if other.lo <= 0 <= other.hi:
            raise ZeroDivisionError("division by an interval that contains zero")
        return self * Interval(1 / other.hi, 1 / other.lo)

    def floats(self) -> tuple[float, float]:
        """Enclose the interval in the tightest pair of floats."""
        return float_below(self.lo), float_above(self.hi)


def float_below(value: Fraction) -> float:
    """Round down to a float."""
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    p, q = nearest.as_integer_ratio()
    if p * value.denominator <= value.numerator * q:
        return nearest
    return math.nextafter(nearest, -math.inf)


def float_above(value: Fraction) -> float:
    """Round up to a float."""
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return -sys.float_info.max if value < 0 else math.inf
    p, q = nearest.as_integer_ratio()
    enough = p * value.denominator >= value.numerator * q
    # Adding zero turns -0.0 into 0.0.
    return (nearest if enough else math.nextafter(nearest, math.inf)) + 0.0


def square_root(value: Fraction, bits: int) -> Interval:
    """Enclose sqrt(value) with about `bits` correct bits; exact for the square of a rational."""
    p, q = value.numerator, value.denominator
    root_p, root_q = math.isqrt(p), math.isqrt(q)
    if root_p * root_p == p and root_q * root_q == q:
        return Interval.exactly(Fraction(root_p, root_q))
    # sqrt(p/q) = sqrt(p q 4^k) / (q 2^k), and isqrt is exact integer arithmetic.
    shift = bits + q.bit_length()
    low = math.isqrt((p * q) << (2 * shift))
    scale = q << shift
    return Interval(Fraction(low, scale), Fraction(low + 1, scale))
