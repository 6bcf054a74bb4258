"""Counts and their certificates against brute force over all points."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Ball, Box, Grid, InputError, L0Ball, Network
from bnncert.deadline import Deadline
from bnncert.engine.answer import Interrupted
from bnncert.kernel import check
from bnncert.questions.count import count_search as search
from bnncert.questions.count import first_layer
from bnncert.questions.count.count_answer import ShareEstimate
from bnncert.questions.count.count_search import CountSearch
from bnncert.questions.count.first_layer import GridPoints
from tests.questions.count.questions import binary_question, count_questions, fast_truth

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", ["box", "linf", "l0"])
@pytest.mark.parametrize(("cells", "merged"), [(2**18, 2**10), (1, 0), (4, 2**10), (4, 0)], ids=str)
def test_counts_of_tiny_networks_are_exact_and_certified(
    kind: str, cells: int, merged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether parts are enumerated, split or merged."""
    monkeypatch.setattr(search, "MOST_CELLS", cells)
    monkeypatch.setattr(search, "FEW_CELLS", merged)
    path = tmp_path / "count.bnncert"

    @few
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        question = data.draw(count_questions(kind))
        found = question.count(samples=0, certificate=path)
        numbers = found.total, found.lower, found.upper
        assert numbers == (len(question.points), question.truth, question.truth)
        if found.witness is not None:
            assert question.is_changed(tuple(found.witness.tolist()))
        assert found.certificate == str(path) and found.no_certificate == ""
        report = check(path, question.network)
        assert report.verdict == "count"
        assert f"exactly {question.truth:,} ha" in report.statement
        assert f"of the {len(question.points):,} grid points" in report.statement

    ask()


@pytest.mark.parametrize("kind", ["box", "l0"])
def test_merged_rounded_values_give_bounds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FEW_CELLS", 0), ("MANY_POINTS", 0), ("MOST_CELLS", 4)):
        monkeypatch.setattr(search, name, value)

    @few
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        question = data.draw(count_questions(kind))
        found = question.count(samples=0)
        assert found.lower <= question.truth <= found.upper

    ask()


@pytest.mark.parametrize(
    ("inputs", "changes", "levels"),
    [(12, None, 2), (14, 3, 2), (10, 10, 2), (6, None, 4), (8, 2, 3), (8, 3, 3), (7, 4, 4)],
)
def test_larger_networks_agree_with_all_points(
    inputs: int, changes: int | None, levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = binary_question(inputs, 7 * inputs + levels, changes=changes, levels=levels)
    truth = fast_truth(question)
    found = question.count(samples=0)
    assert (found.lower, found.upper) == (truth, truth)
    monkeypatch.setattr(search, "MOST_CELLS", 64)
    again = question.count(samples=0, certificate=tmp_path / "c")
    assert (again.lower, again.upper) == (truth, truth)
    assert again.leaves > 1 and 0 < truth < found.total
    assert f"exactly {truth:,} have" in check(tmp_path / "c", question.network).statement


def test_eighteen_binary_inputs() -> None:
    question = binary_question(18, 3)
    found = question.count(samples=100)
    assert found.total == 2**18 and found.number == fast_truth(question)
    assert found.lower_share <= found.number / found.total <= found.upper_share


def test_the_number_of_points_of_a_hamming_ball_is_a_sum_of_binomials() -> None:
    ball = L0Ball([-1] * 784, 3, -1, 1, grid=Grid(2, -1))
    assert GridPoints.of(ball).total == sum(math.comb(784, j) for j in range(4))
    three = L0Ball([0] * 50, 2, 0, 2, grid=1)
    assert GridPoints.of(three).total == 1 + 50 * 2 + math.comb(50, 2) * 4


def majority(inputs: int) -> Network:
    return Network.from_arrays([[[1] * inputs], [[1], [-1]]], [[-1], [0, 0]])


def test_equal_inputs_are_merged_so_that_astronomical_numbers_are_exact() -> None:
    inputs = 301
    region = Box([-1] * inputs, [1] * inputs, grid=Grid(2, -1))
    found = bnncert.count(majority(inputs), region, 0, samples=50)
    # The sum of 301 signs is below 1 for exactly half of all points.
    assert found.total == 2**inputs and found.number == 2 ** (inputs - 1)
    assert found.to_dict()["lower"] == str(2 ** (inputs - 1))
    levels = Box([0] * 60, [255] * 60, grid=1)
    light = Network.from_arrays([[[1] * 60], [[1], [-1]]], [[-100.5], [0, 0]])
    # Of 60 numbers >= 0, the sum is at most 100: no number reaches 255.
    assert bnncert.count(light, levels, 0, samples=0).number == math.comb(160, 60)


def test_a_hamming_ball_of_equal_inputs_is_exact() -> None:
    ball = L0Ball([1] * 100, 60, -1, 1, grid=Grid(2, -1))
    found = bnncert.count(majority(100), ball, 0, samples=0)
    # With j flips the sum is 100 - 2j, and the class changes if it is below 1.
    assert found.number == sum(math.comb(100, j) for j in range(50, 61))


def test_ties_count_as_changes_if_they_are_violations() -> None:
    net = Network.from_arrays([[[1, 0], [0, 1]], [[1, 0], [0, 1]]], [[0, 0], [0, 0]])
    square = Box([-1, -1], [1, 1], grid=Grid(2, -1))
    assert bnncert.count(net, square, 0, samples=0).number == 3
    assert bnncert.count(net, square, 0, ties="robust", samples=9).number == 1


def test_a_point_counts_if_some_choice_of_a_sign_changes_it() -> None:
    net = Network.from_arrays([[[1, 0]], [[1], [-1]]], [[0], [0, 0]])
    line = Box([-1, 0], [1, 0], grid=1)
    numbers = {z: bnncert.count(net, line, 0, sign_zero=z).number for z in ("plus", "minus")}
    assert numbers == {"plus": 1, "minus": 2}
    assert bnncert.count(net, line, 0, sign_zero="either").number == 2


def test_a_misclassified_centre_is_counted() -> None:
    question = binary_question(10, 5)
    other = (question.label + 1) % 3
    found = bnncert.count(question.network, question.region, other, samples=0)
    mine = bnncert.count(question.network, question.region, question.label, samples=0)
    assert found.lower == found.upper and mine.lower == mine.upper
    # A point has at most one class of its own.
    assert found.lower + mine.lower >= found.total


def test_rivals_restrict_which_classes_count() -> None:
    question = binary_question(10, 5)
    rivals = [k for k in range(3) if k != question.label]
    single = [
        bnncert.count(question.network, question.region, question.label, rivals=k, samples=0).lower
        for k in rivals
    ]
    both = bnncert.count(question.network, question.region, question.label, samples=0).lower
    assert max(single) <= both <= sum(single)


def test_bounds_hold_whenever_the_search_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_CELLS", 32)
    question = binary_question(12, 4)
    truth = fast_truth(question)
    run = CountSearch(question.problem, GridPoints.of(question.region), Deadline())
    bounds: list[tuple[int, int]] = []
    run.run(lambda lower, upper: bounds.append((lower, upper)))
    assert all(low <= truth <= high for low, high in bounds)
    assert bounds == sorted(bounds, key=lambda b: b[1] - b[0], reverse=True)
    assert bounds[0] == (0, 2**12) and bounds[-1] == (truth, truth)


def test_an_interrupted_count_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_CELLS", 32)
    question = binary_question(12, 4)
    calls = 0

    def stop(text: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 200:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        question.count(samples=0, progress=stop)
    found = caught.value.answer
    assert found.lower <= fast_truth(question) <= found.upper
    assert 0 < found.lower < found.upper < found.total


def test_the_time_limit_leaves_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_CELLS", 1)
    question = binary_question(14, 2)
    found = bnncert.count(question.network, question.region, question.label, timeout=0.3)
    assert found.lower <= fast_truth(question) <= found.upper
    assert found.seconds < 1.3 and not found.is_exact
    assert found.estimate is not None and found.estimate.samples > 0


def test_a_proof_for_the_whole_region_is_a_count_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "EASY_POINTS", 0)
    monkeypatch.setattr(search.CountSearch, "run", lambda self, report: None)
    net = Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    ball = Ball("linf", [0.5, 0], 0.25, -1, 1, grid=Grid(1 / 8, -1))
    found = bnncert.count(net, ball, 0, timeout=20, samples=3)
    assert (found.total, found.lower, found.upper) == (25, 0, 0)
    wide = Ball("linf", [0.5, 0], 1, -1, 1, grid=Grid(1 / 8, -1))
    found = bnncert.count(net, wide, 0, timeout=20, samples=0)
    # A counterexample is one changed point at least.
    assert (found.lower, found.upper) == (1, found.total)


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (Box([-1] * 10, [1] * 10), "the region has no grid"),
        (L0Ball([1] * 10, 2, -1, 1), "the region has no grid"),
        (Ball("l2", [0] * 10, 1, grid=1), "counting takes a box, an linf ball or an l0 ball"),
        (Box([0] * 10, [1] * 10, grid=2.0**-19), "values on the grid"),
        (Box([0] * 3, [1] * 3, grid=1), "the region has 3 inputs"),
    ],
)
def test_regions_that_cannot_be_counted_are_refused(region: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bnncert.count(majority(10), region, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": -1}, "samples is -1"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"seed": -3}, "seed is -3"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bnncert.count(majority(3), Box([-1] * 3, [1] * 3, grid=Grid(2, -1)), 0, **settings)


def test_the_result_is_printed_as_a_table() -> None:
    found = bnncert.count(majority(3), Box([-1] * 3, [1] * 3, grid=Grid(2, -1)), 0, samples=20)
    assert found.summary == "of 8 points, exactly 4 have another class"
    text = str(found)
    assert "at least" in text and "0.5" in text and "estimate" in text
    tree = found.to_dict()
    assert (tree["total"], tree["lower"], tree["exact"]) == ("8", "4", True)
    assert tree["estimate"]["samples"] == 20 and len(tree["witness"]) == 3


def test_a_first_layer_that_does_not_fit_into_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_layer, "MOST_WEIGHTS", 5)
    net = Network.from_arrays([[[1, 1, 1], [1, 0, 0]], [[1, 1], [-1, 1]]], [[0.5, 0.5], [0, 0]])
    region = Box([-1] * 3, [1] * 3, grid=Grid(2, -1))
    with pytest.raises(InputError, match=r"2 neurons and 3 inputs; .* at most 1 neurons"):
        bnncert.count(net, region, label=0)


# -- the estimate -------------------------------------------------------------------------


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
