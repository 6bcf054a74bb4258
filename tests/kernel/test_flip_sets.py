"""The loop over sets of flips finds a pattern exactly where products do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import flips, patterns
from bnncert.kernel.flips import FlipClauses, FlipOrder, FlipSets, consistent
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.patterns import Patterns
from bnncert.kernel.section_reading import joined
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.sparse import SparseRows
from bnncert.kernel.statement import Statement
from bnncert.problem import Problem, robustness
from tests.kernel.claims import Judge, accepted, pack
from tests.kernel.pattern_trees import (
    by_hand,
    random_deep,
    random_deep_question,
    random_tree,
    variables_of,
)
from tests.random_questions import KINDS, random_region


@pytest.fixture(autouse=True)
def _loop_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the loop for every node."""
    monkeypatch.setattr(patterns, "LOOP", 1)
    monkeypatch.setattr(patterns, "LOOP_TOGETHER", 1)
    # Calls end in the middle of a leaf.
    monkeypatch.setattr(flips, "CALL", 7)
    monkeypatch.setattr(flips, "FOUND", 2)


def patterns_of(problem: Problem) -> Patterns:
    """Return the patterns of a question, as the checker derives them."""
    network = problem.network
    claim = Statement.read(by_hand(problem, network, [-1])[0], network)
    geometry = Geometry(network.layers[0], claim.space)
    return Patterns(Skeleton(network, geometry, {}), geometry, joined([]), claim.targets)


def wide_patterns(rng: np.random.Generator, inputs: int, width: int) -> Patterns:
    """Return the patterns of binarised inputs that may all change, with three wide layers."""
    sizes = [inputs, width, width + 3, width, 2]
    weights = [np.eye(inputs), *(rng.integers(-1, 2, (b, a)) for a, b in pairwise(sizes))]
    biases = [np.zeros(len(w)) + 0.5 * (k > 0) for k, w in enumerate(weights)]
    network = bnncert.Network.from_arrays(weights, biases)
    return patterns_of(robustness(network, bnncert.Ball("linf", np.zeros(inputs), 1.0), 0))


def random_patterns(rng: np.random.Generator, kind: str, inputs: int) -> Patterns:
    """Return the patterns of a random network, some signs of which are taken as excluded."""
    zero = "either" if rng.random() < 0.1 else str(rng.choice(["plus", "minus"]))
    tiny = random_deep(rng, inputs, diagonal=bool(rng.integers(2)), sign_zero=zero)
    network, region = tiny.build(), random_region(rng, kind, inputs)
    made = patterns_of(robustness(network, region, int(rng.integers(3))))
    for _ in range(int(rng.integers(4))):
        if made.inputs > 1:
            v, w = rng.choice(made.inputs, 2, replace=False)
            a, b = 2 * v + rng.integers(2), 2 * w + rng.integers(2)
            made.excluded[a, b] = made.excluded[b, a] = 1
    for _ in range(int(rng.integers(4))):
        if made.inputs > 2:
            variables = np.sort(rng.choice(made.inputs, 3, replace=False))
            literals = 2 * variables + rng.integers(2, size=3)
            ones, start = np.ones(literals.size, dtype=np.int64), np.array([0, literals.size])
            clause = SparseRows(start, literals, ones, 2 * made.skeleton.size)
            made.clauses.append(clause)
            made.clause_table = SparseRows.stacked([made.clause_table, clause])
    return made


def with_limits(made: Patterns, enough: np.ndarray, weights: np.ndarray | None = None) -> FlipSets:
    """Return the tables with other limits for the first functions, each a target of its own."""
    count = enough.size
    weights = made.scores.weights[:count] if weights is None else weights
    scores = replace(made.scores, weights=weights, enough=enough, target=np.arange(count))
    sets = FlipSets.of(made.inputs, made.skeleton.size, made.levels, scores)
    assert sets is not None
    return sets


def no_clauses(made: Patterns, node: Any, base: Any, rules: FlipOrder) -> FlipClauses:
    """Return the clauses of a node if there are none."""
    nothing = SparseRows.of_dense(np.zeros((0, 2 * made.skeleton.size), dtype=np.int64))
    return FlipClauses.of(nothing, node, base, rules)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loop_finds_a_pattern_where_products_do(kind: str) -> None:
    rng = np.random.default_rng([KINDS.index(kind), 1])
    outcomes: Counter[bool] = Counter()
    for _ in range(20):
        made = random_patterns(rng, kind, 5)
        if made.flip_sets is None or not made.inputs:
            continue
        nodes = rng.choice([-1, 0, 0, 0, 1], (3, made.inputs)).astype(np.int8)
        nodes[0] = 0
        nodes, possible = made.implied(nodes)
        for node in nodes[possible]:
            targets = rng.random(made.targets) < 0.7
            expected = made._counterexample(node[None, :], targets[None, :])
            found = made.counterexample(node[None, :], targets[None, :])
            assert (found is None) == (expected is None)
            outcomes[found is None] += 1
            if found is not None:
                assert np.all((node == 0) | (found == node))
                assert np.any(made.reached(found[None, :])[0] & targets)
                assert made.implied(found[None, :])[1].all()
    assert min(outcomes[True], outcomes[False]) > 4, outcomes


def test_the_loop_goes_through_exactly_the_sets_that_fit() -> None:
    """No target is ever excluded, so that every set is found; each once."""
    rng = np.random.default_rng(2)
    sizes = []
    for _ in range(30):
        made = random_patterns(rng, str(rng.choice(["linf", "l1", "l2"])), 5)
        if made.flip_sets is None or made.inputs < 2:
            continue
        (node,), possible = made.implied(np.zeros((1, made.inputs), dtype=np.int8))
        if not possible[0]:
            continue
        base = np.where(node == 0, made.flips.home, node)
        if not made.flips.cost.any():
            base = consistent(node, base, made.excluded)
        left = float(made.flips.left(node[None, :])[0])
        rules = FlipOrder.of(node, base, made.flips.cost, left, made.excluded)
        clauses = FlipClauses.of(made.clause_table, node, base, rules)
        sets = with_limits(made, np.full(made.scores.enough.size, 2.0**50))
        targets = np.ones(made.scores.enough.size, dtype=bool)
        found = [p for part in sets.reaching(base, rules, clauses, targets) for p in part]
        seen = Counter(tuple(p.tolist()) for p in found)
        assert set(seen.values()) == {1}
        whole = np.array(list(product((-1, 1), repeat=made.inputs)), dtype=np.int8)
        whole = whole[np.all((node == 0) | (whole == node), axis=1)]
        fits = whole[made.implied(whole)[1] & ~made.broken(whole)]
        assert {tuple(p.tolist()) for p in fits} <= set(seen)
        assert all(made.flips.left(np.array([p], dtype=np.int8))[0] >= 0 for p in seen)
        sizes.append((len(seen), whole.shape[0]))
    assert len(sizes) > 10 and any(few < all_ for few, all_ in sizes)


def test_scores_of_the_loop_are_those_of_products() -> None:
    """With the value of one pattern as the limit, the patterns below it are found."""
    rng = np.random.default_rng(4)
    compared = 0
    for k in range(40):
        made = random_patterns(rng, "linf", 5) if k else wide_patterns(rng, 5, 40)
        if made.flip_sets is None or made.inputs < 2:
            continue
        made.excluded[:] = 0
        node = np.zeros(made.inputs, dtype=np.int8)
        whole = np.array(list(product((-1, 1), repeat=made.inputs)), dtype=np.int8)
        values = np.array([_score(made, pattern) for pattern in whole])
        base = rng.choice([-1, 1], made.inputs).astype(np.int8)
        rules = FlipOrder.of(node, base, made.flips.cost, 2.0**20, made.excluded)
        limit, targets = float(rng.choice(values)), np.ones(1, dtype=bool)
        sets = with_limits(made, np.full(1, limit))
        clauses = no_clauses(made, node, base, rules)
        found = [p for part in sets.reaching(base, rules, clauses, targets) for p in part]
        expected = {tuple(p.tolist()) for p in whole[values < limit]}
        assert {tuple(p.tolist()) for p in found} == expected
        compared += bool(expected)
    assert compared > 5


def test_functions_with_large_weights_are_bounded_from_below() -> None:
    """A pattern below the limit is always found, and one far above it never."""
    rng = np.random.default_rng(6)
    exact, near = 0, 0
    for _ in range(20):
        made = wide_patterns(rng, 5, int(rng.integers(3, 70)))
        width = made.scores.weights.shape[1]
        weights = rng.integers(-(2**40), 2**40, (1, width)).astype(float)
        if made.flip_sets is None or not width:
            continue
        whole = np.array(list(product((-1, 1), repeat=made.inputs)), dtype=np.int8)
        values = np.array([_score(made, pattern, weights[0]) for pattern in whole])
        limit = float(rng.choice(values))
        node, base = np.zeros(made.inputs, dtype=np.int8), whole[0]
        rules = FlipOrder.of(node, base, made.flips.cost, 2.0**20, made.excluded)
        clauses, targets = no_clauses(made, node, base, rules), np.ones(1, dtype=bool)
        sets = with_limits(made, np.array([limit]), weights)
        parts = sets.reaching(base, rules, clauses, targets)
        found = {tuple(p.tolist()) for part in parts for p in part}
        assert {tuple(p.tolist()) for p in whole[values < limit]} <= found
        step = np.ceil(np.abs(weights).max() / flips.LARGEST_WEIGHT)
        far = values >= limit + (width + 2) * step
        assert not found & {tuple(p.tolist()) for p in whole[far]}
        exact += np.count_nonzero(values < limit)
        near += int(far.sum())
    assert exact > 50 and near > 20


def _score(made: Patterns, pattern: Any, weights: Any = None) -> float:
    """Return the first function's value at a pattern, evaluated layer by layer."""
    states = np.zeros(made.skeleton.size)
    states[: made.inputs] = pattern
    last = states
    for level in made.levels:
        last = np.where(level.rows @ states[level.inputs] > level.minus, 1.0, -1.0)
        if level.outputs.size:
            states[level.outputs] = last
    return float((made.scores.weights[0] if weights is None else weights) @ last)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tree_proves_by_the_loop_is_true(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([KINDS.index(kind), 5])
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for _ in range(15):
        question = random_deep_question(rng, kind)
        problem, network = question.problem, question.network
        tree = random_tree(rng, variables_of(problem, network, question.arithmetic), 0.3)
        sections = by_hand(problem, network, tree, question.arithmetic)
        report = accepted(pack(tmp_path / "one.cert", sections), network)
        judge = Judge(question.tiny)
        if report is not None:
            assert judge.objection(report, sections[0]) is None
        outcomes[report is not None, judge.decide(sections[0])[0]] += 1
    assert outcomes[True, True] and not outcomes[True, False]


def test_clauses_leave_out_the_sets_that_break_them() -> None:
    """Where no target is excluded, what is found breaks no clause, except by later base signs."""
    rng = np.random.default_rng(7)
    left_out = 0
    for _ in range(20):
        variables = rng.permutation(6)
        node, base = np.zeros(6, dtype=np.int8), rng.choice([-1, 1], 6).astype(np.int8)
        node[variables[5]] = 1
        members = [np.sort(rng.choice(6, 3, replace=False)) for _ in range(4)]
        literals = [2 * m + rng.integers(2, size=3) for m in members]
        clauses = SparseRows(np.arange(0, 13, 3), np.concatenate(literals), np.ones(12, int), 12)
        no_pairs = np.zeros((12, 12), dtype=np.float32)
        rules = FlipOrder.of(node, base, np.zeros(6), 0.0, no_pairs)
        made = FlipClauses.of(clauses, node, base, rules)
        for flipped in product((0, 1), repeat=5):
            pattern = np.where(node, node, base)
            pattern[rules.variables[np.flatnonzero(flipped)]] *= -1
            word = sum(bit << k for k, bit in enumerate(flipped))
            ends = np.any((made.flipped & ~word == 0) & (made.kept & word == 0))
            broken = any(np.all(pattern[c // 2] == 1 - 2 * (c % 2)) for c in literals)
            assert ends == broken
            left_out += broken
        for p in range(5):
            for kind, bits in enumerate((made.flipped, made.kept)):
                mine = slice(made.start[2 * p + kind], made.start[2 * p + kind + 1])
                assert np.all(bits[mine] >> p == 1)
                assert np.all((made.flipped + made.kept)[mine] < 2 << p)
    assert left_out > 100
