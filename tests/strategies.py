"""Hypothesis strategies: tiny networks and regions whose data makes ties common."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.model.description import SignZero
from tests.brute_force import TinyNetwork, TinyQuestion

T = TypeVar("T")

NORMS = ("linf", "l1", "box", "polytope")


def few(examples: int) -> settings:
    """Settings of a test with the same examples in every run, however long they take."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        derandomize=True,
    )


def drawn(strategy: st.SearchStrategy[T], examples: int) -> list[T]:
    """Return the same examples in every run, for tests that ask many methods about each."""
    found: list[T] = []

    @few(examples)
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


def _array(values: list[float], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(shape)


@st.composite
def tiny_networks(
    draw: st.DrawFn, *, inputs: int = 2, exact_ties: bool = True, max_depth: int = 3
) -> TinyNetwork:
    """Networks with 1 to 3 hidden layers of 1 to 4 neurons."""
    depth = draw(st.integers(1, max_depth))
    sizes = [inputs, *(draw(st.integers(1, 4)) for _ in range(depth)), draw(st.integers(2, 3))]
    ternary = st.sampled_from([-1.0, 0.0, 1.0])
    halves = st.integers(-6, 6).map(lambda v: v / 2)
    loose = st.floats(-2, 2, allow_nan=False, width=32).map(lambda v: v + 1 / 3)
    weights, biases = [], []
    for i in range(depth + 1):
        shape = (sizes[i + 1], sizes[i])
        cells = shape[0] * shape[1]
        weights.append(_array(draw(st.lists(ternary, min_size=cells, max_size=cells)), shape))
        value = halves if exact_ties else loose
        biases.append(
            _array(draw(st.lists(value, min_size=shape[0], max_size=shape[0])), shape[:1])
        )
    zeros: list[SignZero] = ["plus", "minus", "either"] if exact_ties else ["plus"]
    sign_zero = draw(st.sampled_from(zeros))
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)


@st.composite
def regions(draw: st.DrawFn, kind: str, *, inputs: int = 2) -> bnncert.Region:
    """Regions on a grid of quarters, so that thresholds touch their boundary."""
    quarter = st.integers(-8, 8).map(lambda v: v / 4)
    center = np.array([draw(quarter) for _ in range(inputs)])
    radius = draw(st.integers(0, 8)) / 4
    if kind in ("linf", "l1", "l2"):
        clipped = draw(st.booleans())
        lo, hi = (-1.5, 1.5) if clipped else (None, None)
        if clipped:
            center = np.clip(center, lo, hi)
        return bnncert.Ball(kind, center, radius, lo, hi)  # type: ignore[arg-type]
    if kind == "box":
        return bnncert.Box(center - radius, center + draw(st.integers(0, 8)) / 4)
    rows = draw(st.integers(1, 2))
    matrix = np.array([[draw(st.integers(-2, 2)) for _ in range(inputs)] for _ in range(rows)])
    # The centre satisfies every inequality, so the polytope is not empty.
    right = matrix @ center + np.array([draw(st.integers(0, 4)) / 2 for _ in range(rows)])
    return bnncert.Polytope(matrix, right, center - radius, center + radius)


@st.composite
def questions(
    draw: st.DrawFn, kind: str, *, inputs: int = 2, exact_ties: bool = True, max_depth: int = 3
) -> TinyQuestion:
    """A network, a region of one kind, and any label."""
    net = draw(tiny_networks(inputs=inputs, exact_ties=exact_ties, max_depth=max_depth))
    region = draw(regions(kind, inputs=inputs))
    return TinyQuestion(net, region, draw(st.integers(0, net.weights[-1].shape[0] - 1)))
