"""The search over sign patterns against brute force: every region, depth, tie rule and path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from unittest import mock

import numpy as np
import pytest

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.search.patterns import enumeration, pattern_search
from bnncert.engine.search.patterns.circuit import Circuit, build_circuit, pack
from bnncert.engine.search.patterns.enumeration import (
    Enumerated,
    FlipEnumerator,
    enumerate_node,
    narrowed,
)
from bnncert.engine.search.patterns.flips import UNITS, BudgetedSums, flip_budget
from bnncert.engine.search.patterns.interval_propagation import (
    evaluate,
    imply,
    pair_scores,
    propagate,
)
from bnncert.engine.search.patterns.pattern_search import PatternSearch, Realisation
from bnncert.problem import robustness

SIGN_RULES = ("plus", "minus", "either")


def deep_network(
    rng: np.random.Generator,
    inputs: int,
    hidden: tuple[int, ...],
    *,
    diagonal: bool,
    sign_zero: str = "plus",
    zeros: float = 0.2,
) -> bnncert.Network:
    """Return a random network; a diagonal first layer binarises each input by itself."""
    sizes = (inputs, *hidden)
    weights = [
        rng.choice([-1, 0, 1], p=[(1 - zeros) / 2, zeros, (1 - zeros) / 2], size=(above, below))
        for below, above in zip(sizes, hidden, strict=False)
    ]
    biases = [rng.integers(-2, 3, above).astype(float) for above in hidden]
    if diagonal:
        weights[0] = np.diag(rng.choice([-1.0, 1.0], inputs)) * rng.integers(1, 3, inputs)
        biases[0] = rng.integers(-3, 4, inputs).astype(float)
    weights.append(rng.choice([-1, 0, 1], size=(3, hidden[-1])))
    # Classes never tie, so that half of the questions have a robust centre.
    biases.append(rng.integers(-1, 2, 3) + np.array([0.0, 0.25, 0.5]))
    return bnncert.Network.from_arrays(weights, biases, sign_zero=sign_zero)  # type: ignore[arg-type]


def circuit_of(
    net: bnncert.Network, region: bnncert.Region, label: int
) -> tuple[Circuit, bnncert.Problem, np.ndarray]:
    problem = robustness(net, region, label)
    presolved = presolve(net, region)
    circuit = build_circuit(presolved, problem.targets)
    pairs, size = presolved.pairs, circuit.inputs
    table = np.zeros((2 * size, 2 * size), dtype=bool)
    mine = (pairs.first // 2 < size) & (pairs.second // 2 < size)
    table[pairs.first[mine], pairs.second[mine]] = True
    return circuit, problem, table | table.T


def all_patterns(count: int) -> np.ndarray:
    rows = list(product((-1, 1), repeat=count))
    return np.array(rows, dtype=np.int8).reshape(len(rows), count)


def joined(parts: Iterable[Enumerated]) -> Enumerated:
    """Return what all parts of an enumeration found together."""
    made = list(parts)
    return Enumerated(
        sum(part.count for part in made),
        np.concatenate([part.violating for part in made]),
        np.min([part.least for part in made], axis=0),
        made[-1].complete,
        made[-1].last,
    )


def grid_minimum(net: bnncert.Network, ball: bnncert.Ball, label: int) -> float:
    """Return the least margin over the points that reach every pattern of a diagonal first layer.

    Coordinates are the centre's, or on either side of the neuron's threshold and as near to it as
    the radii of these tests, which no sum of distances meets, allow.
    """
    layer = net.layers[0]
    threshold = -layer.bias / layer.weights.diagonal()
    sides = [(c, t - 1e-4, t, t + 1e-4) for c, t in zip(ball.center, threshold, strict=True)]
    points = np.array([p for p in product(*sides) if ball.contains(np.array(p))])
    scores = net.evaluate(points)
    rest = np.delete(scores, label, axis=1).max(axis=1)
    return float((scores[:, label] - rest).min())


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
def test_binarised_inputs_agree_with_every_grid_point(
    norm: str, depth: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(enumeration, "pack", lambda circuit: None)
    rng = np.random.default_rng(depth)
    statuses: Counter[str] = Counter()
    for _ in range(8):
        net = deep_network(rng, 3, (3, *(4,) * (depth - 1)), diagonal=True)
        center = rng.integers(-2, 3, 3) + 0.25
        label = int(net.classify(center)[0])
        ball = bnncert.Ball(norm, center, float(rng.choice([0.4, 0.8, 1.6])))  # type: ignore[arg-type]
        result = bnncert.verify(net, ball, label, method="propagation")
        expected = "robust" if grid_minimum(net, ball, label) > 0 else "not_robust"
        assert result.status == expected
        statuses[result.status] += 1
    assert min(statuses["robust"], statuses["not_robust"]) > 0


def test_all_completions_of_a_node_lie_within_its_propagated_bounds() -> None:
    rng = np.random.default_rng(1)
    compared = 0
    for sign_zero in SIGN_RULES * 8:
        net = deep_network(rng, 5, (6, 5, 4), diagonal=False, sign_zero=sign_zero)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 5), 0.9)
        circuit, _, table = circuit_of(net, ball, int(net.classify(ball.center)[0]))
        if not 1 < circuit.inputs <= 7:
            continue
        patterns = all_patterns(circuit.inputs)
        # The ranges of sums from presolve rest on the pairs that exclude each other.
        patterns = patterns[imply(table.astype(np.float32), patterns)[1]]
        exact = evaluate(circuit, patterns)
        nodes = rng.choice([-1, 0, 1], size=(20, circuit.inputs)).astype(np.int8)
        made = propagate(circuit, nodes)
        for k, node in enumerate(nodes):
            mine = np.all((node == 0) | (patterns == node), axis=1) & exact.possible
            if not made.possible[k]:
                assert not mine.any()
                continue
            assert np.all(exact.lower[mine] >= made.lower[k] - 1e-9)
            fixed = made.states[k] != 0
            values = exact.states[mine][:, fixed]
            # A gate at a tie may stay open where the bound from presolve has decided it.
            assert np.all((values == made.states[k][fixed]) | (values == 0))
            compared += int(mine.sum())
    assert compared > 500


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_budget_allows_every_reachable_pattern_and_bounds_its_sums(norm: str) -> None:
    rng = np.random.default_rng(2)
    compared = 0
    for _ in range(15):
        net = deep_network(rng, 4, (4, 5, 4), diagonal=True)
        center = rng.uniform(-2, 2, 4)
        ball = bnncert.Ball(norm, center, float(rng.uniform(0.5, 3)))  # type: ignore[arg-type]
        circuit, _, _ = circuit_of(net, ball, int(net.classify(center)[0]))
        if not circuit.inputs or not circuit.levels:
            continue
        budget = flip_budget(net.layers[0], circuit.neurons, ball)
        assert budget is not None
        points = ball.sample(rng, 300)
        signs = np.array([net.layers[0].exact_signs(p) for p in points])[:, circuit.neurons]
        assert np.all(budget.spent(signs) <= UNITS)
        sums = BudgetedSums(budget, circuit.levels[0])
        for node in rng.choice([-1, 0, 0, 1], size=(10, circuit.inputs)).astype(np.int8):
            mine = signs[np.all((node == 0) | (signs == node), axis=1)]
            restricted, left = budget.restrict(node[None, :])
            if left[0] < 0:
                assert not mine.size
                continue
            bounds = sums.sums(restricted, left)
            exact = mine[:, circuit.levels[0].inputs] @ circuit.levels[0].rows.T
            assert np.all(exact >= bounds.lo[0]) and np.all(exact <= bounds.hi[0])
            compared += len(mine)
    assert compared > 1000


def test_pairs_that_exclude_each_other_are_closed_under_implication() -> None:
    # Not both 0 and 1 positive; not 1 negative with 2 positive.
    table = np.zeros((6, 6), dtype=np.float32)
    for a, b in ((0, 2), (3, 4)):
        table[a, b] = table[b, a] = 1
    nodes, alive = imply(table, np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=np.int8))
    assert nodes[0].tolist() == [1, -1, -1]
    assert alive.tolist() == [True, False, False]


def test_branching_prefers_the_sign_that_decides_most_others() -> None:
    # Variable 1 excludes literals of 0 and 2; only open ones count.
    table = np.zeros((6, 6), dtype=np.float32)
    for a, b in ((0, 2), (3, 4)):
        table[a, b] = table[b, a] = 1
    scores = pair_scores(table, np.array([[0, 0, 0], [1, 0, 0]], dtype=np.int8))
    assert scores[0].tolist() == [3, 6, 3]
    assert scores[1][1] == 3


@pytest.mark.parametrize("with_budget", [True, False], ids=["budget", "free"])
def test_the_compiled_enumeration_equals_the_evaluation_of_all_patterns(with_budget: bool) -> None:
    rng = np.random.default_rng(3)
    compared = 0
    # In the wide networks, one flip changes more gates than one sum of bytes may have.
    for depth, width in [(2, 70), (3, 70), (4, 70)] * 8 + [(3, 600)]:
        net = deep_network(rng, 11, (11, *(width,) * (depth - 1)), diagonal=True, zeros=0.3)
        ball = bnncert.Ball("l1" if with_budget else "linf", rng.uniform(-1, 1, 11), 2.5)
        circuit, _, _ = circuit_of(net, ball, int(net.classify(ball.center)[0]))
        if circuit.inputs < 2 or pack(circuit) is None:
            continue
        budget = flip_budget(net.layers[0], circuit.neurons, ball) if with_budget else None
        home = rng.choice([-1, 1], size=circuit.inputs).astype(np.int8)
        enumerator = FlipEnumerator.of(circuit, budget, home)
        assert enumerator is not None
        node = rng.choice([0, 0, 0, 1], size=circuit.inputs).astype(np.int8)
        if budget is not None and budget.spent(node[None, :])[0] > UNITS:
            continue
        wanted = np.ones(circuit.objectives.targets, dtype=bool)
        goal = np.full(circuit.objectives.constant.size, rng.uniform(-40, -10))
        made = joined(enumerator.run(node, wanted, goal))
        patterns = all_patterns(circuit.inputs)
        patterns = patterns[np.all((node == 0) | (patterns == node), axis=1)]
        if budget is not None:
            patterns = patterns[budget.spent(patterns) <= UNITS]
        exact = evaluate(circuit, patterns)
        open_ = ~(exact.lower > goal)
        violating = {p.tobytes() for p in patterns[open_.any(axis=1)]}
        found = {p.tobytes() for p in made.violating}
        if not made.complete:
            assert len(found) == enumeration.MOST_FOUND and found <= violating
            continue
        assert made.count == len(patterns)
        assert found == violating
        least = np.where(open_, np.inf, exact.lower).min(axis=0)
        np.testing.assert_allclose(made.least, least)
        compared += 1
    assert compared > 8


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_narrowed_enumeration_equals_the_evaluation_of_all_patterns(norm: str) -> None:
    rng = np.random.default_rng(6)
    compared, narrower = 0, 0
    for number, sign_zero in enumerate(SIGN_RULES * 10):
        depth = (1, 2, 3, 4)[number % 4]
        net = deep_network(
            rng, 8, (8, *(7,) * (depth - 1)), diagonal=True, sign_zero=sign_zero, zeros=0.3
        )
        ball = bnncert.Ball(norm, rng.uniform(-1, 1, 8), 2.5)  # type: ignore[arg-type]
        circuit, _, _ = circuit_of(net, ball, int(net.classify(ball.center)[0]))
        budget = flip_budget(net.layers[0], circuit.neurons, ball)
        node = rng.choice([0, 0, 0, 1], size=circuit.inputs).astype(np.int8)
        if budget is not None:
            node, left = (part[0] for part in budget.restrict(node[None, :]))
            if left < 0:
                continue
        made = propagate(circuit, node[None, :])
        if not made.possible[0]:
            continue
        wanted = np.ones(circuit.objectives.targets, dtype=bool)
        goal = np.full(circuit.objectives.constant.size, rng.uniform(-6, 0))
        found = joined(enumerate_node(circuit, budget, made.states[0], made.last[0], wanted, goal))
        patterns = all_patterns(circuit.inputs)
        patterns = patterns[np.all((node == 0) | (patterns == node), axis=1)]
        if budget is not None:
            patterns = patterns[budget.spent(patterns) <= UNITS]
        exact = evaluate(circuit, patterns)
        open_ = ~(exact.lower > goal) & exact.possible[:, None]
        assert found.complete and found.count == len(patterns)
        assert len(found.violating) == np.count_nonzero(open_.any(axis=1))
        assert {p.tobytes() for p in found.violating} == {
            p.tobytes() for p in patterns[open_.any(axis=1)]
        }
        least = np.where(open_ | ~exact.possible[:, None], np.inf, exact.lower)
        np.testing.assert_allclose(found.least, least.min(axis=0, initial=np.inf))
        compared += 1
        small = narrowed(circuit, made.states[0], made.last[0], inputs=True)
        narrower += small.size < circuit.size
    assert compared > 15 and narrower > 5


def test_an_interrupted_search_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_search, "BATCH", 4)
    monkeypatch.setattr(pattern_search, "ENUMERATED_SIGNS", 0)
    monkeypatch.setattr(pattern_search, "MOST_PLAIN", 0)
    rng = np.random.default_rng(4)
    net = deep_network(rng, 9, (9, 8, 6), diagonal=True)
    ball = bnncert.Ball("linf", np.zeros(9), 3.5)
    circuit, _, table = circuit_of(net, ball, int(net.classify(ball.center)[0]))

    def never(pattern: np.ndarray, targets: np.ndarray) -> Realisation:
        return Realisation()

    whole = PatternSearch(circuit, table, None, never, compiled=False)
    assert whole.run(Deadline(None)).status in ("proved", "open")
    parts = PatternSearch(circuit, table, None, never, compiled=False)
    clock = Deadline(1e-9)
    with mock.patch.object(Deadline, "passed", side_effect=[False, True] * 10_000):
        runs = 0
        while parts.run(clock).status == "interrupted":
            runs += 1
    assert runs > 1
    assert parts.outcome.nodes == whole.outcome.nodes
    assert parts.outcome.status == whole.outcome.status


def test_the_minimum_is_found_for_all_targets_together() -> None:
    rng = np.random.default_rng(5)
    for _ in range(8):
        net = deep_network(rng, 3, (3, 4, 4), diagonal=True)
        center = rng.integers(-2, 3, 3) + 0.25
        ball = bnncert.Ball("l1", center, 1.6)
        label = int(net.classify(center)[0])
        result = bnncert.bound(net, ball, label, method="propagation", options=Options(seed=1))
        assert result.lower == result.upper == grid_minimum(net, ball, label)


def test_patterns_that_time_was_too_short_for_are_looked_for_later() -> None:
    rng = np.random.default_rng(7)
    ended = 0
    for _ in range(8):
        net = deep_network(rng, 5, (5, 5, 4), diagonal=True)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 5), 2.5)
        circuit, _, table = circuit_of(net, ball, int(net.classify(ball.center)[0]))
        answers = [Realisation(late=True)]

        def look(pattern: np.ndarray, targets: np.ndarray) -> Realisation:
            return answers[0]  # noqa: B023

        search = PatternSearch(circuit, table, None, look, compiled=False)
        if search.run(Deadline(None)).status == "proved":
            continue
        assert search.outcome.status == "interrupted"
        assert not search.outcome.closed.any()
        answers[0] = Realisation(found=True)
        assert search.run(Deadline(None)).status == "violated"
        ended += 1
    assert ended > 2
