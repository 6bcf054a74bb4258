"""The choice of the variable to split on."""

from __future__ import annotations

import numpy as np

from bnncert.engine.search.branching import choose_variable
from tests.engine.solvers.test_low_rank import random_relaxation


def test_the_price_of_a_fixed_sign_decides() -> None:
    problem = random_relaxation(0, [12, 10, 14, 2], 0.3).problem
    size = problem.size
    everyone, moments = np.arange(size), np.eye(size + 1)
    prices = -np.arange(1.0, size + 1)
    assert choose_variable(problem, moments, everyone, prices) == size - 1
    # A sign that the moments have decided has no variance left.
    moments[0, size] = moments[size, 0] = -1.0
    assert choose_variable(problem, moments, everyone, prices) == size - 2
    assert choose_variable(problem, moments, everyone[:2], prices) == 1


def test_without_a_positive_price_the_influence_decides() -> None:
    problem = random_relaxation(0, [12, 10, 14, 2], 0.3).problem
    everyone, moments = np.arange(problem.size), np.eye(problem.size + 1)
    chosen = choose_variable(problem, moments, everyone)
    assert choose_variable(problem, moments, everyone, np.ones(problem.size)) == chosen


def test_in_a_deep_network_the_influence_decides() -> None:
    problem = random_relaxation(0, [12, 10, 10, 14, 2], 0.3).problem
    assert problem.outputs.size
    everyone, moments = np.arange(problem.size), np.eye(problem.size + 1)
    chosen = choose_variable(problem, moments, everyone)
    for a in range(problem.size):
        prices = -1000.0 * (everyone == a)
        assert choose_variable(problem, moments, everyone, prices) == chosen
