"""The choice of the variable to split on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.engine.relaxations.reduced.problem import Lattice
from bnncert.engine.search.branching import choose_variable, objective_values
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


def test_values_of_patterns_are_looked_up_in_any_lattice() -> None:
    """Lattices with gaps, of one point, and with sums outside."""
    problem = random_relaxation(1, [12, 10, 14, 2], 0.3).problem
    rng = np.random.default_rng(1)
    patterns = rng.choice(np.array([-1, 1], dtype=np.int8), (60, problem.size))
    sums = patterns @ problem.table.rows.T
    for kept in ([0, 1, 2, 3], [0, 2, 3, 3], [1, 1, 1, 1], [0]):
        points, values = problem.table.points[:, kept], problem.values[:, kept]
        part = replace(problem, table=Lattice(problem.table.rows, points), values=values)
        known = [dict(zip(*p, strict=True)) for p in zip(points, values, strict=True)]
        expected = problem.constant + patterns @ problem.linear
        for j, table in enumerate(known):
            expected = expected + [table.get(u, np.inf) for u in sums[:, j]]
        assert np.array_equal(objective_values(part, patterns), expected)
    nothing = replace(
        problem, table=Lattice(problem.table.rows[:0], np.zeros((0, 1))), values=np.zeros((0, 1))
    )
    expected = problem.constant + patterns @ problem.linear
    assert np.array_equal(objective_values(nothing, patterns), expected)
