"""Random points: an upper bound that more points only lower, and hits confirmed exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from bnncert import Ball, Box, Network, Options, Region, bound, verify
from bnncert.engine.methods.sample import CHUNK
from bnncert.engine.verdict import Result

#: Class 0 wins iff x0 + x1 < 0; the margin is 2 or -2.
HALF = Network.from_arrays([[[1, 1]], [[-1], [1]]], [[0.0], [0.0, 0.0]])


def sample(network: Network, region: Region, label: int, **options: int) -> Result:
    return verify(network, region, label, method="sample", options=Options(**options))  # type: ignore[arg-type]


def test_a_wrong_half_of_the_region_is_found() -> None:
    # A fifth of this box has x0 + x1 >= 0: 200 points would miss it with probability 1e-18.
    region = Box([-1.0, -1.0], [0.447, 0.447])
    result = sample(HALF, region, 0, samples=200)
    assert result.status == "not_robust"
    assert result.counterexample is not None
    x, y = map(Fraction, result.counterexample.point.tolist())
    assert x + y >= 0
    assert max(x, y) <= Fraction(0.447)
    assert result.counterexample.value == -2
    assert result.upper == -2.0


def test_a_robust_region_is_unknown_with_an_upper_bound() -> None:
    result = sample(HALF, Box([-2.0, -2.0], [-1.0, -1.0]), 0, samples=50)
    assert result.status == "unknown"
    assert result.counterexample is None
    assert (result.lower, result.upper) == (-math.inf, 2.0)


def test_one_sample_is_the_centre() -> None:
    # The centre is the only point of the ball where class 0 does not win.
    network = Network.from_arrays(
        [[[1, 0], [-1, 0]], [[-1, -1], [1, 1]]], [[0.0, 0.0], [0.0, 0.0]], sign_zero="plus"
    )
    region = Ball("linf", [0.0, 0.0], 1.0)
    result = bound(network, region, 0, method="sample", options=Options(samples=1))
    assert {t.stage for t in result.targets} == {"sample"}
    assert result.status == "not_robust"
    assert result.counterexample is not None
    assert result.counterexample.point.tolist() == [0.0, 0.0]
    assert result.counterexample.value == -4


def random_case(seed: int) -> tuple[Network, Ball, int]:
    rng = np.random.default_rng(seed)
    sizes = (8, 12, 10, 5)
    network = Network.from_arrays(
        [rng.integers(-1, 2, size=(b, a)) for a, b in pairwise(sizes)],
        [rng.normal(size=b) for b in sizes[1:]],
    )
    center = rng.uniform(-1, 1, size=8)
    return network, Ball("linf", center, 0.4), int(network.classify(center)[0])


def test_more_samples_never_raise_the_upper_bound() -> None:
    lowered = 0
    for seed in range(6):
        network, region, label = random_case(seed)
        few = sample(network, region, label, samples=1, seed=3)
        more = sample(network, region, label, samples=CHUNK, seed=3)
        most = sample(network, region, label, samples=3 * CHUNK, seed=3)
        for a, b in pairwise((few, more, most)):
            for before, after in zip(a.targets, b.targets, strict=True):
                assert after.upper <= before.upper
                lowered += after.upper < before.upper
    assert lowered >= 5


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_counterexamples_are_inside_the_ball(norm: str) -> None:
    region = Ball(norm, [-0.25, -0.25], 1.0, -1.0, 1.0)  # type: ignore[arg-type]
    result = sample(HALF, region, 0, samples=300)
    assert result.counterexample is not None
    gaps = [abs(Fraction(v) + Fraction(1, 4)) for v in result.counterexample.point.tolist()]
    size = {"linf": max(gaps), "l1": sum(gaps), "l2": sum(g * g for g in gaps)}[norm]
    assert size <= 1


def test_progress_counts_the_points() -> None:
    seen: list[tuple[str, int, int]] = []
    verify(
        HALF,
        Box([-2.0, -2.0], [-1.0, -1.0]),
        0,
        method="sample",
        options=Options(samples=2 * CHUNK + 7),
        progress=lambda text, done, total: seen.append((text, done, total)),
    )
    total = 2 * CHUNK + 7
    assert seen == [("sample", done, total) for done in (CHUNK, 2 * CHUNK, total)]
