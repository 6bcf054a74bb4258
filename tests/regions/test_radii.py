"""Radii as users write them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bnncert.regions.radii import read_radius, read_step


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("0.1", 0.1, "input"),
        ("8/255", 8 / 255, "input"),
        (" 1/3 ", 1 / 3, "input"),
        ("1/2px", 0.5, "px"),
        ("1/4 delta", 0.25, "delta"),
        ("0/7", 0.0, "input"),
    ],
)
def test_numbers_and_fractions(text: str, number: float, unit: str) -> None:
    radius = read_radius(text)
    assert radius is not None
    assert (radius.number, radius.unit) == (number, unit)


def test_a_fraction_becomes_the_nearest_float() -> None:
    radius = read_radius("12345678901234567891/98765432109876543210")
    assert radius is not None
    assert radius.number == float(Fraction(12345678901234567891, 98765432109876543210))


@pytest.mark.parametrize("text", ["8/", "/255", "8/0", "1/2/3", "1.5/2", "-8/255", "8/-0", "a/b"])
def test_what_is_not_a_fraction(text: str) -> None:
    assert read_radius(text) is None
    assert read_step(text) is None
