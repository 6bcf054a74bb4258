"""A matrix is only called positive definite if it is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bnncert.kernel.leaves import is_definite


def truly_definite(matrix: np.ndarray) -> bool:
    """Decide by elimination in rationals: all pivots are positive."""
    rows = [[Fraction(int(v)) for v in row] for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, len(rows)):
                rows[i][j] -= factor * rows[k][j]
    return True


@pytest.mark.parametrize("scale", [1, 1000, 2**26])
@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_never_wrong(scale: int, shift: int) -> None:
    rng = np.random.default_rng(scale + shift + 9)
    found = 0
    for _ in range(25):
        n, rank = int(rng.integers(1, 8)), int(rng.integers(1, 9))
        factor = rng.integers(-scale, scale + 1, (n, rank)) // 4
        # Singular or definite, and then a little more or less on the diagonal.
        matrix = factor @ factor.T + shift * np.eye(n, dtype=np.int64)
        if rng.integers(2):
            k = int(rng.integers(n))
            matrix[k, k] += int(rng.integers(-2, 3))
        if is_definite(matrix):
            found += 1
            assert truly_definite(matrix)
    assert found > 0 or shift <= 0 or scale > 2**20


@pytest.mark.parametrize("n", [1, 2, 10, 60])
def test_a_comfortable_margin_is_enough(n: int) -> None:
    rng = np.random.default_rng(n)
    factor = rng.integers(-(2**28), 2**28, (n, n))
    matrix = (factor @ factor.T) // (4 * n) + (2**20) * np.eye(n, dtype=np.int64)
    matrix = (matrix + matrix.T) // 2
    assert is_definite(matrix)


def test_singular_or_not_symmetric_matrices_are_not_definite() -> None:
    assert not is_definite(np.zeros((3, 3), dtype=np.int64))
    assert not is_definite(np.ones((2, 2), dtype=np.int64))
    assert not is_definite(np.array([[1, 2], [2, 1]]))
    assert not is_definite(np.array([[-(2**62)]]))
    # Beyond 2^53 floats round: this is singular but for one unit in 2^60.
    large = np.array([[2**60, 2**60], [2**60, 2**60 + 1]])
    assert not is_definite(large)
    # Only the lower triangle goes into a factorisation; the upper one is looked at, too.
    assert not is_definite(np.array([[2, 2**40], [0, 2]]))
