"""Rational intervals: they enclose, they are tight, and they stay exact where they can."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.model.rationals import Interval, float_above, float_below, square_root
from tests.strategies import few

CASES = few(20)

LARGEST = Fraction(sys.float_info.max)
SMALLEST = Fraction(5e-324)

rationals = st.one_of(
    st.fractions(min_value=-50, max_value=50, max_denominator=40),
    st.floats(-1e6, 1e6).map(Fraction),
)
shares = st.fractions(min_value=0, max_value=1, max_denominator=12)
floats = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    a, b = draw(rationals), draw(rationals)
    return Interval(min(a, b), max(a, b))


def inside(interval: Interval, share: Fraction) -> Fraction:
    return interval.lo + share * (interval.hi - interval.lo)


# --- arithmetic ------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul])
@CASES
@given(a=intervals(), b=intervals(), s=shares, t=shares)
def test_operation_encloses_every_pair_and_is_attained(
    operation: Callable[..., object], a: Interval, b: Interval, s: Fraction, t: Fraction
) -> None:
    result = operation(a, b)
    assert isinstance(result, Interval)
    value = operation(inside(a, s), inside(b, t))
    assert isinstance(value, Fraction)
    assert result.lo <= value <= result.hi
    corners = [operation(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    assert result.lo in corners
    assert result.hi in corners


@CASES
@given(a=intervals(), b=intervals(), s=shares, t=shares)
def test_quotient_encloses_or_refuses_zero(
    a: Interval, b: Interval, s: Fraction, t: Fraction
) -> None:
    if b.lo <= 0 <= b.hi:
        with pytest.raises(ZeroDivisionError):
            a / b
        return
    result = a / b
    assert result.lo <= inside(a, s) / inside(b, t) <= result.hi
    corners = [x / y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    assert (result.lo, result.hi) == (min(corners), max(corners))


@CASES
@given(a=intervals(), s=shares)
def test_negation_mirrors(a: Interval, s: Fraction) -> None:
    assert (-a).lo <= -inside(a, s) <= (-a).hi
    mirrored = -a
    assert -mirrored == a


@CASES
@given(x=floats, y=rationals)
def test_exact_numbers_stay_exact(x: float, y: Fraction) -> None:
    a, b = Interval.exactly(x), Interval.exactly(y)
    assert a.is_exact
    z = Fraction(x)
    for result, value in ((a + b, z + y), (a - b, z - y), (a * b, z * y)):
        assert result.is_exact
        assert result.lo == value
    if y:
        assert a / b == Interval.exactly(z / y)


def test_a_float_counts_as_the_dyadic_rational_it_is() -> None:
    assert Interval.exactly(0.1).lo == Fraction(3602879701896397, 2**55)
    assert Interval.exactly(0.1) != Interval.exactly(Fraction(1, 10))


# --- directed rounding -----------------------------------------------------------------------


@CASES
@given(
    value=st.one_of(
        rationals,
        floats.map(Fraction),
        st.builds(lambda x, d: Fraction(x) + Fraction(1, d), floats, st.integers(1, 10**40)),
        st.builds(Fraction, st.integers(-(10**300), 10**300), st.integers(1, 10**300)),
        st.builds(lambda k, e: Fraction(k, 2**e), st.integers(-9, 9), st.integers(1060, 1090)),
    ).filter(lambda v: abs(v) <= LARGEST)
)
def test_float_bounds_are_directed_and_tight(value: Fraction) -> None:
    below, above = float_below(value), float_above(value)
    assert Fraction(below) <= value <= Fraction(above)
    up, down = math.nextafter(below, math.inf), math.nextafter(above, -math.inf)
    assert math.isinf(up) or Fraction(up) > value
    assert math.isinf(down) or Fraction(down) < value


@CASES
@given(x=floats)
def test_a_float_is_its_own_bound(x: float) -> None:
    assert float_below(Fraction(x)) == float_above(Fraction(x)) == x


def test_values_below_the_smallest_float_round_to_zero_or_to_it() -> None:
    tiny = SMALLEST / 1000
    assert (float_below(tiny), float_above(tiny)) == (0.0, 5e-324)
    assert (float_below(-tiny), float_above(-tiny)) == (-5e-324, 0.0)


def test_values_beyond_the_largest_float_round_to_it_or_to_infinity() -> None:
    huge = LARGEST * 10
    assert (float_below(huge), float_above(huge)) == (sys.float_info.max, math.inf)
    assert (float_below(-huge), float_above(-huge)) == (-math.inf, -sys.float_info.max)


@CASES
@given(a=intervals())
def test_floats_are_the_tightest_enclosing_pair(a: Interval) -> None:
    lo, hi = a.floats()
    assert Fraction(lo) <= a.lo
    assert a.hi <= Fraction(hi)
    assert Fraction(math.nextafter(lo, math.inf)) > a.lo
    assert Fraction(math.nextafter(hi, -math.inf)) < a.hi


# --- square roots ----------------------------------------------------------------------------


@CASES
@given(
    value=st.one_of(
        st.fractions(min_value=0, max_value=1000, max_denominator=10**6),
        st.floats(0, allow_infinity=False).map(Fraction),
        st.builds(lambda k, e: Fraction(k) / 2**e, st.integers(1, 9), st.integers(1000, 3000)),
    ),
    bits=st.sampled_from([8, 53, 80, 320]),
)
def test_square_root_encloses_with_the_bits_asked_for(value: Fraction, bits: int) -> None:
    root = square_root(value, bits)
    assert 0 <= root.lo <= root.hi
    assert root.lo**2 <= value <= root.hi**2
    assert root.hi - root.lo <= root.hi / 2**bits


@CASES
@given(
    root=st.one_of(
        st.fractions(min_value=0, max_denominator=10**9), st.floats(0, 1e300).map(Fraction)
    ),
    bits=st.integers(1, 100),
)
def test_square_root_of_a_square_is_exact(root: Fraction, bits: int) -> None:
    assert square_root(root * root, bits) == Interval.exactly(root)


def test_square_root_of_a_non_square_never_claims_to_be_exact() -> None:
    for value in (
        Fraction(2),
        Fraction(1, 2),
        Fraction(8, 9),
        Fraction(0.1) ** 2 + Fraction(1e-30),
    ):
        assert not square_root(value, 200).is_exact


def test_square_root_of_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="nonnegative"):
        square_root(Fraction(-1), 53)
