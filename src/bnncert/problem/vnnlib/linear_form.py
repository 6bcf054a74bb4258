"""Affine forms ``sum_i a_i X_i + sum_j b_j Y_j + c`` with rational coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

ZERO: Final = Fraction(0)
ONE: Final = Fraction(1)


class Linear(NamedTuple):
    """An affine form; input ``X_i`` has the key ``i``, output ``Y_j`` the key ``-1 - j``.

    The dictionary is never changed after construction.
    """

    coefficients: dict[int, Fraction]
    constant: Fraction


def variable(letter: str, index: int) -> Linear:
    """Return the form that is the variable ``X_index`` or ``Y_index``."""
    return Linear({index if letter == "X" else -1 - index: ONE}, ZERO)


def add(terms: Sequence[Linear]) -> Linear:
    """Return the sum."""
    largest = max(range(len(terms)), key=lambda k: len(terms[k].coefficients))
    total = dict(terms[largest].coefficients)
    constant = terms[largest].constant
    for k, term in enumerate(terms):
        if k == largest:
            continue
        if term.constant:
            constant += term.constant
        for key, coefficient in term.coefficients.items():
            value = total[key] + coefficient if key in total else coefficient
            if value:
                total[key] = value
            else:
                del total[key]
    return Linear(total, constant)


def scale(term: Linear, factor: Fraction) -> Linear:
    """Return the form times a number."""
    if not factor:
        return Linear({}, ZERO)
    return Linear(
        {key: coefficient * factor for key, coefficient in term.coefficients.items()},
        term.constant * factor,
    )


def negate(term: Linear) -> Linear:
    """Return the form times -1."""
    return Linear({key: -value for key, value in term.coefficients.items()}, -term.constant)


def subtract(left: Linear, right: Linear) -> Linear:
    """Return ``left - right``."""
    # Nearly all comparisons of a large file are bounds X_i <= c or c <= X_i: the general sum is
    # not needed for them.
    if not right.coefficients and not left.constant:
        return Linear(left.coefficients, -right.constant)
    if not left.coefficients and not right.constant:
        return Linear(negate(right).coefficients, left.constant)
    return add([left, negate(right)])
