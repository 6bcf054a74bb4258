"""Stable neurons and bounds against every reachable sign pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Grid
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.presolve.stability import LayerBounds, first_layer_thresholds, stability
from bnncert.model.description import ModelDescription, Normalise, Shift, Stage
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network
from bnncert.regions import Ball, Box, Polytope, Region
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.kernel.test_branches import KINDS, first_signs, geometry_of
from tests.strategies import NORMS, few, regions, tiny_networks
from tests.test_grid_against_brute_force import GridQuestion, grid_questions
from tests.tiny_convolutions import random_question

CASES = few(20)

Array = npt.NDArray[Any]


def values(weights: Array, below: Sequence[Any]) -> list[Fraction]:
    """Return W y in rationals, without the bias."""
    return [
        sum((Fraction(w) * Fraction(y) for w, y in zip(row, below, strict=True)), Fraction(0))
        for row in weights.tolist()
    ]


def following(net: TinyNetwork, layer: int, below: tuple[int, ...]) -> set[tuple[int, ...]]:
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[net.sign_zero]
    totals = [
        u + Fraction(b)
        for u, b in zip(values(net.weights[layer], below), net.biases[layer].tolist(), strict=True)
    ]
    return set(product(*((1,) if t > 0 else (-1,) if t < 0 else zero for t in totals)))


def assert_holds(
    bounds: LayerBounds, signs: Sequence[int] | Array, u: Sequence[Any], slack: float = 0.0
) -> None:
    fixed = bounds.state != 0
    np.testing.assert_array_equal(np.array(signs)[fixed], bounds.state[fixed])
    for value, lo, hi in zip(u, bounds.lower.tolist(), bounds.upper.tolist(), strict=True):
        assert lo - slack <= value <= hi + slack


@pytest.mark.parametrize("kind", NORMS)
@CASES
@given(data=st.data())
def test_bounds_and_states_hold_for_every_reachable_pattern(kind: str, data: st.DataObject) -> None:
    net = data.draw(tiny_networks())
    region = data.draw(regions(kind))
    bounds = stability(net.build(), region)
    assert len(bounds) == len(net.weights) - 1
    current = set(reachable_first_layers(net, region))
    for pattern in current:
        fixed = bounds[0].state != 0
        np.testing.assert_array_equal(np.array(pattern)[fixed], bounds[0].state[fixed])
    for i in range(1, len(bounds)):
        above = set()
        for y in current:
            for signs in following(net, i, y):
                assert_holds(bounds[i], signs, values(net.weights[i], y))
                above.add(signs)
        current = above


@pytest.mark.parametrize("kind", ["box", "linf", "l2", "l1", "polytope"])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_and_states_hold_for_samples(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(12, 5)), rng.integers(-1, 2, (9, 12)), rng.integers(-1, 2, (7, 9))]
    biases = [rng.normal(size=12), rng.integers(-3, 4, 9) / 2, rng.integers(-3, 4, 7) / 2]
    net = Network.from_arrays([*weights, np.ones((2, 7))], [*biases, np.zeros(2)])
    center = rng.normal(size=5)
    region: Region = Box(center - 0.2, center + 0.3)
    if kind == "polytope":
        region = Polytope(np.ones((1, 5)), [center.sum()], center - 0.3, center + 0.3)
    elif kind != "box":
        region = Ball(kind, center, 0.4, center - 0.3, center + 0.3)  # type: ignore[arg-type]
    bounds = stability(net, region)
    stable = sum(int(np.count_nonzero(b.state)) for b in bounds)
    assert stable > 0
    x = region.sample(rng, 1000)
    for w, b, found in zip(weights, biases, bounds, strict=True):
        u = x @ w.T
        assert np.all(found.lower - 1e-9 <= u)
        assert np.all(u <= found.upper + 1e-9)
        x = np.where(u + b >= 0, 1.0, -1.0)
        fixed = np.flatnonzero(found.state)
        np.testing.assert_array_equal(found.unstable, np.flatnonzero(found.state == 0))
        assert np.all(x[:, fixed] == found.state[fixed])


@CASES
@given(seed=st.integers(0, 10**6))
def test_first_layer_of_a_box_is_stable_exactly_when_it_must(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(6, 3)), 2 * rng.normal(size=6)
    lo, hi = np.array([-0.5, 0.0, 0.25]), np.array([0.5, 1.0, 0.3])
    net = Network.from_arrays([w, np.ones((2, 6))], [b, np.zeros(2)])
    (bounds,) = stability(net, Box(lo, hi))
    corners = np.array(list(product(*zip(lo, hi, strict=True))))
    reach = corners @ w.T + b
    smallest, largest = reach.min(axis=0), reach.max(axis=0)
    np.testing.assert_array_equal(bounds.state[smallest > 1e-9], 1)
    np.testing.assert_array_equal(bounds.state[largest < -1e-9], -1)
    np.testing.assert_array_equal(bounds.state[(smallest < -1e-9) & (largest > 1e-9)], 0)


@pytest.mark.parametrize(
    ("sign_zero", "on", "off"),
    [("plus", True, False), ("minus", False, True), ("either", False, False)],
)
def test_touching_the_threshold_is_stable_only_for_one_sign(
    sign_zero: Any, on: bool, off: bool
) -> None:
    # Both second-layer neurons see u = x + y in {-2, 0, 2}: u + 2 and u - 2 touch zero.
    net = Network.from_arrays(
        [np.eye(2), np.ones((2, 2)), np.eye(2)],
        [np.zeros(2), np.array([2.0, -2.0]), np.zeros(2)],
        sign_zero=sign_zero,
    )
    bounds = stability(net, Box([-1, -1], [1, 1]))
    assert (bounds[1].state.tolist()) == [1 if on else 0, -1 if off else 0]
    assert (bounds[1].lower.tolist(), bounds[1].upper.tolist()) == ([-2, -2], [2, 2])


@pytest.mark.parametrize(("bias", "expected"), [(1.0, 1), (-1.0, -1)])
def test_zero_rows_are_stable(bias: float, expected: int) -> None:
    net = Network.from_arrays(
        [np.zeros((1, 2)), np.zeros((1, 1)), np.ones((2, 1))], [[bias], [bias], [0.0, 0.0]]
    )
    bounds = stability(net, Ball("l2", [0.0, 0.0], 3.0))
    assert [b.state.tolist() for b in bounds] == [[expected], [expected]]


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_neurons_inside_the_enclosure_of_an_irrational_threshold_stay_open(sign_zero: Any) -> None:
    # sign(x / sqrt 2 - 1) over a box that ends between the floats around sqrt 2.
    one = np.ones(1)
    first = Stage(
        as_sparse(np.array([[1.0]])),
        (Normalise(one, -one, 0 * one, 2 * one, 0 * one),),
        "first",
        sign_zero=sign_zero,
    )
    last = Stage(as_sparse(np.array([[1.0], [-1.0]])), (Shift(np.zeros(2)),), "last")
    net = Network.from_description(ModelDescription((first, last), (1,)))
    above = float(np.sqrt(2.0))
    assert Fraction(above) ** 2 > 2
    below = float(np.nextafter(above, 0))
    assert stability(net, Box([0.0], [above]))[0].state.tolist() == [0]
    assert stability(net, Box([below], [2.0]))[0].state.tolist() == [0]
    assert stability(net, Box([1.5], [2.0]))[0].state.tolist() == [1]
    assert stability(net, Box([0.0], [1.25]))[0].state.tolist() == [-1]


@pytest.mark.parametrize("seed", range(12))
def test_convolutions_have_the_bounds_of_their_rows(seed: int) -> None:
    asked = random_question(seed, "linf" if seed % 2 else "box")
    network = asked.network
    assert asked.region.is_box
    assert network.layers[0].convolution is not None
    plain = replace(
        network, layers=tuple(replace(layer, convolution=None) for layer in network.layers)
    )
    pairs = zip(stability(network, asked.region), stability(plain, asked.region), strict=True)
    for number, (ours, rows) in enumerate(pairs):
        exact = number > 0
        np.testing.assert_allclose(ours.lower, rows.lower, rtol=0 if exact else 1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.upper, rows.upper, rtol=0 if exact else 1e-12, atol=1e-12)
        np.testing.assert_array_equal(ours.state, rows.state)


# -- thresholds of first-layer neurons on a grid, against all grid points -------------------------


def sums_of(question: GridQuestion) -> list[list[tuple[Fraction, tuple[int, ...]]]]:
    """For every neuron w.x and the signs at each grid point."""
    found: list[list[tuple[Fraction, tuple[int, ...]]]] = [[] for _ in question.net.weights[0]]
    for x in question.points:
        signs = first_signs(question.net, x)
        for j, row in enumerate(question.net.weights[0].tolist()):
            u = sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(0))
            found[j].append((u, signs[j]))
    return found


def test_every_sign_at_a_grid_point_keeps_its_threshold() -> None:
    """Those of presolve, and those of the checker, which computes them by itself."""
    counts: Counter[str] = Counter()

    @few(12)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        for kind in KINDS:
            question = data.draw(grid_questions(kind))
            layer, geometry = question.network.layers[0], geometry_of(question)
            plus, minus = first_layer_thresholds(layer, question.region)
            unit = Fraction(1, 1 << (geometry.weight_shift + geometry.point_shift))
            counts["tighter"] += int(np.any(plus > layer.plus_from))
            counts["tighter for the checker"] += int(np.any(geometry.bias[1] < geometry.high))
            for j, entries in enumerate(sums_of(question)):
                for u, signs in entries:
                    assert 1 not in signs or u >= Fraction(float(plus[j]))
                    assert -1 not in signs or u <= Fraction(float(minus[j]))
                    for s in signs:
                        value = s * (u + int(geometry.bias[s][j]) * unit)
                        assert value > 0 or (value == 0 and not geometry.loses_ties[s][j])

    check()
    assert counts["tighter"] > 0
    assert counts["tighter for the checker"] > 0


def test_pixels_are_nearly_a_lattice() -> None:
    """Values of float32 pixels are rounded; the thresholds leave room for that and no more."""
    generator = np.random.default_rng(3)
    levels = generator.integers(3, 250, 9)
    center = (levels.astype(np.float32) / np.float32(127.5) - np.float32(1)).astype(np.float64)
    ball = bnncert.Ball("l2", center, 1.5 / 127.5, -1.0, 1.0, grid=Grid(1 / 127.5, -1.0))
    weights = generator.choice([-1.0, 1.0], (40, 9))
    bias = -(weights @ center) + generator.uniform(-3, 3, 40) / 127.5
    net = TinyNetwork((weights, np.ones((2, 40))), (bias, np.zeros(2)), "plus")
    layer = net.build().layers[0]
    plus, minus = first_layer_thresholds(layer, ball)
    places = ball.values.nearest(center)  # type: ignore[union-attr]
    steps = [np.array(k) for k in product((-1, 0, 1), repeat=9) if sum(map(abs, k)) <= 2]
    points = ball.values.at(places + np.array(steps))  # type: ignore[union-attr]
    for x in points:
        for j, row in enumerate(weights):
            u = sum(Fraction(w) * Fraction(v) for w, v in zip(row, x, strict=True))
            assert u < -Fraction(bias[j]) or u >= Fraction(plus[j])
            assert u >= -Fraction(bias[j]) or u <= Fraction(minus[j])
    # Between the two there is almost a whole step.
    assert np.all(plus - minus > 0.99 / 127.5)


def test_a_pair_is_excluded_by_the_lattice_alone() -> None:
    """Between 0.5 and 1.5 there is no sum of two inputs that are -1 or 1."""
    weights = np.array([[1.0, 1.0], [-1.0, -1.0]]), np.ones((2, 2))
    network = TinyNetwork(weights, (np.array([-0.5, 1.5]), np.zeros(2)), "plus").build()
    real = presolve(network, bnncert.Box([-1.0, -1.0], [1.0, 1.0]))
    grid = presolve(network, bnncert.Box([-1.0, -1.0], [1.0, 1.0], Grid(2.0, -1.0)))
    assert real.owner.size == 2
    # One of the two signs is the opposite of the other.
    assert grid.owner.size == 1
