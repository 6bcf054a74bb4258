"""Thresholds of first-layer neurons on a grid, against all grid points."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import bnncert
from bnncert import Grid
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.presolve.stability import first_layer_thresholds
from tests.brute_force import TinyNetwork
from tests.every_mode import few
from tests.kernel.test_branches import KINDS, first_signs, geometry_of
from tests.test_grid_against_brute_force import GridQuestion, grid_questions


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
