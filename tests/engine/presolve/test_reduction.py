"""The open part of a target computes what the whole network computes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.engine.presolve.reduction import UnstableProblem, reduce_target
from bnncert.engine.presolve.stability import stability
from bnncert.model.network import Network
from bnncert.problem import Objective, Target, robustness
from bnncert.regions import Ball, Box, Region
from tests.strategies import few

CASES = few(20)

Array = npt.NDArray[Any]


def whole_network(weights: list[Array], biases: list[Array], x: Array, at_zero: int) -> list[Array]:
    """Return the signs of every layer at one point (the data makes float sums exact)."""
    signs = []
    for w, b in zip(weights, biases, strict=True):
        total = w @ x + b
        x = np.where(total > 0, 1, np.where(total < 0, -1, at_zero)).astype(np.float64)
        signs.append(x)
    return signs


def open_values(reduced: UnstableProblem, first: Array) -> tuple[list[Array], list[float]]:
    """Run the reduced problem from the signs of its first layer, with nothing else."""
    signs = [first]
    for layer in reduced.layers[1:]:
        u = layer.weights.toarray().astype(np.float64) @ signs[-1]
        assert np.all((layer.lower <= u) & (u <= layer.upper))
        plus, minus = u >= layer.plus_from, u <= layer.minus_upto
        assert np.all(plus != minus)
        signs.append(np.where(plus, 1.0, -1.0))
    return signs, [float(o.coefficients @ signs[-1] + o.constant) for o in reduced.objectives]


def random_case(
    rng: np.random.Generator, sign_zero: Any, radius: float
) -> tuple[list[Array], list[Array], Network, Region]:
    sizes = [3, *(int(rng.integers(3, 8)) for _ in range(int(rng.integers(1, 4)))), 3]
    weights = [
        (rng.integers(-16, 17, (b, a)) / 16 if i == 0 else rng.integers(-1, 2, (b, a))).astype(
            float
        )
        for i, (a, b) in enumerate(pairwise(sizes))
    ]
    biases = [rng.integers(-8, 9, w.shape[0]) / 4 for w in weights]
    net = Network.from_arrays(weights, biases, sign_zero=sign_zero)
    center = rng.integers(-16, 17, 3) / 16
    region = Ball(str(rng.choice(["linf", "l2", "l1"])), center, radius)  # type: ignore[arg-type]
    return weights, biases, net, region


def dyadic_points(rng: np.random.Generator, region: Region, count: int) -> list[Array]:
    """Return points of the region with few bits, so that ties occur and sums are exact."""
    points = np.round(region.sample(rng, count) * 64) / 64
    return [p for p in points if region.contains(p)]


@pytest.mark.parametrize(("sign_zero", "at_zero"), [("plus", 1), ("minus", -1)])
@CASES
@given(seed=st.integers(0, 10**6), radius=st.sampled_from([0.125, 0.5, 2.0]))
def test_reduced_problem_has_the_values_of_the_network(
    sign_zero: str, at_zero: int, seed: int, radius: float
) -> None:
    rng = np.random.default_rng(seed)
    weights, biases, net, region = random_case(rng, sign_zero, radius)
    problem = robustness(net, region, 0)
    bounds = stability(net, region)
    for target in problem.targets:
        reduced = reduce_target(net, bounds, target)
        assert target.rival is not None
        d = weights[-1][0] - weights[-1][target.rival]
        d0 = biases[-1][0] - biases[-1][target.rival]
        for x in dyadic_points(rng, region, 20):
            signs = whole_network(weights[:-1], biases[:-1], x, at_zero)
            first = reduced.layers[0]
            # The first layer's thresholds, over the inputs it still reads.
            u = first.weights.toarray() @ x[first.inputs]
            is_on = signs[0][first.index] > 0
            assert np.all(u[is_on] >= first.plus_from[is_on])
            assert np.all(u[~is_on] <= first.minus_upto[~is_on])
            assert np.all((first.lower <= u) & (u <= first.upper))
            found, values = open_values(reduced, signs[0][first.index])
            for layer, mine, all_signs, state in zip(
                reduced.layers, found, signs, reduced.fixed, strict=True
            ):
                np.testing.assert_array_equal(mine, all_signs[layer.index])
                np.testing.assert_array_equal(all_signs[state != 0], state[state != 0])
            assert values == [d @ signs[-1] + d0]
            (objective,) = reduced.objectives
            assert objective.slack <= (0.0 if d0 == np.rint(d0) else 1e-12)


def test_real_bias_describes_the_open_neuron() -> None:
    rng = np.random.default_rng(5)
    checked = 0
    for _ in range(30):
        weights, biases, net, region = random_case(rng, "plus", 0.5)
        target = robustness(net, region, 0).targets[0]
        reduced = reduce_target(net, stability(net, region), target)
        for x in dyadic_points(rng, region, 5):
            signs = whole_network(weights[:-1], biases[:-1], x, 1)
            below = [x, *signs[:-1]]
            for layer, y, s in zip(reduced.layers, below, signs, strict=True):
                u = layer.weights.toarray() @ y[layer.inputs]
                np.testing.assert_array_equal(np.where(u + layer.bias >= 0, 1, -1), s[layer.index])
                checked += layer.size
    assert checked > 100


def test_ties_that_may_go_either_way_stay_open_on_both_sides() -> None:
    # Second layer: u = x + y with threshold 0, a tie at u = 0.
    net = Network.from_arrays(
        [np.eye(2), np.ones((1, 2)), np.array([[1.0], [-1.0]])],
        [np.zeros(2), np.zeros(1), np.zeros(2)],
        sign_zero="either",
    )
    region = Box([-1, -1], [1, 1])
    reduced = reduce_target(net, stability(net, region), robustness(net, region, 0).targets[0])
    layer = reduced.layers[1]
    assert (layer.plus_from.tolist(), layer.minus_upto.tolist()) == ([0.0], [0.0])


def test_neurons_without_influence_are_dropped() -> None:
    # The score difference reads neuron 0 only, which reads neurons 0 and 1, which read input 0.
    weights = [
        np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]),
        np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        np.array([[1.0, 1.0], [-1.0, 1.0]]),
    ]
    biases = [np.array([0.0, 0.5, 0.0]), np.array([0.5, 0.5]), np.zeros(2)]
    net = Network.from_arrays(weights, biases)
    region = Box([-1, -1], [1, 1])
    reduced = reduce_target(net, stability(net, region), robustness(net, region, 0).targets[0])
    assert [layer.index.tolist() for layer in reduced.layers] == [[0, 1], [0]]
    assert [layer.inputs.tolist() for layer in reduced.layers] == [[0], [0, 1]]
    assert [o.coefficients.tolist() for o in reduced.objectives] == [[2.0]]


def test_fixed_neurons_move_into_thresholds_and_constants() -> None:
    # Over [1, 2] x [-1, 1] the first neuron is +1, so u = 1 + y and f = 3 x_2 + 2.
    net = Network.from_arrays(
        [np.eye(2), np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[2.0, 1.0], [-1.0, -1.0]])],
        [np.zeros(2), np.array([-1.0, 0.5]), np.zeros(2)],
    )
    region = Box([1, -1], [2, 1])
    reduced = reduce_target(net, stability(net, region), robustness(net, region, 0).targets[0])
    first, second = reduced.layers
    assert (first.index.tolist(), first.inputs.tolist()) == ([1], [1])
    assert (second.index.tolist(), second.inputs.tolist()) == ([0], [1])
    # 1 + y >= 1 iff y >= 0; on {-1, 1} the threshold is 1.
    assert (second.plus_from.tolist(), second.minus_upto.tolist()) == ([1.0], [-1.0])
    assert (second.lower.tolist(), second.upper.tolist()) == ([-1.0], [1.0])
    (objective,) = reduced.objectives
    assert (objective.coefficients.tolist(), objective.constant) == ([3.0], 2.0)
    assert [s.tolist() for s in reduced.fixed] == [[1, 0], [0, 1]]


def test_a_problem_with_nothing_open_is_a_constant() -> None:
    net = Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.array([0.25, 0.0])])
    region = Box([1, -2], [2, -1])
    reduced = reduce_target(net, stability(net, region), robustness(net, region, 0).targets[0])
    assert [layer.size for layer in reduced.layers] == [0]
    assert [(o.coefficients.size, o.constant) for o in reduced.objectives] == [(0, 2.25)]


@CASES
@given(seed=st.integers(0, 10**6), error=st.sampled_from([0.0, 1e-6]))
def test_slack_covers_the_rounding_of_the_fixed_part(seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    n = 20
    net = Network.from_arrays([np.eye(n), np.eye(n)], [np.zeros(n), np.zeros(n)])
    # Most inputs have a fixed sign.
    center = rng.choice([-2.0, 0.5, 2.0], n)
    region = Box(center - 1, center + 1)
    objective = Objective(rng.normal(size=n) * 10.0 ** rng.integers(-5, 5, n), 0.1, error)
    reduced = reduce_target(net, stability(net, region), Target("t", (objective,)))
    (layer,), (held,) = reduced.layers, reduced.objectives
    slack = Fraction(held.slack) - Fraction(error)
    assert slack >= 0
    for signs in np.sign(region.sample(rng, 5)):
        mine = Fraction(held.constant) + sum(
            (
                Fraction(c) * int(s)
                for c, s in zip(held.coefficients.tolist(), signs[layer.index], strict=True)
            ),
            Fraction(0),
        )
        full = Fraction(objective.constant) + sum(
            Fraction(c) * int(s)
            for c, s in zip(objective.coefficients.tolist(), signs, strict=True)
        )
        assert abs(mine - full) <= slack
