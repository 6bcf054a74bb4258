"""Every method on grids against brute force over all grid points, on tiny networks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Grid
from bnncert.engine.methods import REGISTRY
from bnncert.engine.search.patterns.flips import UNITS, flip_budget
from bnncert.engine.verdict import Result
from bnncert.problem import Ties
from bnncert.regions import EmptyRegionError
from tests.brute_force import TinyNetwork, TinyQuestion, last_layers_at, scores_of
from tests.every_mode import MODES, agree_in_every_mode, answer
from tests.strategies import drawn, few, tiny_networks

METHODS = [m.name for m in REGISTRY.all() if m.available()]
KINDS = ("linf", "l1", "l2", "l0", "box", "polytope")

#: Examples of each kind of region for a method; the slow ones get fewer.
MANY, FEWER = 2, {"sdp-order2": 2}


@dataclass(frozen=True, eq=False)
class GridQuestion(TinyQuestion):
    """A question about the grid points of a region, which are listed one by one."""

    points: tuple[tuple[Fraction, ...], ...] = ()

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        lasts = set().union(*(last_layers_at(self.net, x) for x in self.points))
        return scores_of(self.net, lasts)

    def check(self, result: Result, ties: str = "violation") -> None:
        super().check(result, ties)
        found = result.counterexample
        if found is not None:
            exact = found.exact or tuple(map(Fraction, found.point.tolist()))
            assert exact in self.points


def quarters(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda v: v / 4)


@st.composite
def grid_regions(
    draw: st.DrawFn, kind: str, *, inputs: int = 2
) -> tuple[bnncert.Region, tuple[tuple[Fraction, ...], ...]] | None:
    """A region on a grid and all its points; None if it has no points."""
    step, origin = draw(st.sampled_from([0.25, 0.5, 0.75, 1.0, 2.0])), draw(quarters(-4, 4))
    vector = st.lists(quarters(-6, 6), min_size=inputs, max_size=inputs)
    grid = Grid(step, origin)
    center, radius = draw(vector), draw(quarters(0, 10))
    if draw(st.booleans()):
        center = [origin + step * round((c - origin) / step) for c in center]
    if kind == "l0":
        center = [origin + step * round((c - origin) / step) for c in center]
    matrix, right = [draw(vector)], [draw(quarters(-4, 8))]
    changes = draw(st.integers(0, inputs))
    values = [Fraction(origin) + Fraction(step) * k for k in range(-60, 60)]

    def inside(x: tuple[Fraction, ...]) -> bool:
        gaps = [abs(v - Fraction(c)) for v, c in zip(x, center, strict=True)]
        if kind == "l1":
            return sum(gaps) <= Fraction(radius)
        if kind == "l2":
            return sum(g * g for g in gaps) <= Fraction(radius) ** 2
        if kind == "l0" and sum(g > 0 for g in gaps) > changes:
            return False
        dot = sum((Fraction(a) * v for a, v in zip(matrix[0], x, strict=True)), Fraction(0))
        return max(gaps) <= Fraction(radius) and (kind != "polytope" or dot <= Fraction(right[0]))

    near = [[v for v in values if abs(v - Fraction(c)) <= Fraction(radius)] for c in center]
    points = tuple(x for x in product(*near) if inside(x))
    lo, hi = [c - radius for c in center], [c + radius for c in center]
    try:
        if kind == "l0":
            return bnncert.L0Ball(center, changes, within=radius, grid=grid), points
        if kind == "box":
            return bnncert.Box(lo, hi, grid), points
        if kind == "polytope":
            return bnncert.Polytope(matrix, right, lo, hi, grid), points
        return bnncert.Ball(kind, center, radius, grid=grid), points  # type: ignore[arg-type]
    except EmptyRegionError:
        return None if not points else pytest.fail(f"not empty: {points}")


@st.composite
def grid_questions(draw: st.DrawFn, kind: str, net: TinyNetwork | None = None) -> GridQuestion:
    """Questions with at least one grid point."""
    net = draw(tiny_networks()) if net is None else net
    made = draw(grid_regions(kind, inputs=net.weights[0].shape[1]).filter(lambda m: m and m[1]))
    assert made is not None
    label = draw(st.integers(0, net.weights[-1].shape[0] - 1))
    return GridQuestion(net, made[0], label, made[1])


@st.composite
def binarised(draw: st.DrawFn) -> TinyNetwork:
    """Networks whose first layer binarises each of three inputs."""
    net = draw(tiny_networks(inputs=3, max_depth=2))
    signs = draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3))
    bias = draw(st.lists(quarters(-6, 6), min_size=3, max_size=3))
    return TinyNetwork((np.diag(signs), *net.weights), (np.array(bias), *net.biases), net.sign_zero)


@cache
def asked(kind: str) -> list[GridQuestion]:
    """Return questions that all methods are asked; the first that are drawn are the smallest."""
    return drawn(grid_questions(kind), 4 * MANY)[-MANY:]


@pytest.mark.parametrize("method", METHODS)
def test_bounds_and_statuses_agree_with_all_grid_points(method: str) -> None:
    engine = REGISTRY.make(method)
    statuses: Counter[str] = Counter()
    for kind in set(KINDS) & set(engine.regions.split(", ")):
        for question in asked(kind)[: FEWER.get(method, MANY)]:
            statuses.update(agree_in_every_mode(question, method))
    if "bound" in engine.promises:
        assert statuses["robust"] > 0
    if "counterexample" in engine.promises:
        assert statuses["not_robust"] > 0


@pytest.mark.parametrize("kind", ["l1", "l2", "l0", "linf"])
@few(8)
@given(data=st.data())
def test_binarised_pixels_are_decided_by_their_budget(kind: str, data: st.DataObject) -> None:
    question = data.draw(grid_questions(kind, data.draw(binarised())))
    for ties, mode in product(get_args(Ties), MODES):
        result = answer(question, "propagation", ties, mode)
        assert result.status == question.expected(ties)
        if mode == "optimum":
            for target, minimum in question.targets(result):
                assert target.lower == target.upper == minimum


def test_a_flip_costs_the_first_grid_value_with_the_other_sign() -> None:
    """Thresholds at 0.1 and at 1 from the centre, where sign(0) is +1: 1 and 2 pixels."""
    net = TinyNetwork(
        (np.diag([1.0, 1.0]), np.ones((2, 2))), (np.array([0.1, 1.0]), np.zeros(2)), "plus"
    )
    layer = net.build().layers[0]
    neurons = np.arange(2)
    ball = bnncert.Ball("l1", [0.0, 0.0], 4.0, -5.0, 5.0, grid=1.0)
    budget = flip_budget(layer, neurons, ball)
    assert budget is not None
    assert np.allclose(4 * budget.cost / UNITS, [1.0, 2.0], atol=1e-4)
    real = flip_budget(layer, neurons, bnncert.Ball("l1", [0.0, 0.0], 4.0, -5.0, 5.0))
    assert real is not None
    assert np.allclose(4 * real.cost / UNITS, [0.1, 1.0], atol=1e-4)
    # In a data box that ends at -1, the second sign cannot change.
    narrow = bnncert.Ball("l1", [0.0, 0.0], 4.0, -1.0, 5.0, grid=1.0)
    budget = flip_budget(layer, neurons, narrow)
    assert budget is not None
    assert budget.cost[1] > UNITS
