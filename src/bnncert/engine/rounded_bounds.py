"""Bounds as short texts: a lower bound is rounded down and an upper bound up.

A text rounded to nearest could state more than is proved.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

#: Significant digits of a bound, and of one whose absolute value is at least `LARGE`.
DIGITS, DIGITS_OF_LARGE, LARGE = 4, 6, 10_000


def lower_text(value: float | Fraction, digits: int | None = None) -> str:
    """Return a lower bound rounded down, or a dash if it is not finite."""
    return _text(value, digits, ROUND_FLOOR)


def upper_text(value: float | Fraction, digits: int | None = None) -> str:
    """Return an upper bound rounded up, or a dash if it is not finite."""
    return _text(value, digits, ROUND_CEILING)


def rounded(value: float | Fraction, digits: int, rounding: str) -> Decimal:
    """Return a finite number with this many significant digits, rounded as `decimal` names it."""
    exact = Fraction(value)
    context = Context(prec=digits, rounding=rounding)
    return context.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _text(value: float | Fraction, digits: int | None, rounding: str) -> str:
    if not math.isfinite(value):
        return "-"
    if digits is None:
        digits = DIGITS if -LARGE < value < LARGE else DIGITS_OF_LARGE
    # As the format `g` of floats does, which would round again.
    short = rounded(value, digits, rounding).normalize()
    exponent = short.adjusted()
    if not short or -5 < exponent < digits:
        return f"{short:f}"
    return f"{short.scaleb(-exponent):f}e{exponent:+03d}"
