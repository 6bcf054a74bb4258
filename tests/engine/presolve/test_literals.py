"""Literals: packing, unpacking, negation and renumbering."""

from __future__ import annotations

import numpy as np
import pytest

from bnncert.engine.presolve.literals import (
    both_literals,
    literal,
    negation,
    renumbered,
    sign_of,
    variable_of,
)

VARIABLES = np.array([0, 0, 3, 7, 2])
SIGNS = np.array([1, -1, -1, 1, 1], dtype=np.int8)


@pytest.mark.parametrize("signs", [SIGNS, SIGNS.astype(float)])
def test_packing_is_undone_by_unpacking(signs: np.ndarray) -> None:
    literals = literal(VARIABLES, signs)
    assert literals.tolist() == [0, 1, 7, 14, 4]
    assert literals.dtype == np.int64
    assert np.array_equal(variable_of(literals), VARIABLES)
    assert np.array_equal(sign_of(literals), SIGNS)
    assert sign_of(literals).dtype == np.int8


def test_one_sign_for_all_variables() -> None:
    assert literal(VARIABLES, -1).tolist() == [1, 1, 7, 15, 5]


def test_negation_keeps_the_variable_and_changes_the_sign() -> None:
    literals = literal(VARIABLES, SIGNS)
    assert np.array_equal(variable_of(negation(literals)), VARIABLES)
    assert np.array_equal(sign_of(negation(literals)), -SIGNS)


def test_renumbering_keeps_the_signs() -> None:
    numbers = np.array([4, 9, 5, 6, 9, 9, 9, 0])
    moved = renumbered(literal(VARIABLES, SIGNS).reshape(5, 1), numbers)
    assert np.array_equal(variable_of(moved)[:, 0], numbers[VARIABLES])
    assert np.array_equal(sign_of(moved)[:, 0], SIGNS)


def test_both_literals_alternate() -> None:
    assert both_literals(np.array([3, 1])).tolist() == [6, 7, 2, 3]
