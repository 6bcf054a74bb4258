"""Factors of matrices with a diagonal part, against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from bnncert.engine.solvers.definite import Arrow, ArrowFactor


def arrow(size: int, tips: int, seed: int, definite: bool = True) -> np.ndarray:
    """Return a symmetric matrix that is diagonal on its last entries."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(size, size))
    matrix = matrix + matrix.T
    last = slice(size - tips, size)
    matrix[last, last] = np.diag(rng.normal(size=tips))
    if definite:
        matrix += np.diag(np.abs(matrix).sum(axis=1))
    return matrix


@pytest.mark.parametrize("tips", [0, 3, 11])
def test_products_and_inverses(tips: int) -> None:
    matrix = arrow(12, tips, tips)
    factor, left = ArrowFactor(matrix, tips), np.random.default_rng(1).normal(size=(5, 12))
    inverse = np.linalg.inv(matrix)
    assert np.allclose(Arrow(matrix, tips).after(left), left @ matrix)
    assert np.allclose(factor.inverse(), inverse)
    assert np.allclose(factor.divide(left), left @ inverse)
    white = factor.whiten(left.T)
    assert np.allclose(white.T @ white, left @ inverse @ left.T)
    column = left[0]
    assert np.allclose(factor.unwhiten(factor.whiten(column)), inverse @ column)


@pytest.mark.parametrize(("size", "tips"), [(12, 0), (12, 7), (400, 0), (400, 350)])
def test_the_longest_step(size: int, tips: int) -> None:
    matrix, step = arrow(size, tips, 5), arrow(size, tips, 6, definite=False)
    exact = -1.0 / scipy.linalg.eigvalsh(step, matrix)[0]
    found = ArrowFactor(matrix, tips).longest(step)
    # Lanczos' iteration may stop a little early, on the safe side.
    assert 0.9 * exact <= found <= exact * (1 + 1e-3)


def test_a_step_into_the_cone_has_no_end() -> None:
    matrix = arrow(12, 4, 7)
    assert ArrowFactor(matrix, 4).longest(np.eye(12)) == np.inf


@pytest.mark.parametrize("tips", [0, 4])
def test_a_matrix_that_is_not_definite(tips: int) -> None:
    with pytest.raises(scipy.linalg.LinAlgError):
        ArrowFactor(arrow(12, tips, 8) * -1.0, tips)
