"""Random points are uniform, and the interval has the level that it states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from bnncert import Box, Grid, L0Ball
from bnncert.questions.count.count_answer import ShareEstimate
from bnncert.questions.count.grid_points import GridPoints
from tests.questions.count.questions import binary_question, fast_truth


@pytest.mark.parametrize(
    "region",
    [
        Box([0, 0, 0], [1, 2, 3], grid=1),
        L0Ball([-1, 0, 1, 0], 2, -1, 1, grid=Grid(1, -1)),
        L0Ball([1, 1, 1], 1, 0, 3, grid=1),
    ],
)
def test_points_are_uniform(region: Box | L0Ball) -> None:
    points = GridPoints.of(region)
    places = points.random_places(np.random.default_rng(0), 500 * points.total)
    drawn = Counter(map(tuple, places.tolist()))
    assert len(drawn) == points.total
    for row in drawn:
        assert region.contains(points.at(np.array(row)))
    # The chi-squared statistic has mean n - 1 and standard deviation sqrt(2 (n - 1)).
    statistic = sum((number - 500) ** 2 / 500 for number in drawn.values())
    assert abs(statistic - points.total + 1) < 5 * np.sqrt(2 * points.total)


def clopper_pearson(*numbers: Any) -> tuple[float, float]:
    estimate = ShareEstimate.of(*numbers)
    return estimate.low, estimate.high


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    assert clopper_pearson(10, 0, 0, 0.95) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))
    assert clopper_pearson(10, 10, 0, 0.95) == (pytest.approx(0.025 ** (1 / 10)), 1.0)
    low, high = clopper_pearson(100, 20, 5, 0.99)
    assert low == clopper_pearson(100, 20, 0, 0.99)[0]
    assert high == clopper_pearson(100, 25, 0, 0.99)[1]


def test_estimates_of_many_seeds_contain_the_share() -> None:
    question = binary_question(10, 5, changes=4)
    share, hits = fast_truth(question) / len(question.points), 0
    for seed in range(20):
        estimate = question.count(samples=60, seed=seed, confidence=0.9).estimate
        assert estimate is not None and estimate.samples == 60 and estimate.undecided == 0
        hits += estimate.low <= share <= estimate.high
    assert hits >= 15
