"""Short texts of bounds never state more than the bounds."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.engine.answer import lower_text, rounded, upper_text
from bnncert.engine.verdict import TargetResult

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, st.sampled_from([None, 3, 6]))
def test_a_lower_text_is_below_and_an_upper_text_above(value: float, digits: int | None) -> None:
    below, above = Fraction(lower_text(value, digits)), Fraction(upper_text(value, digits))
    assert below <= Fraction(value) <= above
    # Four digits or more: the texts are near the bound.
    assert above - below <= abs(Fraction(value)) / 100


@given(st.fractions(max_denominator=10**6))
def test_fractions_are_not_converted_to_floats_first(value: Fraction) -> None:
    assert Fraction(lower_text(value)) <= value <= Fraction(upper_text(value))


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (12.0, "12", "12"),
        (1.99999, "1.999", "2"),
        (-1.99999, "-2", "-1.999"),
        (0.1, "0.1", "0.1001"),
        (9999.95, "9999", "1e+04"),
        (123456.7, "123456", "123457"),
        (math.inf, "-", "-"),
        (-math.inf, "-", "-"),
        (math.nan, "-", "-"),
    ],
)
def test_texts(value: float, lower: str, upper: str) -> None:
    assert (lower_text(value), upper_text(value)) == (lower, upper)


@given(FINITE)
def test_texts_look_like_those_of_floats(value: float) -> None:
    nearest = f"{float(rounded(value, 6, ROUND_FLOOR)):.6g}"
    if 1e-300 < abs(value) < 1e300:
        assert lower_text(value, 6) == nearest


def test_the_text_of_a_target_rounds_outwards() -> None:
    found = TargetResult("class 1", "unknown", 1.23456, 2.34561)
    assert "bounds 1.234 and 2.346" in repr(found)
    found = TargetResult("class 1", "unknown")
    assert "bounds -inf and inf" in repr(found)
