"""Tiny questions about numbers of points, and brute force over all points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from hypothesis import strategies as st

import bnncert
from bnncert import Ball, Box, Grid, L0Ball, Network
from bnncert.model.description import SignZero
from bnncert.problem import Ties, robustness
from bnncert.questions.count.count_answer import CountResult
from bnncert.regions import Region
from tests.brute_force import TinyNetwork, last_layers_at, scores_of
from tests.strategies import tiny_networks


@dataclass(frozen=True, eq=False)
class CountQuestion:
    """How many points of a region have another class than the label?"""

    net: TinyNetwork
    region: Region
    #: For each input the values on the grid, inside the region or not.
    values: tuple[tuple[float, ...], ...]
    label: int
    ties: Ties = "violation"

    @cached_property
    def network(self) -> Network:
        return self.net.build()

    @property
    def problem(self) -> bnncert.Problem:
        return robustness(self.network, self.region, self.label, ties=self.ties)

    @cached_property
    def points(self) -> list[tuple[float, ...]]:
        return [p for p in product(*self.values) if self.region.contains(np.array(p))]

    def is_changed(self, point: tuple[float, ...]) -> bool:
        """Whether some choice at ties gives the point another class, in rationals."""
        exact = tuple(map(Fraction, point))
        for scores in scores_of(self.net, last_layers_at(self.net, exact)):
            best = max(s for k, s in enumerate(scores) if k != self.label)
            if best > scores[self.label] or (
                best == scores[self.label] and self.ties == "violation"
            ):
                return True
        return False

    @cached_property
    def truth(self) -> int:
        return sum(map(self.is_changed, self.points))

    def count(self, **settings: Any) -> CountResult:
        return bnncert.count(
            *(self.network, self.region, self.label), ties=self.ties, timeout=60, **settings
        )


def _random_network(inputs: int) -> Callable[[int], TinyNetwork]:
    def network(seed: int) -> TinyNetwork:
        generator = np.random.default_rng(seed)
        hidden = generator.integers(2, 5, int(generator.integers(1, 4))).tolist()
        sizes = (inputs, *hidden, int(generator.integers(2, 4)))
        weights = [generator.integers(-1, 2, (b, a)) * 1.0 for a, b in pairwise(sizes)]
        biases = [generator.integers(-2, 3, n) / 2 for n in sizes[1:]]
        zeros: tuple[SignZero, ...] = ("plus", "minus", "either")
        return TinyNetwork(tuple(weights), tuple(biases), zeros[seed % 3])

    return network


@st.composite
def count_questions(draw: st.DrawFn, kind: str) -> CountQuestion:
    """Networks of 2 to 4 inputs with 2 to 5 values each; some grids are not exact in binary."""
    inputs = draw(st.integers(2, 4))
    seeds = st.integers(2**20, 2**31).map(_random_network(inputs))
    net = draw(st.one_of(seeds, tiny_networks(inputs=inputs), seeds))
    step = draw(st.sampled_from([1.0, 0.5, 0.1, 1 / 3]))
    most = draw(st.integers(1, 4 if inputs < 4 else 2))
    values = [i * step for i in range(most + 1)]
    grid, hi = Grid(step), values[-1]
    places = st.lists(st.sampled_from(values), min_size=inputs, max_size=inputs)
    region: Region
    if kind == "box":
        corners = sorted(zip(draw(places), draw(places), strict=True))
        ends = np.sort(np.array(corners), axis=1)
        region = Box(ends[:, 0], ends[:, 1], grid=grid)
    elif kind == "linf":
        radius = draw(st.sampled_from([1, 2, 0, 3])) * step
        region = Ball("linf", draw(places), radius, 0, hi, grid=grid)
    else:
        changes, within = draw(st.integers(0, inputs)), draw(st.sampled_from([None, step]))
        region = L0Ball(draw(places), changes, 0, hi, within, grid=grid)
    label = draw(st.integers(0, net.weights[-1].shape[0] - 1))
    ties: Ties = draw(st.sampled_from(["violation", "robust"]))
    # Grids are in float32 if the numbers that state the region are.
    both = sorted({*values, *np.float32(values).astype(float).tolist()})
    return CountQuestion(net, region, (tuple(both),) * inputs, label, ties)


def binary_question(
    inputs: int, seed: int, *, changes: int | None = None, levels: int = 2
) -> CountQuestion:
    """A random network with two hidden layers over inputs -n, 2 - n, .., n, with levels n + 1."""
    generator = np.random.default_rng(seed)
    sizes = (inputs, 12, 10, 3)
    weights = [generator.integers(-1, 2, (b, a)).astype(float) for a, b in pairwise(sizes)]
    biases = [generator.integers(-3, 4, n) / 2 for n in sizes[1:]]
    net = TinyNetwork(tuple(weights), tuple(biases), "plus")
    most = levels - 1
    values = tuple(float(v) for v in range(-most, most + 1, 2))
    centre = generator.choice(values, inputs)
    region: Region = Box([-most] * inputs, [most] * inputs, grid=Grid(2, -most))
    if changes is not None:
        region = L0Ball(centre, changes, -most, most, grid=Grid(2, -most))
    label = int(net.build().classify(centre)[0])
    return CountQuestion(net, region, (values,) * inputs, label)


def fast_truth(question: CountQuestion) -> int:
    """Return the number of changed points by evaluation of all points in floating point.

    It is exact for integer weights and inputs of few binary digits.
    """
    points = np.array(list(product(*question.values)))
    ball = question.region
    if isinstance(ball, L0Ball):
        points = points[(points != ball.middle).sum(axis=1) <= ball.changes]
    x = points
    for w, b in zip(question.net.weights[:-1], question.net.biases[:-1], strict=True):
        x = np.where(x @ w.T + b >= 0, 1.0, -1.0)
    scores = x @ question.net.weights[-1].T + question.net.biases[-1]
    own = scores[:, question.label].copy()
    scores[:, question.label] = -np.inf
    return int(np.count_nonzero(scores.max(axis=1) >= own))
