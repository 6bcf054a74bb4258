"""The enumeration of the patterns that a box has, against exact feasibility checks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.feasibility import SignPattern, proves_infeasible
from bnncert.engine.search.patterns import cells as cell_module
from bnncert.engine.search.patterns import pattern_search
from bnncert.engine.search.patterns.cells import BoxRows, CellEnumerator
from bnncert.engine.search.patterns.cells_loop import exclude_node
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.enumeration import Enumerated, FlipEnumerator
from bnncert.engine.search.patterns.interval_propagation import evaluate
from tests.brute_force import TinyNetwork, true_margins
from tests.engine.search.patterns.test_search import all_patterns, circuit_of, deep_network
from tests.random_questions import random_region

#: The weights of a network with three layers of signs.
SHAPES = ((6, 2), (7, 6), (5, 7), (3, 5))

Found = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def is_reached(
    net: bnncert.Network, region: bnncert.Region, neurons: np.ndarray, signs: np.ndarray
) -> bool:
    """Whether some input has signs of first-layer neurons, by exact arithmetic."""
    pattern = SignPattern(net.layers[0], neurons, signs.astype(np.int8))
    found = exact_feasibility(pattern, region, Deadline(None))
    assert (found.conflict is None) != (found.exact_point is None)
    return found.conflict is None


def enumerator_of(
    net: bnncert.Network, ball: bnncert.Ball, found: Found
) -> tuple[CellEnumerator, Circuit] | None:
    """Return an enumerator that notes its proofs, and its circuit."""
    circuit, _, table = circuit_of(net, ball, int(net.classify(ball.center)[0]))
    signs = net.layers[0].exact_signs(ball.center)[circuit.neurons]
    home = np.where(signs == -1, -1, 1).astype(np.int8)
    made = CellEnumerator.of(
        circuit, net.layers[0], ball, table, home, lambda *proof: found.append(proof)
    )
    return None if made is None else (made, circuit)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_negative_infeasibility_is_a_proof(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = deep_network(rng, 3, (6, 2), diagonal=False, zeros=0.1)
    ball = bnncert.Ball("linf", rng.uniform(-1, 1, 3), float(rng.uniform(0.1, 1.5)), -1.0, 1.5)
    neurons = np.arange(6)
    rows = BoxRows.of(net.layers[0], neurons, ball)
    points = ball.sample(rng, 50)
    signed = rng.integers(-3, 4, 6) * rng.uniform(0, 1, 6)
    # F = |sum theta_j s_j w_j|_1 + sum theta_j need_j, as the compiled check computes it.
    need = np.where(signed > 0, rows.need[0], rows.need[1])
    value = float(np.abs(signed @ rows.rows).sum() + np.abs(signed) @ need)
    used = np.flatnonzero(signed)
    sums = points @ net.layers[0].weights.toarray().T + net.layers[0].bias
    # F is an upper bound of the combination of the sums.
    assert np.all(sums @ signed <= value + 1e-9)
    if value < 0:
        assert not is_reached(net, ball, used, np.sign(signed[used]))


def test_tiny_and_undefined_numbers_prove_nothing() -> None:
    rows = BoxRows(np.array([[1e-305], [-1e-305]]), np.array([[-1e5, -1e5], [1e5, 1e5]]))
    assert rows.order.tolist() == [0, 1]
    # x >= 2 in [-1, 1].
    check = BoxRows(np.ones((1, 1)), np.array([[-2.0], [2.0]])).checked
    undefined = check._replace(need=np.full((2, 1), np.nan))
    for one, expected in ((check, True), (undefined, False)):
        proofs = np.zeros((1, 1)), np.zeros(3, dtype=np.int64)
        found = exclude_node(one, np.zeros(1, np.int64), np.ones(1, np.int64), 8, proofs)
        assert found == expected


@pytest.mark.parametrize("unchecked", [0, 2])
def test_every_pattern_of_the_box_is_evaluated(
    unchecked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_module, "UNCHECKED", unchecked)
    rng = np.random.default_rng(unchecked)
    counts: Counter[str] = Counter()
    for _ in range(25):
        net = deep_network(rng, 4, (6, 7, 5), diagonal=False, zeros=0.3)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 4), float(rng.uniform(0.5, 1.5)), -2.0, 1.5)
        proofs: Found = []
        made = enumerator_of(net, ball, proofs)
        if made is None or made[1].inputs < 3:
            continue
        enumerator, circuit = made
        node = rng.choice([0, 0, 0, 1, -1], size=circuit.inputs).astype(np.int8)
        # No value is good enough, so that every pattern that is evaluated is also found.
        goal = np.full(circuit.objectives.constant.size, np.inf)
        result = enumerator.run(node, np.ones(circuit.objectives.targets, dtype=bool), goal)
        assert result.complete
        kept = {row.tobytes() for row in result.violating}
        for row in all_patterns(circuit.inputs):
            inside = bool(np.all((node == 0) | (row == node)))
            reached = inside and is_reached(net, ball, circuit.neurons, row)
            counts["reached"] += reached
            if reached:
                assert row.tobytes() in kept
            elif inside:
                counts["excluded" if row.tobytes() not in kept else "missed"] += 1
            else:
                assert row.tobytes() not in kept
        fixed = np.flatnonzero(node)
        if enumerator.excludes(node):
            counts["nodes"] += 1
            assert not kept
            assert not is_reached(net, ball, circuit.neurons[fixed], node[fixed])
        for variables, signs, theta in proofs:
            part = SignPattern(net.layers[0], circuit.neurons[variables], signs)
            assert proves_infeasible(part, theta, ball)
            assert not is_reached(net, ball, circuit.neurons[variables], signs)
            counts["proofs"] += 1
    assert counts["reached"] > 100 and counts["nodes"] > 0 and counts["proofs"] > 10
    # Violating patterns get many sweeps, so that hardly any is left that the box does not have.
    assert counts["excluded"] > 10 * counts["missed"]


def test_what_is_evaluated_equals_the_evaluation_by_products() -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for width in [70, 130] * 10:
        net = deep_network(rng, 9, (12, width, width), diagonal=False, zeros=0.3)
        ball = bnncert.Ball("linf", rng.uniform(-1, 1, 9), 0.35)
        made = enumerator_of(net, ball, [])
        if made is None or not 4 <= made[1].inputs <= 10:
            continue
        enumerator, circuit = made
        wanted = np.ones(circuit.objectives.targets, dtype=bool)
        patterns = all_patterns(circuit.inputs)
        exact = evaluate(circuit, patterns)
        # Not a value that occurs: rounding does not decide.
        goal = np.full(
            circuit.objectives.constant.size, float(np.quantile(exact.lower, 0.02)) + 1e-3
        )
        result = enumerator.run(np.zeros(circuit.inputs, dtype=np.int8), wanted, goal)
        reaching = {p.tobytes() for p in patterns[np.any(exact.lower <= goal, axis=1)]}
        assert {p.tobytes() for p in result.violating} <= reaching
        if not result.complete:
            continue
        found = {p.tobytes() for p in result.violating}
        signs = [net.layers[0].exact_signs(point) for point in ball.sample(rng, 300)]
        reached = np.unique(np.array(signs)[:, circuit.neurons], axis=0)
        for row, lower in zip(reached, evaluate(circuit, reached).lower, strict=True):
            assert (row.tobytes() in found) == bool(np.any(lower <= goal))
            assert np.all((result.least <= lower + 1e-6) | (lower <= goal))
        compared += len(reached)
    assert compared > 100


@pytest.mark.parametrize("kind", ["linf", "box"])
def test_searches_over_the_patterns_of_a_box_agree_with_brute_force(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every node is left to the checks, and split until few signs are open.
    monkeypatch.setattr(pattern_search, "FEW_SIGNS", 0)
    monkeypatch.setattr(pattern_search, "MOST_SETS", 0)
    monkeypatch.setattr(pattern_search, "MOST_OPEN", 2)
    monkeypatch.setattr(cell_module, "UNCHECKED", 1)
    for enumerator in (CellEnumerator, FlipEnumerator):
        monkeypatch.setattr(enumerator, "is_ready", lambda *_: True)
    checked, run = 0, CellEnumerator.run

    def counted(*arguments: Any) -> Enumerated:
        nonlocal checked
        checked += 1
        return run(*arguments)

    monkeypatch.setattr(CellEnumerator, "run", counted)
    rng = np.random.default_rng(8)
    statuses: Counter[str] = Counter()
    for number in range(30):
        zero = ("plus", "minus")[number % 2]
        tiny = TinyNetwork(
            tuple(rng.choice([-1.0, 0.0, 1.0], shape, p=[0.4, 0.2, 0.4]) for shape in SHAPES),
            tuple(rng.integers(-2, 3, rows) / 2 for rows, _ in SHAPES),
            zero,
        )
        net, region = tiny.build(), random_region(rng, kind, 2)
        label = int(net.classify(region.center)[0])
        result = bnncert.verify(net, region, label, method="propagation")
        margins = true_margins(tiny, region, label).values()
        assert result.status == ("robust" if all(m > 0 for m in margins) else "not_robust")
        statuses[result.status] += 1
    assert checked > 8
    assert min(statuses["robust"], statuses["not_robust"]) > 3
