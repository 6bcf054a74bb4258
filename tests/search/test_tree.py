"""Branch and bound: complete on tiny networks, honest about limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.demo import load_demo_images, load_demo_network
from bnncert.presolve.pipeline import presolve
from bnncert.relaxations.reduced import reduce_objective
from bnncert.search.tree import Tree
from tests.brute_force import true_margins
from tests.strategies import NORMS, regions, tiny_networks
from tests.test_against_brute_force import check_counterexample

MANY = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.parametrize("kind", NORMS)
@given(data=st.data())
@MANY
def test_branching_alone_agrees_with_brute_force(kind: str, data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(kind))
    built = net.build()
    label = data.draw(st.integers(0, built.classes - 1))
    ties = data.draw(st.sampled_from(["violation", "robust"]))
    truth = true_margins(net, region, label)
    holds = all(m >= 0 if ties == "robust" else m > 0 for m in truth.values())
    result = bnncert.verify(built, region, label, method="bab", ties=ties)
    assert result.status == ("robust" if holds else "not_robust")
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival] <= target.upper
    if not holds and ties == "violation":
        check_counterexample(net, region, label, result)


@given(data=st.data())
@MANY
def test_branching_agrees_with_brute_force_on_the_disc(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(exact_ties=False))
    region = data.draw(regions("l2"))
    built = net.build()
    truth = true_margins(net, region, 0)
    expected = "robust" if min(truth.values()) > 0 else "not_robust"
    result = bnncert.verify(built, region, 0, method="bab")
    # A pattern that the disc only touches may stay open.
    assert result.status in (expected, "unknown")
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival] <= target.upper


def demo_tree(delta: float, image: int, **options: int) -> Tree:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(image), delta / 127.5, -1.0, 1.0)
    target = bnncert.robustness(network, region, int(data.labels[image]), "runner-up").targets[0]
    presolved = presolve(network, region)
    objective = target.objectives[0]
    problem = reduce_objective(presolved, objective)
    return Tree(presolved, problem, objective, lambda point, exact: False, **options)


def test_limits_leave_a_valid_bound() -> None:
    tree = demo_tree(0.5, 9, max_nodes=3)
    outcome = tree.search(Deadline(None))
    assert outcome.status == "interrupted"
    assert outcome.nodes == 3
    # The whole tree proves this image, so what is left must be bounded below by less.
    whole = demo_tree(0.5, 9).search(Deadline(120))
    assert whole.status == "proved"
    assert np.isfinite(outcome.lower) and outcome.lower <= 0 < whole.lower


def test_the_time_limit_ends_the_search() -> None:
    deadline = Deadline(1.0)
    outcome = demo_tree(2.0, 6).search(deadline)
    assert outcome.status == "interrupted"
    # One node may be at work when the time is up.
    assert deadline.elapsed() < 4.0


def test_the_same_seed_gives_the_same_tree() -> None:
    first, second = (demo_tree(0.5, 9).search(Deadline(None)) for _ in range(2))
    assert (first.nodes, first.relaxations, first.lower) == (
        second.nodes,
        second.relaxations,
        second.lower,
    )


def test_a_node_with_a_point_stays_open_for_those_who_reject_the_point() -> None:
    # x_0 = sign(x) alone decides, and both signs occur: the minimum is a violation.
    network = bnncert.Network.from_arrays(
        [np.eye(2), np.array([[1.0, 1.0], [0.0, 0.0]])], [np.zeros(2), np.zeros(2)]
    )
    box = bnncert.Box(-np.ones(2), np.ones(2))
    objective = bnncert.robustness(network, box, 0).targets[0].objectives[0]
    presolved = presolve(network, box)
    problem = reduce_objective(presolved, objective)
    tree = Tree(presolved, problem, objective, lambda point, exact: True)
    assert tree.search(Deadline(None)).status == "violated"
    assert tree.take(), "the violated node must not be lost"
