"""Branch and bound: its tree, and what limits leave of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.methods import reduced_sdp
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.reachability.feasibility import SignPattern, proves_infeasible
from bnncert.engine.relaxations.reduced.problem import reduce_objective
from bnncert.engine.search import tree
from bnncert.engine.search.frontier import Frontier, OpenNode
from bnncert.engine.search.tree import Tree, TreeOptions
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_coupling import any_case
from tests.kernel.claims import unpack
from tests.kernel.input_cuts import crossing
from tests.strategies import few


def demo_tree(delta: float, image: int, **options: Any) -> Tree:
    network, data = load_demo_network(), load_demo_images()
    region = bnncert.Ball("linf", data.point(image), delta / 127.5, -1.0, 1.0)
    target = robustness(network, region, int(data.labels[image]), "runner-up").targets[0]
    presolved = presolve(network, region)
    objective = target.objectives[0]
    problem = reduce_objective(presolved, objective)
    return Tree(
        presolved, problem, objective, lambda point, exact: False, None, TreeOptions(**options)
    )


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
    deadline = Deadline(0.4)
    outcome = demo_tree(2.0, 6).search(deadline)
    assert outcome.status == "interrupted"
    # One node may be at work when the time is up.
    assert deadline.elapsed() < 3.4


def test_the_same_seed_gives_the_same_tree() -> None:
    # While the compiled functions are being loaded, conflicts may have other multipliers.
    assert tree.is_ready(tree.WORTH_IT) or tree.NODES.wait(120.0)
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
    objective = robustness(network, box, 0).targets[0].objectives[0]
    presolved = presolve(network, box)
    problem = reduce_objective(presolved, objective)
    tree = Tree(presolved, problem, objective, lambda point, exact: True)
    assert tree.search(Deadline(None)).status == "violated"
    assert tree.take(), "the violated node must not be lost"


def test_only_points_that_floats_do_not_rule_out_are_replayed() -> None:
    """Both trees see the same points; those of a robust image are all ruled out."""
    offered: list[float] = []

    def confirm(tree: Tree) -> bool:
        def accept(point: Any, exact: Any) -> bool:
            offered.append(float(tree.objective.exactly(tree.network.last_signs(point[None])[0])))
            return False

        tree.confirm = accept
        return tree.search(Deadline(None)).status == "proved"

    assert confirm(demo_tree(0.75, 24))
    assert offered == []
    tree = demo_tree(0.75, 24)
    with patch.object(type(tree.objective), "is_clearly_met", lambda *_: False):
        assert confirm(tree)
    assert offered and min(offered) > 0


def test_leaves_partition_the_patterns_and_conflicts_are_proved() -> None:
    generator = np.random.default_rng(2)
    for seed in range(6):
        weights = [generator.choice([-1.0, 1.0], (n, m)) for m, n in ((3, 9), (9, 7), (7, 2))]
        biases = [generator.uniform(-1, 1, n) for n in (9, 7, 2)]
        network = bnncert.Network.from_arrays(weights, biases)
        region = bnncert.Ball("linf", generator.uniform(-1, 1, 3), 0.4)
        label = int(network.classify(region.center)[0])
        objective = robustness(network, region, label).targets[0].objectives[0]
        presolved = presolve(network, region)
        problem = reduce_objective(presolved, objective)
        options = TreeOptions(seed, keep_leaves=True)
        tree = Tree(presolved, problem, objective, lambda p, e: False, None, options)
        outcome = tree.search(Deadline(60))
        assert outcome.status in ("proved", "open")
        if outcome.status == "proved":
            # Each leaf has 2^-depth of all patterns; disjoint because decisions differ somewhere.
            sizes = [0.5 ** np.count_nonzero(leaf.signs) for leaf in outcome.leaves]
            assert sum(sizes) == 1.0
            for i, a in enumerate(outcome.leaves):
                for b in outcome.leaves[:i]:
                    assert np.any(a.signs * b.signs < 0)
        for literals, theta in tree.proofs:
            if theta is None:
                continue
            place = np.searchsorted(tree.inputs, variable_of(literals))
            pattern = SignPattern(tree.layer, tree.neurons[place], sign_of(literals))
            assert proves_infeasible(pattern, theta, region)


def test_little_memory_bounds_the_open_nodes() -> None:
    limit = 20_000
    tree = demo_tree(0.5, 9, memory=limit / 2**30)
    most = 0
    push = tree.open.push

    def watch(node: OpenNode) -> None:
        nonlocal most
        push(node)
        most = max(most, tree.open.bytes)

    tree.open.push = watch  # type: ignore[method-assign]
    outcome = tree.search(Deadline(120))
    assert outcome.status == "proved"
    node = OpenNode(np.zeros(tree.problem.size, dtype=np.int8), 0.0, 0)
    # Depth first adds at most one node per level to what was there.
    assert most <= limit + (tree.problem.size + 2) * node.bytes


def test_the_frontier_keeps_every_node_in_any_order() -> None:
    def node(number: int, depth: int, bound: float) -> OpenNode:
        signs = np.zeros(8, dtype=np.int8)
        signs[:depth] = 1
        return OpenNode(signs, bound, number)

    frontier = Frontier(limit=4.5 * node(0, 0, 0.0).bytes)
    for number, (depth, bound) in enumerate([(1, -3.0), (4, -1.0), (2, -2.0), (4, -1.5)]):
        frontier.push(node(number, depth, bound))
    assert frontier.least() == -3.0
    assert frontier.pop().number == 0
    frontier.push(node(4, 1, -9.0))
    frontier.push(node(5, 3, 0.0))
    # Five nodes are too many: deepest first, until half of them are gone.
    assert [frontier.pop().number for _ in range(3)] == [3, 1, 5]
    assert [frontier.pop().number for _ in range(2)] == [4, 2]
    assert (len(frontier), frontier.bytes) == (0, 0)


def test_a_node_that_runs_out_of_memory_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = demo_tree(0.5, 9, max_nodes=3)
    before = tree.search(Deadline(60)).lower
    nodes = {n.number for n in tree.open.take()}
    assert nodes
    tree = demo_tree(0.5, 9, max_nodes=3)
    tree.search(Deadline(60))
    monkeypatch.setattr(tree, "_visit", _raise_memory_error)
    tree.options = replace(tree.options, max_nodes=100)
    outcome = tree.search(Deadline(60))
    assert (outcome.status, outcome.exhausted, outcome.nodes) == ("interrupted", True, 4)
    assert outcome.lower == before
    assert {n.number for n in tree.open.take()} == nodes


def _raise_memory_error(*_: object) -> None:
    raise MemoryError


# -- searches whose nodes inherit an inequality of the input: exact answers and accepted proofs ---


@given(data=st.data())
@few(12)
def test_the_minimum_is_the_true_one(data: st.DataObject) -> None:
    net, region = any_case(data)
    truth = true_margins(net, region, 0)
    with patch.object(reduced_sdp, "WORTH_CUTS", 1):
        result = bnncert.bound(
            net.build(), region, 0, method="bab", options=Options(processes=1), timeout=60
        )
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival] <= target.upper


@pytest.mark.parametrize(("kind", "seed"), [("linf", 294), ("box", 149), ("l2", 149), ("l1", 149)])
def test_its_certificate_is_accepted(kind: str, seed: int, tmp_path: Path) -> None:
    net, region = crossing(seed, kind)
    network, path = net.build(), tmp_path / "one.cert"
    label = int(np.argmax(network.evaluate(region.center)))
    with patch.object(reduced_sdp, "WORTH_CUTS", 1):
        result = bnncert.verify(
            network, region, label, method="bab", options=Options(processes=1), certificate=path
        )
    assert result.status == "robust"
    assert check(path, network).verdict == "robust"
    assert "cuts" in [s.name for s in unpack(path)]
