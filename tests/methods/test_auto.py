"""Method `auto`: complete on tiny networks of every kind, and what it shares between rivals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.search.learned_clauses import LearnedClauses
from bnncert.search.tree import Tree
from tests.strategies import NORMS, questions

MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

#: Little of everything: what an attack finds at once would never reach the exact stages.
WEAK = Options(restarts=2, iterations=1, samples=5)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@MANY
def test_auto_agrees_with_brute_force(kind: str, data: st.DataObject) -> None:
    question = data.draw(questions(kind))
    result = question.verify(options=WEAK)
    assert result.status == question.expected()
    question.check_bounds(result)
    question.check_counterexample(result)


@given(data=st.data())
@MANY
def test_auto_agrees_with_brute_force_on_the_disc(data: st.DataObject) -> None:
    question = data.draw(questions("l2", exact_ties=False))
    result = question.verify(options=WEAK)
    # A pattern that the disc only touches may stay open.
    assert result.status in (question.expected(), "unknown")
    question.check_bounds(result)
    question.check_counterexample(result)


def test_clauses_learned_for_one_class_hold_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[int] = []
    add_to = LearnedClauses.add_to

    def watch(learned: LearnedClauses, tree: Tree) -> None:
        before = len(tree.proofs)
        add_to(learned, tree)
        taught.append(len(tree.proofs) - before)

    monkeypatch.setattr(LearnedClauses, "add_to", watch)
    for seed in (1, 15, 29):
        generator = np.random.default_rng(seed)
        weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((4, 14), (14, 10), (10, 5))]
        biases = [generator.uniform(-2, 2, n) for n in (14, 10, 5)]
        network = bnncert.Network.from_arrays(weights, biases)
        region = bnncert.Ball("linf", generator.uniform(-1, 1, 4), 0.5)
        label = int(network.classify(region.center)[0])
        result = bnncert.verify(network, region, label, method="bab")
        exact = bnncert.verify(network, region, label, method="milp")
        for ours, theirs in zip(result.targets, exact.targets, strict=True):
            assert ours.status == theirs.status
    assert sum(taught) > 0, "no tree had any clause for the next"


def test_a_large_problem_does_not_starve_the_attack() -> None:
    data = Path(bnncert.__file__).parent / "data"
    network = bnncert.load(data / "mnist_sparse.npz")
    image = np.load(data / "mnist_test_100.npz")["images"][0]
    assert network.pixel_step is not None and network.input_lo is not None
    point = network.input_lo + image.reshape(-1) * network.pixel_step
    region = bnncert.Ball("linf", point, 6 * network.pixel_step, network.input_lo, network.input_hi)
    result = bnncert.verify(network, region, 7, timeout=60)
    assert result.status == "not_robust"
