"""Reachable sign patterns inside a disc: points, conflicts and ties."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import ball_feasibility, cone_guide
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, proves_infeasible
from bnncert.model.layers import ThresholdLayer

DISC = bnncert.Ball("l2", [0.0, 0.0], 1.0)


def layer_of(weights: Any, biases: Any, sign_zero: str = "plus") -> ThresholdLayer:
    rows = np.array(weights, dtype=np.float64)
    top = np.ones((2, len(weights)))
    network = bnncert.Network.from_arrays(
        [rows, top], [np.array(biases, dtype=np.float64), np.zeros(2)], sign_zero=sign_zero
    )
    return network.layers[0]


def conflict_of(check: Feasibility) -> tuple[int, ...]:
    """Return the places of the conflict, none if there is no conflict."""
    return () if check.conflict is None else tuple(check.conflict.tolist())


def check(layer: ThresholdLayer, signs: list[int], region: bnncert.Ball = DISC) -> Feasibility:
    neurons = np.arange(len(signs))
    pattern = SignPattern(layer, neurons, np.array(signs, np.int8))
    return ball_feasibility(pattern, region, Deadline(None))


def assert_reached(layer: ThresholdLayer, signs: list[int], found: Feasibility) -> None:
    assert found.exact_point is not None
    assert DISC.contains(found.exact_point)
    seen = layer.exact_signs(found.exact_point)
    assert all(a in (b, 0) for a, b in zip(seen.tolist(), signs, strict=True))


def test_the_four_quadrants_around_a_point_of_the_disc() -> None:
    layer = layer_of([[1, 0], [0, 1]], [-0.7, -0.7])
    for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1]):
        assert_reached(layer, signs, check(layer, signs))


def test_beyond_the_circle_both_neurons_conflict() -> None:
    # (0.71, 0.71) is outside the disc but inside its bounding box.
    layer = layer_of([[1, 0], [0, 1]], [-0.71, -0.71])
    assert conflict_of(check(layer, [1, 1])) == (0, 1)
    assert check(layer, [1, -1]).point is not None


def test_a_conflict_names_only_the_neurons_it_needs() -> None:
    layer = layer_of([[1, 0], [1, 1], [0, 1]], [0.0, 2.0, -1.5])
    assert conflict_of(check(layer, [1, 1, 1])) == (2,)


@pytest.mark.parametrize("radius", [0.0, 5e-324, 1e-300])
@pytest.mark.parametrize("method", ["bab", "auto"])
def test_a_ball_that_is_a_point_is_searched_without_a_division_by_its_radius(
    radius: float, method: str
) -> None:
    """All neurons are tied at the centre, and each may have either sign: the minimum is -2."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    network = bnncert.Network.from_arrays(
        [rows, np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])],
        [np.array([-0.25, -0.5, -0.25]), np.zeros(2)],
        sign_zero="either",
    )
    ball = bnncert.Ball("l2", [0.25, 0.5], radius)
    layer, neurons = network.layers[0], np.arange(3)
    found = cone_guide(SignPattern(layer, neurons, np.ones(3, dtype=np.int8)), ball, Deadline(None))
    assert found is not None
    assert found[0].tolist() == [0.25, 0.5] and not found[1].any()
    options = bnncert.Options(mode="optimum")
    result = bnncert.bound(network, ball, 0, method=method, options=options, timeout=5)
    assert result.lower <= -2.0 <= result.upper


def test_the_data_box_counts() -> None:
    layer = layer_of([[1, 1]], [-1.38])
    clipped = bnncert.Ball("l2", [0.0, 0.0], 1.0, None, [0.5, 1.0])
    assert check(layer, [1]).point is not None
    assert conflict_of(check(layer, [1], clipped)) == (0,)


@pytest.mark.parametrize(
    ("sign_zero", "signs", "reached"),
    [
        # Two equal neurons differ only where a tie may go either way.
        ("plus", [1, -1], False),
        ("minus", [1, -1], False),
        ("either", [1, -1], True),
        ("plus", [1, 1], True),
    ],
)
def test_ties_inside_the_disc_are_decided_exactly(
    sign_zero: str, signs: list[int], reached: bool
) -> None:
    layer = layer_of([[1, 1], [1, 1]], [0.25, 0.25], sign_zero)
    found = check(layer, signs)
    if reached:
        assert_reached(layer, signs, found)
    else:
        assert found.point is None
        assert conflict_of(found) == (0, 1)


def test_opposite_neurons_are_both_plus_on_their_line_only() -> None:
    layer = layer_of([[1, 3], [-1, -3]], [0.1, -0.1])
    found = check(layer, [1, 1])
    assert_reached(layer, [1, 1], found)
    assert conflict_of(check(layer, [-1, -1])) == (0, 1)


def test_a_line_that_touches_the_circle_stays_open() -> None:
    # The only candidate (3/5, 4/5) is not a float point, and no float multipliers prove less.
    layer = layer_of([[3, 4]], [-5.0])
    found = check(layer, [1])
    assert conflict_of(found) == ()
    assert found.exact_point is None or DISC.contains(found.exact_point)


def test_a_ball_of_radius_zero_is_its_centre() -> None:
    layer = layer_of([[1, 1]], [-0.5])
    point = bnncert.Ball("l2", [0.25, 0.25], 0.0)
    assert check(layer, [1], point).exact_point == (Fraction(1, 4), Fraction(1, 4))
    assert conflict_of(check(layer, [-1], point)) == (0,)


def test_no_time_means_no_answer() -> None:
    layer = layer_of([[1, 0]], [0.0])
    late = Deadline(1e-9, start=0.0)
    pattern = SignPattern(layer, np.array([0]), np.array([1], np.int8))
    found = ball_feasibility(pattern, DISC, late)
    assert found.point is None and found.conflict is None


def test_a_certificate_needs_a_negative_sum() -> None:
    layer = layer_of([[1, 0], [0, 1]], [-0.71, -0.71])
    pattern = SignPattern(layer, np.array([0, 1]), np.array([1, 1], np.int8))
    assert proves_infeasible(pattern, np.array([0.5, 0.5]), DISC)
    # One neuron alone proves nothing, and neither does the exact tie 1 - 1 = 0.
    assert not proves_infeasible(pattern, np.array([1.0, 0.0]), DISC)
    tie = SignPattern(layer_of([[1, 0]], [-1.0]), np.array([0]), np.array([1], np.int8))
    assert not proves_infeasible(tie, np.array([1.0]), DISC)
