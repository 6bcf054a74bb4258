"""Polynomials of degree two with rational coefficients, as VNN-LIB 2.0 allows them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from bnncert.problem.vnnlib import linear_form
from bnncert.problem.vnnlib.linear_form import ZERO, Linear


class Quadratic(NamedTuple):
    """A polynomial of degree at most 2.

    `squares` maps pairs of keys of :class:`Linear`, the smaller one first, to coefficients.
    """

    linear: Linear
    squares: dict[tuple[int, int], Fraction]

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs."""
        return not self.linear.coefficients and not self.squares


def add(terms: Sequence[Quadratic]) -> Quadratic:
    """Return the sum."""
    linear = linear_form.add([term.linear for term in terms])
    largest = max(range(len(terms)), key=lambda k: len(terms[k].squares))
    total = dict(terms[largest].squares)
    for k, term in enumerate(terms):
        if k != largest:
            for key, coefficient in term.squares.items():
                total[key] = total.get(key, ZERO) + coefficient
                if not total[key]:
                    del total[key]
    return Quadratic(linear, total)


def scale(term: Quadratic, factor: Fraction) -> Quadratic:
    """Return the polynomial times a number."""
    squares = {key: value * factor for key, value in term.squares.items()} if factor else {}
    return Quadratic(linear_form.scale(term.linear, factor), squares)


def negate(term: Quadratic) -> Quadratic:
    """Return the polynomial times -1."""
    return Quadratic(linear_form.negate(term.linear), {key: -v for key, v in term.squares.items()})


def product(left: Linear, right: Linear) -> Quadratic:
    """Return the product of two affine forms."""
    squares: dict[tuple[int, int], Fraction] = {}
    for i, a in left.coefficients.items():
        for j, b in right.coefficients.items():
            key = (i, j) if i <= j else (j, i)
            squares[key] = squares.get(key, ZERO) + a * b
    linear = linear_form.add(
        [
            linear_form.scale(Linear(left.coefficients, ZERO), right.constant),
            linear_form.scale(Linear(right.coefficients, ZERO), left.constant),
            Linear({}, left.constant * right.constant),
        ]
    )
    return Quadratic(linear, {key: value for key, value in squares.items() if value})
