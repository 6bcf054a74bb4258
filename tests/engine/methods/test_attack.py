"""The attack: points on the pixel grid, inside the region, and every hit confirmed exactly."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from bnncert import Ball, Box, Network, Options, Problem, Region, verify
from bnncert.deadline import Deadline
from bnncert.engine.methods import Context
from bnncert.engine.methods.attack import Attack
from bnncert.engine.replay import Replayer
from bnncert.problem import robustness
from tests.brute_force import TinyNetwork

#: Class 0 wins iff x0 + x1 + x2 + x3 < 20.5.
SUM = Network.from_arrays([[[1, 1, 1, 1]], [[-1], [1]]], [[-20.5], [0, 0]])


def exact_scores(net: TinyNetwork, point: list[float]) -> list[Fraction]:
    """Evaluate a network with sign(0) = +1 in rationals."""
    values = [Fraction(v) for v in point]
    last = len(net.weights) - 1
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        sums = [
            sum((Fraction(p) * q for p, q in zip(row, values, strict=True)), Fraction(c))
            for row, c in zip(w.tolist(), b.tolist(), strict=True)
        ]
        values = sums if i == last else [Fraction(1 if s >= 0 else -1) for s in sums]
    return values


def random_case(seed: int) -> tuple[TinyNetwork, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    sizes = (6, 9, 7, 4)
    net = TinyNetwork(
        tuple(rng.integers(-1, 2, size=(b, a)).astype(float) for a, b in pairwise(sizes)),
        tuple(rng.integers(-4, 5, size=b) / 4 for b in sizes[1:]),
        "plus",
    )
    center = rng.integers(-4, 5, size=6) / 8
    scores = exact_scores(net, center.tolist())
    return net, center, scores.index(max(scores))


def context(problem: Problem, **options: int) -> Context:
    return Context(Options(**options), Deadline(None), Replayer(problem))  # type: ignore[arg-type]


def counterexample(network: Network, region: Region, label: int, options: Options) -> np.ndarray:
    result = verify(network, region, label, method="attack", options=options, timeout=10)
    assert result.status == "not_robust"
    assert result.counterexample is not None
    point: np.ndarray = result.counterexample.point
    return point


# --- the pixel grid --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_box_with_integer_bounds_is_searched_in_integers(seed: int) -> None:
    # The centre (5, 5, 5, 5) has sum 20, so a whole pixel must be added.
    point = counterexample(SUM, Box(np.zeros(4), np.full(4, 10.0)), 0, Options(seed=seed))
    assert point.sum() >= 21
    np.testing.assert_array_equal(point, np.rint(point))
    assert point.min() >= 0 and point.max() <= 10


# --- counterexamples -------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_every_hit_is_inside_and_exactly_wrong(norm: str) -> None:
    hits = 0
    for seed in range(12):
        net, center, label = random_case(seed)
        radius = {"linf": 0.5, "l2": 0.9, "l1": 1.75}[norm]
        region = Ball(norm, center, radius, -1.0, 1.0)  # type: ignore[arg-type]
        problem = robustness(net.build(), region, label)
        given = context(problem, restarts=16, iterations=20)
        search = Attack(problem, given, stop_at_first=False)
        search.run(given.deadline, 2)
        upper, found = search.outcome(given.deadline)
        for k, target in enumerate(problem.targets):
            hit = found[k]
            if hit is None:
                continue
            hits += 1
            point = hit.point.tolist()
            gaps = [abs(Fraction(x) - Fraction(c)) for x, c in zip(point, center, strict=True)]
            size = {"linf": max(gaps), "l1": sum(gaps), "l2": sum(g * g for g in gaps)}[norm]
            assert size <= (Fraction(radius) ** 2 if norm == "l2" else Fraction(radius))
            assert max(map(abs, point)) <= 1
            scores = exact_scores(net, point)
            assert target.rival is not None
            assert scores[label] - scores[target.rival] == hit.value <= 0
            assert hit.target == target.name
            assert upper[k] <= 0
    assert hits >= 5


def test_an_upper_bound_is_no_worse_than_the_centre() -> None:
    for seed in range(6):
        net, center, label = random_case(seed)
        scores = exact_scores(net, center.tolist())
        problem = robustness(net.build(), Ball("linf", center, 0.25), label)
        given = context(problem, restarts=8, iterations=5)
        search = Attack(problem, given)
        search.run(given.deadline, 1)
        upper, _ = search.outcome(given.deadline)
        for k, target in enumerate(problem.targets):
            assert target.rival is not None
            assert upper[k] <= scores[label] - scores[target.rival]


def test_only_the_wanted_targets_are_attacked() -> None:
    # Classes 1 and 2 have the same score everywhere, and both win once x0 >= 1/2.
    net = Network.from_arrays([[[1.0]], [[-1], [1], [1]]], [[-0.5], [0, 0, 0]])
    problem = robustness(net, Box([0.0], [2.0]), 0)
    search = Attack(problem, context(problem))
    search.look_for({"class 2"})
    search.run(Deadline(None), 2)
    _, found = search.outcome(Deadline(None))
    assert found[0] is None
    assert found[1] is not None
    assert found[1].target == "class 2"


def test_a_robust_region_stays_unknown_and_the_attack_ends() -> None:
    region = Box(np.zeros(4), np.full(4, 5.0))
    result = verify(SUM, region, 0, method="attack", options=Options(restarts=8, iterations=5))
    # 4 * 5 < 20.5: class 0 wins everywhere, by 1 - (-1) = 2.
    assert result.status == "unknown"
    assert result.counterexample is None
    assert (result.lower, result.upper) == (-math.inf, 2.0)


def test_the_attack_goes_on_until_the_deadline_and_no_longer() -> None:
    # The neuron can flip, but class 0 has at least 4 more than class 1 either way.
    network = Network.from_arrays([[[1, 1, 1, 1]], [[-1], [1]]], [[-20.5], [6, 0]])
    region = Box(np.zeros(4), np.full(4, 10.0))
    result = verify(network, region, 0, method="attack", timeout=0.3)
    assert result.status == "timeout"
    assert 0.3 <= result.seconds < 2
    assert result.upper == 4.0


def test_an_interrupted_attack_goes_on_where_it_stopped() -> None:
    # Both neurons can flip, but class 0 has more than class 1 whatever they do.
    network = Network.from_arrays(
        [[[1, 1, 1, 1], [1, -1, 1, -1]], [[-1, 2], [1, 0]]], [[-20.5, 1], [9, 0]]
    )
    problem = robustness(network, Box(np.zeros(4), np.full(4, 10.0)), 0)
    whole = Attack(problem, context(problem, restarts=4, iterations=6))
    whole.run(Deadline(None), rounds=3)
    pieces = Attack(problem, context(problem, restarts=4, iterations=6))
    calls = 0
    while pieces.rounds < 3 and calls < 100:
        pieces.run(Deadline(1e-9))
        calls += 1
    assert calls == 18, "one gradient step after the deadline, not a whole round"
    for ours, theirs in zip(
        pieces.outcome(Deadline(None)), whole.outcome(Deadline(None)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("method", ["attack", "auto"])
def test_inputs_beyond_float32_give_no_warning(method: str) -> None:
    rng = np.random.default_rng(0)
    size = 2.0**200
    network = Network.from_arrays(
        [rng.choice([-1.0, 1.0], (6, 4)), rng.choice([-1.0, 1.0], (3, 6))],
        [rng.uniform(-size, size, 6), rng.uniform(-1, 1, 3)],
    )
    region = Box(np.full(4, -size), np.full(4, size))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = verify(network, region, 0, method=method, timeout=20)
    assert result.status == "not_robust"


def test_an_attack_far_from_all_classes_is_stalled_and_one_that_comes_closer_is_not() -> None:
    # Class 1 needs all of the first 40 signs to change; the ball lets five of them change.
    weights = [np.eye(40), np.vstack([np.ones(40), -np.ones(40)])]
    network = Network.from_arrays(weights, [np.zeros(40), np.zeros(2)])
    centre = np.concatenate([np.full(5, 0.1), np.full(35, 2.0)])
    for radius, stalled in ((0.5, True), (5.0, False)):
        problem = robustness(network, Ball("linf", centre, radius), 0, "all", "violation")
        context = Context(Options(iterations=10), Deadline(None), Replayer(problem))
        attack = Attack(problem, context, stop_at_first=False)
        assert not attack.is_stalled
        attack.run(Deadline(None), 1)
        attack.run(Deadline(None), 4)
        upper, found = attack.outcome(Deadline(None))
        assert (found[0] is None) == stalled
        assert attack.is_stalled or not stalled
        if stalled:
            assert upper[0] == 60
