"""Literals as integers: 2a stands for x_a = +1 and 2a + 1 for x_a = -1.

Arrays over literals therefore hold the two signs of each variable next to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray, SignArray


def literal(variables: npt.NDArray[np.integer], signs: npt.ArrayLike) -> IntArray:
    """Return the literals x_a = s; `signs` may be numbers of any type, or one for all."""
    return np.asarray(2 * variables + (np.asarray(signs) < 0), dtype=np.int64)


def variable_of(literals: IntArray) -> IntArray:
    """Return the variables of literals."""
    return literals >> 1


def sign_of(literals: IntArray) -> SignArray:
    """Return the signs, +1 or -1, that literals give to their variables."""
    return (1 - 2 * (literals & 1)).astype(np.int8)


def negation(literals: IntArray) -> IntArray:
    """Return the opposite literals."""
    return literals ^ 1


def renumbered(literals: IntArray, numbers: IntArray) -> IntArray:
    """Return the same signs of other variables: x_a becomes x_b with b = numbers[a]."""
    return np.asarray(2 * numbers[literals >> 1] + (literals & 1), dtype=np.int64)


def both_literals(variables: IntArray) -> IntArray:
    """Return x_a = +1 and x_a = -1 for every variable, one pair after the other."""
    return np.stack([2 * variables, 2 * variables + 1], axis=-1).ravel()
