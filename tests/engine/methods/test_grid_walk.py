"""The walk of the attack through small balls: its points, and what it finds beside brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.engine.methods.attack import SurrogateGradient
from bnncert.engine.methods.grid_walk import WALKERS, GridWalk, has_few_points
from bnncert.engine.presolve.stability import stability
from bnncert.problem import robustness

INPUTS = 12
CENTRE = np.full(INPUTS, 8.0)


def network(seed: int) -> bnncert.Network:
    """Return a network whose first layer has thresholds near the centre."""
    rng = np.random.default_rng(seed)
    sizes = (INPUTS, 14, 10, 3)
    shapes = list(itertools.pairwise(sizes))
    weights = [rng.choice([-1, 0, 1], size=(b, a), p=[0.4, 0.2, 0.4]) for a, b in shapes]
    biases = [-(weights[0] @ CENTRE) + rng.integers(-4, 5, size=sizes[1]) + 0.5]
    biases += [rng.integers(-2, 3, size=sizes[2]) + 0.5, np.array([0.0, 0.25, 0.5])]
    return bnncert.Network.from_arrays(weights, biases, input_lo=0.0, input_hi=16.0)


def region(norm: str, size: float, step: float = 1.0) -> bnncert.Ball | bnncert.L0Ball:
    grid = bnncert.Grid(step)
    if norm == "l0":
        return bnncert.L0Ball(CENTRE, size, 0.0, 16.0, within=2.0, grid=grid)
    return bnncert.Ball(norm, CENTRE, size, 0.0, 16.0, grid)  # type: ignore[arg-type]


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from([("l0", 1), ("l0", 3), ("l1", 2), ("l1", 5), ("l2", 1.5), ("l2", 2.5)]),
    step=st.sampled_from([1.0, 0.5]),
)
def test_neighbours_with_a_value_are_points_of_the_ball(
    seed: int, shape: tuple[str, float], step: float
) -> None:
    ball, net = region(*shape, step=step), network(seed)
    assert has_few_points(ball)
    problem = robustness(net, ball, 0)
    surrogate = SurrogateGradient(net, stability(net, ball), problem.targets)
    targets = np.resize(np.arange(len(problem.targets)), WALKERS)
    starts = np.tile(CENTRE, (WALKERS, 1))
    walk = GridWalk(ball, surrogate, np.random.default_rng(seed), starts, targets)
    moved = 0
    for _ in range(6):
        points, values = walk.step()
        known = np.isfinite(values).all(axis=1)
        assert all(ball.contains(point) for point in points[known])
        moved += int(np.count_nonzero(np.any(points[known] != CENTRE, axis=1)))
    assert moved > 0


def test_large_balls_and_boxes_are_left_to_gradients() -> None:
    assert not has_few_points(region("linf", 1.0))
    assert not has_few_points(region("l2", 8.0))
    assert not has_few_points(bnncert.Ball("l1", CENTRE, 2.0, 0.0, 16.0))
    assert not has_few_points(region("l0", 0))


def points_of(norm: str, size: int) -> np.ndarray:
    """Return all grid points of an L0 ball within 2, or of the L1 ball, around the centre."""
    found = [CENTRE]
    for count in range(1, size + 1):
        for places in itertools.combinations(range(INPUTS), count):
            for change in itertools.product((-2.0, -1.0, 1.0, 2.0), repeat=count):
                if norm == "l1" and sum(map(abs, change)) > size:
                    continue
                point = CENTRE.copy()
                point[list(places)] += change
                found.append(point)
    return np.array(found)


@pytest.mark.parametrize(("norm", "size"), [("l0", 2), ("l1", 2)])
def test_the_attack_finds_the_rare_counterexamples_of_brute_force(norm: str, size: int) -> None:
    everything = points_of(norm, size)
    rare = 0
    for seed in range(200):
        net = network(seed)
        label = int(net.classify(CENTRE)[0])
        scores = net.evaluate(everything)
        violated = np.delete(scores, label, axis=1).max(axis=1) >= scores[:, label]
        if violated[0] or not 0 < violated.mean() < 0.1:
            continue
        rare += 1
        result = bnncert.verify(net, region(norm, size), label, method="attack")
        assert result.status == "not_robust", seed
        if rare == 6:
            return
    raise AssertionError(f"{rare} networks have rare counterexamples; expected 6")
