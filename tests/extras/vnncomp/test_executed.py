"""Witness points away from the bounds and from ties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.extras.vnncomp.executed import LEAST_SUM, as_executed, away_from_ties
from tests.strategies import few
from tests.tiny_convolutions import random_question


@given(seed=st.integers(0, 10**6))
@few(20)
def test_the_signs_stay_and_no_sum_is_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-1, 2, (5, 6))
    point = rng.integers(-3, 4, 6).astype(float)
    # The biases make half of the sums ties.
    bias = -(weights @ point) + rng.choice([0.0, 0.0, 1.0, -1.0], 5)
    network = bnncert.Network.from_arrays(
        [weights, np.ones((2, 5))], [bias, np.zeros(2)], sign_zero="plus", input_shape=(6,)
    )
    layer = network.layers[0]
    lo, hi = point - 0.5, point + 0.5
    cleared = away_from_ties(layer, point, lo, hi)
    if cleared is None:
        return
    assert np.all((lo <= cleared) & (cleared <= hi))
    np.testing.assert_array_equal(layer.exact_signs(cleared), layer.exact_signs(point))
    sums = weights @ cleared + bias
    assert np.abs(sums).min() >= LEAST_SUM


def test_ties_that_can_be_left_are_left() -> None:
    weights = np.array([[1, 1], [1, -1]])
    network = bnncert.Network.from_arrays(
        [weights, np.ones((2, 2))], [np.zeros(2), np.zeros(2)], sign_zero="plus"
    )
    cleared = away_from_ties(network.layers[0], np.zeros(2), np.full(2, -1.0), np.ones(2))
    assert cleared is not None
    assert np.all(weights @ cleared >= LEAST_SUM)
    # x1 >= 0 and -x1 >= 0 only hold together with two ties.
    stuck = bnncert.Network.from_arrays(
        [np.array([[1], [-1]]), np.ones((2, 2))], [np.zeros(2), np.zeros(2)], sign_zero="plus"
    )
    assert away_from_ties(stuck.layers[0], np.zeros(1), np.full(1, -1.0), np.ones(1)) is None


def test_a_witness_is_inside_and_away_from_ties(tmp_path: Path) -> None:
    """A counterexample in a corner, where a sum is exactly zero."""
    weights = np.array([[1.0, 1.0], [1.0, -1.0]])
    network = bnncert.Network.from_arrays(
        [weights, np.array([[1, 1], [-1, -1]])],
        [np.array([-1.0, 0.0]), np.zeros(2)],
        sign_zero="plus",
        input_lo=[-4.0] * 2,
        input_hi=[4.0] * 2,
    )
    network.save(tmp_path / "net.onnx")
    loaded = bnncert.load(tmp_path / "net.onnx")
    lines = [f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1")]
    lines += ["(assert (>= X_0 0.0))", "(assert (<= X_0 2.0))", "(assert (>= Y_0 Y_1))"]
    lines += ["(assert (>= X_1 -1.0))", "(assert (<= X_1 1.0))"]
    (tmp_path / "query.vnnlib").write_text("\n".join(lines))
    specification = bnncert.read_vnnlib(tmp_path / "query.vnnlib")
    result = bnncert.verify(loaded, specification)
    assert result.status == "not_robust"
    executed = as_executed([loaded], specification, result)
    assert executed is not None and executed.counterexample is not None
    point = executed.counterexample.point
    box = specification.disjuncts[0]
    for value, low, high in zip(point.tolist(), box.lower, box.upper, strict=True):
        assert low < value < high
    assert np.abs(weights @ point + [-1.0, 0.0]).min() >= LEAST_SUM


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_keep_their_signs(seed: int) -> None:
    asked = random_question(seed, "box")
    layer, region = asked.network.layers[0], asked.region
    cleared = away_from_ties(layer, region.center, region.lo, region.hi)
    if cleared is not None:
        assert np.all((region.lo <= cleared) & (cleared <= region.hi))
        before = layer.exact_signs(region.center)
        np.testing.assert_array_equal(layer.exact_signs(cleared), before)
