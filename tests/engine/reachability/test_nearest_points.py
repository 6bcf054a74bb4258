"""Feasibility by sweeps over the dual: points have the signs, and conflicts are proved."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import exact_feasibility
from bnncert.engine.reachability.fast_signs import NearestPoints
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, proves_infeasible
from bnncert.model.layers import ThresholdLayer
from tests.engine.reachability.test_ball import layer_of


def find(layer: ThresholdLayer, signs: Any, region: bnncert.Region) -> Feasibility | None:
    everyone = np.arange(layer.bias.size)
    pattern = SignPattern(layer, everyone, np.array(signs, dtype=np.int8))
    points = NearestPoints.of(layer, everyone, region)
    assert points is not None
    return points.find(everyone, pattern)


def regions() -> list[bnncert.Region]:
    middle = np.array([0.2, -0.4, 0.9])
    return [
        bnncert.Ball("l2", middle, 0.8, -1.0, 1.0),
        bnncert.Ball("l2", middle, 5.0),
        bnncert.Ball("linf", middle, 0.5, -1.0, 1.0),
        bnncert.Box([-1.0, 0.0, 0.25], [0.5, 0.0, 2.0]),
    ]


@pytest.mark.parametrize("region", regions(), ids=["l2", "large l2", "linf", "box"])
@pytest.mark.parametrize("seed", range(4))
def test_all_patterns_of_five_neurons(region: bnncert.Region, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layer = layer_of(rng.standard_normal((5, 3)).round(2), rng.standard_normal(5).round(2))
    decided = 0
    for signs in product((1, -1), repeat=5):
        pattern = SignPattern(layer, np.arange(5), np.array(signs, dtype=np.int8))
        found = find(layer, signs, region)
        exact = exact_feasibility(pattern, region, Deadline(None))
        decided += found is not None
        if found is not None and found.conflict is not None:
            assert exact.point is None
            assert isinstance(found.multipliers, np.ndarray)
            part = pattern.part(found.conflict)
            assert proves_infeasible(part, found.multipliers, region)
        elif found is not None:
            assert found.point is not None
            inside = region.settle(found.point)
            assert inside is not None and np.abs(inside - found.point).max() < 1e-8
            assert pattern.holds_at(inside) and exact.conflict is None
    # The others are nearly ties, or rows nearly parallel, which need more sweeps.
    assert decided >= 20


@pytest.mark.parametrize("region", regions()[:1] + regions()[2:3], ids=["l2", "linf"])
def test_some_neurons_of_many_inputs(region: bnncert.Region) -> None:
    rng = np.random.default_rng(8)
    center = rng.uniform(-1, 1, 60)
    wide = bnncert.Ball(region.norm, center, 0.3, -1.0, 1.0)  # type: ignore[arg-type]
    weights = rng.integers(-1, 2, (12, 60)).astype(np.float64)
    layer = layer_of(weights, -weights @ center + rng.uniform(-1, 1, 12))
    points = NearestPoints.of(layer, np.arange(2, 12), wide)
    assert points is not None
    places = np.array([0, 3, 4, 9])
    for signs in product((1, -1), repeat=4):
        pattern = SignPattern(layer, places + 2, np.array(signs, dtype=np.int8))
        found = points.find(places, pattern)
        exact = exact_feasibility(pattern, wide, Deadline(None))
        assert found is not None
        assert (found.conflict is None) == (exact.conflict is None)


def test_a_tie_is_left_to_the_solver() -> None:
    layer = layer_of([[1, 0], [0, 1], [-1, -1]], [0.0, 0.0, 0.0])
    assert find(layer, [1, 1, 1], bnncert.Ball("linf", [0.0, 0.0], 1.0)) is None


def test_multipliers_that_prove_nothing_are_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is wrong about a conflict does not close a node."""
    layer = layer_of([[1, 0], [0, 1]], [-0.5, -0.5])
    wrong = (np.zeros(2), -1)
    monkeypatch.setattr(
        "bnncert.engine.reachability.nearest_loop.nearest", lambda *a: (a[-1].fill(1.0), wrong)[1]
    )
    assert find(layer, [1, 1], bnncert.Ball("l2", [0.0, 0.0], 1.0)) is None


def test_neurons_without_weights() -> None:
    layer = layer_of([[0, 0], [1, 0]], [-0.5, 0.0])
    for region in (bnncert.Ball("l2", [0.0, 0.0], 1.0), bnncert.Ball("linf", [0.0, 0.0], 1.0)):
        found = find(layer, [1, 1], region)
        assert found is not None and found.conflict is not None
        assert found.conflict.tolist() == [0]
        found = find(layer, [-1, 1], region)
        assert found is not None and found.point is not None


def test_other_regions_have_a_solver() -> None:
    layer = layer_of([[1, 0], [0, 1]], [0.0, 0.0])
    neurons = np.arange(2)
    others = [
        bnncert.Ball("l1", [0.0, 0.0], 1.0),
        bnncert.Ball("l2", [0.0, 0.0], 0.0),
        bnncert.Ball("linf", [0.0, 0.0], 0.0),
    ]
    for region in others:
        assert NearestPoints.of(layer, neurons, region) is None
