"""Fixing signs: everything that follows holds at every pattern that has them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, reduce_objective
from bnncert.engine.search.branching import count_violated_pairs, objective_values
from bnncert.engine.search.restrict import Restrictor
from bnncert.problem import robustness
from tests.strategies import NORMS, few, regions, tiny_networks

SOME = few(30)


def consistent(problem: ReducedProblem) -> np.ndarray:
    """All sign vectors without a clash whose gates have an allowed sign."""
    n = problem.size
    signs = np.array(list(product((1, -1), repeat=n)), dtype=np.int8).reshape(2**n, n)
    signs = signs[count_violated_pairs(problem, signs) == 0]
    for j, out in enumerate(problem.outputs):
        u = signs @ problem.gates.rows[j]
        allowed = (u[:, None] == problem.gates.points[j]) & (
            signs[:, out : out + 1] == problem.gate_signs[j]
        )
        signs = signs[allowed.any(axis=1)]
    return signs


@given(data=st.data())
@SOME
def test_restriction_keeps_f_and_loses_no_pattern(data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(data.draw(st.sampled_from(NORMS))))
    built = net.build()
    presolved = presolve(built, region)
    objective = robustness(built, region, 0).targets[0].objectives[0]
    problem = reduce_objective(presolved, objective)
    n = problem.size
    chosen = data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=n, max_size=n))
    fixed = np.array(chosen, dtype=np.int8)
    patterns = consistent(problem)
    values = objective_values(problem, patterns)
    patterns, values = patterns[np.isfinite(values)], values[np.isfinite(values)]
    having = np.all((fixed == 0) | (patterns == fixed), axis=1)
    left = Restrictor(problem).restrict(fixed)
    if left is None:
        assert not having.any()
        return
    kept = patterns[having]
    known = left.signs != 0
    # What was derived holds wherever the fixed signs do, and f is the same function.
    assert np.all(kept[:, known] == left.signs[known])
    if kept.size:
        again = objective_values(left.problem, kept[:, left.free])
        np.testing.assert_allclose(again, values[having], atol=1e-9)
        assert not count_violated_pairs(left.problem, kept[:, left.free]).any()
        for j, out in enumerate(left.problem.outputs):
            u = kept[:, left.free] @ left.problem.gates.rows[j]
            own = kept[:, left.free][:, out]
            points, signs = left.problem.gates.points[j], left.problem.gate_signs[j]
            assert ((u[:, None] == points) & (own[:, None] == signs)).any(axis=1).all()


def chain(pairs: list[tuple[int, int]], size: int) -> Restrictor:
    """A restrictor over free variables with the given clashes and no tables."""
    weights = np.eye(size)
    built = bnncert.Network.from_arrays(
        [weights, np.vstack([np.ones(size), np.zeros(size)])], [np.zeros(size), np.zeros(2)]
    )
    box = bnncert.Box(-np.ones(size), np.ones(size))
    objective = robustness(built, box, 0).targets[0].objectives[0]
    restrictor = Restrictor(reduce_objective(presolve(built, box), objective))
    for first, second in pairs:
        restrictor.learn(np.array([first, second]))
    return restrictor


def test_clauses_propagate_and_contradict() -> None:
    restrictor = chain([], 4)
    restrictor.learn(np.array([0, 2, 4]))  # not (x0 = +, x1 = +, x2 = +)
    signs = restrictor.propagate(np.array([1, 1, 0, 0], dtype=np.int8))
    assert signs is not None and signs.tolist() == [1, 1, -1, 0]
    assert restrictor.propagate(np.array([1, 1, 1, 0], dtype=np.int8)) is None
    signs = restrictor.propagate(np.array([-1, 1, 0, 0], dtype=np.int8))
    assert signs is not None and signs.tolist() == [-1, 1, 0, 0]


def test_pairs_propagate_along_a_chain() -> None:
    restrictor = chain([(0, 3), (2, 5)], 3)  # x0 = + => x1 = + => x2 = +
    signs = restrictor.propagate(np.array([1, 0, 0], dtype=np.int8))
    assert signs is not None and signs.tolist() == [1, 1, 1]
    assert restrictor.propagate(np.array([1, 0, -1], dtype=np.int8)) is None
