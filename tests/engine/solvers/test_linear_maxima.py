"""Maxima over polytopes, against another program for linear programs."""

from __future__ import annotations

import numpy as np
import pytest

from bnncert.regions import Polytope
from bnncert.regions.highs_ import LinearMaxima, LinearMaximum


def dual_value(polytope: Polytope, v: np.ndarray, y: np.ndarray) -> float:
    """Return b.y + h_box(v - A'y)."""
    rest = v - y @ polytope.matrix
    return float(polytope.right @ y + np.maximum(rest * polytope.lo, rest * polytope.hi).sum())


@pytest.mark.parametrize("seed", range(6))
def test_points_and_multipliers_meet_at_the_maximum(seed: int) -> None:
    from scipy.optimize import linprog

    generator = np.random.default_rng(seed)
    m, n = generator.integers(1, 8), generator.integers(1, 12)
    matrix = generator.integers(-3, 4, size=(m, n)).astype(float)
    polytope = Polytope(matrix, generator.uniform(0.0, 3.0, m), -np.ones(n), np.full(n, 2.0))
    maxima = LinearMaxima(polytope.matrix, polytope.right, polytope.lo, polytope.hi)
    bounds = np.column_stack([polytope.lo, polytope.hi])
    directions = generator.normal(size=(20, n))
    for v in directions:
        other = linprog(-v, A_ub=matrix, b_ub=polytope.right, bounds=bounds, method="highs-ipm")
        found = maxima.solve(v)
        assert found.point is not None
        assert np.all(matrix @ found.point <= polytope.right + 1e-7)
        assert np.all(found.multipliers >= 0)
        assert v @ found.point == pytest.approx(-other.fun, abs=1e-6)
        assert dual_value(polytope, v, found.multipliers) == pytest.approx(-other.fun, abs=1e-6)
    # The support function is an upper bound, and no looser than rounding.
    support = polytope.support(directions)
    best = [dual_value(polytope, v, maxima.solve(v).multipliers) for v in directions]
    assert np.all(support >= np.array(best) - 1e-9)
    assert support == pytest.approx(best, abs=1e-6)


def test_what_has_no_solution_gives_no_point_and_valid_multipliers() -> None:
    one = np.ones((1, 1))
    # x <= -1 within [0, 1].
    found = LinearMaxima(one, -np.ones(1), np.zeros(1), np.ones(1)).solve(np.ones(1))
    assert found.point is None
    assert found.multipliers.shape == (1,) and np.all(found.multipliers >= 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_multipliers_that_are_no_numbers_leave_the_box(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0], [0.0, 0.0], [1.0, 1.0])
    bad = LinearMaximum(None, np.array([wrong]))
    monkeypatch.setattr(LinearMaxima, "solve", lambda self, v: bad)
    assert polytope.support(np.ones((1, 2))) == pytest.approx([2.0])


def test_no_directions_have_no_support() -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0], [0.0, 0.0], [1.0, 1.0])
    assert polytope.support(np.zeros((0, 2))).shape == (0,)
