"""Trees of first-layer signs: complete ones of true claims are accepted, and no others."""

from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.container import Section
from bnncert.kernel.flips import UNITS, Flips, FlipSums
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.patterns import MOST_PATTERNS
from bnncert.kernel.statement import Statement
from bnncert.problem import robustness
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.kernel.claims import Judge, accepted, excluding_pair, pack, unpack
from tests.kernel.pattern_trees import (
    by_hand,
    one_by_one,
    random_deep,
    random_deep_question,
    random_tree,
    robust_tree,
    variables_of,
)
from tests.random_questions import KINDS, random_region


def _is_diagonal(tiny: TinyNetwork) -> bool:
    first = tiny.weights[0]
    return first.shape[0] == first.shape[1] and not np.any(first - np.diag(first.diagonal()))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tree_proves_is_true(kind: str, tmp_path: Path) -> None:
    """A box over disjoint inputs needs no clauses: there every true claim is accepted."""
    rng = np.random.default_rng(KINDS.index(kind))
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for _ in range(24):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        tree = random_tree(rng, variables_of(problem, network, question.arithmetic))
        sections = by_hand(problem, network, tree, question.arithmetic)
        report = accepted(pack(tmp_path / "one.cert", sections), network)
        # The same tree for each target on its own, with leaves that are enumerated: such a tree
        # is about one function, and so may prove less where a target has several.
        apart = one_by_one(problem, network, tree, question.arithmetic)
        proved = accepted(pack(tmp_path / "apart.cert", apart), network)
        several = any(len(target.objectives) > 1 for target in problem.targets)
        assert (proved is None) == (report is None) or (several and proved is None)
        judge = Judge(question.tiny)
        true = judge.decide(sections[0])[0]
        if report is not None:
            assert judge.objection(report, sections[0]) is None
        if (
            _is_diagonal(question.tiny)
            and kind in ("linf", "box")
            and question.arithmetic == "real"
        ):
            # A neuron whose tie may go either way stays open.
            assert (report is not None) == true or question.tiny.sign_zero == "either"
        outcomes[report is not None, true] += 1
    assert outcomes[True, True] > 3 and outcomes[False, False] > 3
    assert not outcomes[True, False]


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_costs_of_reachable_patterns_fit_the_budget(norm: str) -> None:
    rng = np.random.default_rng(3)
    compared = flipped = 0
    for _ in range(20):
        tiny = random_deep(rng, 2, diagonal=True, sign_zero=str(rng.choice(["plus", "either"])))
        region = random_region(rng, norm, 2)
        network = tiny.build()
        problem = robustness(network, region, 0)
        claim = Statement.read(by_hand(problem, network, [-1])[0], network)
        flips = Flips.of(Geometry(network.layers[0], claim.space), np.arange(2))
        for pattern in reachable_first_layers(tiny, region):
            signs = np.array([pattern], dtype=np.int8)
            assert flips.left(signs)[0] >= 0
            assert flips.most(np.zeros((1, 2), dtype=np.int8))[0] >= np.sum(signs != flips.home)
            compared += 1
            flipped += bool(np.any(signs != flips.home))
    assert compared > 30 and flipped > 7


def test_costs_are_shares_of_the_radius() -> None:
    """Both round down: 3/4 and 1/3 of the radius, or 9/16 and 1/9 of its square."""
    weights = [np.array([[2.0, 0.0, 0.0], [0.0, 1.0, -3.0]]), np.ones((2, 2))]
    network = bnncert.Network.from_arrays(weights, [np.array([1.5, 0.0]), np.array([1.0, 0.0])])
    for norm, wanted in (("l1", [Fraction(3, 4), Fraction(1, 3)]), ("l2", None)):
        region = bnncert.Ball(norm, np.array([0.0, -1.0, 0.0]), 1.0)  # type: ignore[arg-type]
        claim = Statement.read(by_hand(robustness(network, region, 0), network, [-1])[0], network)
        flips = Flips.of(Geometry(network.layers[0], claim.space), np.arange(2))
        exact = wanted or [Fraction(9, 16), Fraction(1, 10)]
        assert flips.home.tolist() == [1, -1]
        assert flips.cost.tolist() == [int(c * UNITS) for c in exact]


def test_sums_with_a_budget_enclose_every_pattern_that_fits() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        size = int(rng.integers(2, 7))
        cost = rng.integers(0, 3, size) * UNITS // int(rng.integers(2, 5))
        flips = Flips(rng.choice([-1, 1], size).astype(np.int8), cost.astype(float))
        rows = rng.integers(-2, 3, (5, size)).astype(np.float32)
        nodes = rng.choice([-1, 0, 0, 1], (30, size)).astype(np.int8)
        nodes = nodes[flips.left(nodes) >= 0]
        least, most = FlipSums(flips, np.arange(size), rows).bounds(nodes)
        patterns = np.array(list(product((-1, 1), repeat=size)), dtype=np.int8)
        patterns = patterns[flips.left(patterns) >= 0]
        for k, node in enumerate(nodes):
            mine = patterns[np.all((node == 0) | (patterns == node), axis=1)]
            sums = mine @ rows.T
            assert np.all(sums >= least[k]) and np.all(sums <= most[k])
            assert np.any(node != 0) or mine.size


def test_trees_that_are_not_complete_are_rejected(tmp_path: Path) -> None:
    _, problem, tree = robust_tree("linf")
    network = problem.network
    path = tmp_path / "one.cert"
    assert check(pack(path, by_hand(problem, network, tree)), network).leaves == 8
    for broken in (
        tree[:-1], [*tree, -1], [], [0, -1], [0, 0, -1, -1, -1], [0, -2, -1], [3, -1, -1],
        [2**31 - 1, -1, -1], [-(2**31), -1],
    ):  # fmt: skip
        with pytest.raises(RejectedError):
            check(pack(path, by_hand(problem, network, broken)), network)


@pytest.mark.parametrize("targets", [None, [], [True, 1], [0, 0], [-1], "0", [0.5], {}, [0]])
def test_targets_that_are_not_all_targets_are_rejected(targets: object, tmp_path: Path) -> None:
    _, problem, tree = robust_tree("linf")
    network = problem.network
    sections = by_hand(problem, network, tree)
    sections[1].fields["targets"] = targets
    with pytest.raises((RejectedError, UnreadableError)):
        check(pack(tmp_path / "one.cert", sections), network)


def test_a_leaf_with_too_many_patterns_is_rejected_at_once(tmp_path: Path) -> None:
    """Sixty open signs have 2^60 patterns, and a file of 300 bytes asks for them."""
    rng = np.random.default_rng(0)
    hidden = [rng.choice([-1, 1], (60, 60)) for _ in range(3)]
    weights = [np.eye(60), *hidden, rng.choice([-1, 1], (3, 60))]
    network = bnncert.Network.from_arrays(weights, [np.zeros(w.shape[0]) for w in weights])
    for region in (
        bnncert.Ball("linf", np.full(60, 0.5), 1.0),
        bnncert.Ball("l1", np.full(60, 0.5), 10.0),
    ):
        problem = robustness(network, region, 0)
        path = pack(tmp_path / "bomb.cert", by_hand(problem, network, [-1]))
        started = time.process_time()
        with pytest.raises(RejectedError, match=f"more than {MOST_PATTERNS} patterns"):
            check(path, network)
        assert time.process_time() - started < 5


def test_a_check_of_patterns_ends_when_time_is_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [np.eye(20), rng.choice([-1, 1], (200, 20)), rng.choice([-1, 1], (200, 200))]
    weights.append(np.zeros((2, 200)))
    biases = [np.zeros(20), np.full(200, 0.5), np.full(200, 0.5), np.array([1.0, 0.0])]
    network = bnncert.Network.from_arrays(weights, biases)
    problem = robustness(network, bnncert.Ball("linf", np.zeros(20), 1.0), 0)
    # The targets are excluded by propagation; nothing else is read from the clock before.
    sections = by_hand(problem, network, [-1])
    check(pack(tmp_path / "one.cert", sections), network)
    with pytest.raises(RejectedError, match="did not end within"):
        check(tmp_path / "one.cert", network, timeout=0.0)


def test_proved_clauses_drop_patterns(tmp_path: Path) -> None:
    problem, arrays = excluding_pair()
    network, path = problem.network, tmp_path / "one.cert"
    sections = by_hand(problem, network, [-1])
    with pytest.raises(RejectedError, match="reaches a target"):
        check(pack(path, sections), network)
    for name in ("clauses", "clashes"):
        known = [sections[0], Section(name, {"layer": 0}, arrays), *sections[1:]]
        assert check(pack(path, known), network).clauses == 1


@pytest.mark.parametrize("method", ["propagation", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_searches_over_patterns_have_certificates(kind: str, method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([KINDS.index(kind), 7])
    # The search that learns may be the first engine of `auto` to have a proof.
    searched = {"patterns"} if method == "propagation" else {"patterns", "refutation"}
    trees = 0
    for _ in range(80):
        question = random_deep_question(rng, kind)
        path = tmp_path / "answer.cert"
        arithmetic: Any = question.arithmetic
        result = solve(
            question.problem,
            method,
            20,
            arithmetic=arithmetic,
            stated=question.network,
            certificate=path,
        )
        if result.status in ("robust", "not_robust"):
            assert result.certificate is not None, result.notes
            assert check(path, question.network).verdict == result.status
            trees += any(s.name in searched for s in unpack(path))
        if trees == 1:
            break
    assert trees > 0
