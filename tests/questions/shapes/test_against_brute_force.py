"""Shapes of change against an enumeration of all images, and against a sweep in rationals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.sweep import path_cells, simplest_between
from bnncert.engine.search.box_splitting import BoxSplitter
from bnncert.kernel import check
from bnncert.problem import Ties, robustness
from bnncert.regions import ImagePath, ImageUnion
from tests.brute_force import TinyNetwork, TinyQuestion
from tests.every_mode import agree_in_every_mode
from tests.guarded import never_wrong
from tests.questions.shapes.guard import shapes
from tests.questions.shapes.oracle import (
    PathQuestion,
    UnionBruteForce,
    all_places,
    boxes,
    image_at,
    path_questions,
    union_questions,
)
from tests.strategies import few, questions


def test_shapes_have_the_verdict_of_all_images() -> None:
    never_wrong(shapes, 200, occurs=["robust", "not_robust", "certificates"])


# -- unions of boxes: patches, shifts and brightness in steps ---------------------------------


def test_unions_have_the_verdict_of_all_positions(tmp_path: Path) -> None:
    statuses: Counter[tuple[str, bool]] = Counter()
    file = tmp_path / "proof.bnncert"

    @few(20)
    @given(question=union_questions())
    def agree(question: UnionBruteForce) -> None:
        for ties in get_args(Ties):
            wanted = file if ties == "violation" else None
            result = question.verify(ties=ties, certificate=wanted)
            assert result.status == question.expected(ties)
            question.check(result, ties)
            statuses[result.status, wanted is None or result.certificate is not None] += 1
            if result.certificate is not None:
                assert check(file, question.network).verdict == result.status
            found = result.counterexample
            if found is not None:
                exact = found.exact or [Fraction(v) for v in found.point.tolist()]
                assert question.region.contains(exact) and found.place

    agree()
    assert statuses["robust", True] > 5 and statuses["not_robust", True] > 5
    assert not statuses["not_robust", False]


@few(20)
@given(question=union_questions())
def test_the_boxes_are_those_of_the_definition(question: UnionBruteForce) -> None:
    union = question.region
    assert isinstance(union, ImageUnion)
    made = [union.bounds(k) for k in range(union.count + 1)]
    assert all(np.array_equal(v, union.middle) for v in made[0])
    expected = {(lo.tobytes(), hi.tobytes()) for lo, hi in boxes(union, question.shape)}
    assert {(lo.tobytes(), hi.tobytes()) for lo, hi in made} == expected
    names = [union.place_text(k) for k in range(1, union.count + 1)]
    assert len(set(names)) == union.count
    for lo, hi in made:
        assert np.all(union.lo <= lo) and np.all(hi <= union.hi)
        assert union.contains(lo) and union.contains(hi)


def test_splitting_agrees_with_brute_force_on_boxes() -> None:
    proved: Counter[bool] = Counter()

    @few(40)
    @given(question=questions("box"))
    def check(question: TinyQuestion) -> None:
        problem = robustness(question.network, question.region, question.label)
        answer = BoxSplitter(problem).run(200, Deadline())
        if answer.is_proved:
            assert question.expected() == "robust"
        proved[answer.is_proved] += 1

    check()
    assert proved[True] > 4 and proved[False] > 4


def test_brightness_in_steps_has_the_levels_of_the_grid() -> None:
    levels = bnncert.Grid(1 / 127.5, -1)
    image = np.array([0, 3, 254]) / 127.5 - 1
    steps = bnncert.BrightnessSteps(image, 2 / 127.5, -1, 1, levels)
    shown = [np.rint((steps.bounds(k)[0] + 1) * 127.5).tolist() for k in range(steps.count + 1)]
    assert shown == [[0, 3, 254], [1, 4, 255], [0, 2, 253], [2, 5, 255], [0, 1, 252]]


def test_on_a_grid_a_patch_has_only_grid_values() -> None:
    net = bnncert.Network.from_arrays(
        [[[4, 4, 0, 0]], [[1], [-1]]], [[-1], [0, 0]], input_shape=(2, 2)
    )
    image = [1, 0, 0, 0]
    # The sum 4 a + 4 b - 1 is negative only between 0 and 1/4.
    real = bnncert.verify(net, bnncert.Patch(image, 1, (2, 2), 0, 1), 0)
    assert real.status == "not_robust" and real.counterexample is not None
    assert "row 0, column 0" in real.counterexample.place
    coarse = bnncert.Patch([1, 1, 0, 0], 1, (2, 2), 0, 1, grid=0.5)
    assert bnncert.verify(net, coarse, 0).status == "robust"


def test_shifts_stay_inside_a_data_box_that_differs_between_inputs() -> None:
    # The second pixel may have values up to 0.25 only, and class 1 needs more than 0.5 there.
    net = bnncert.Network.from_arrays(
        [[[0, -2, 0, 0]], [[1], [-1]]],
        [[1], [0, 0]],
        input_lo=0,
        input_hi=[1, 0.25, 1, 1],
        input_shape=(2, 2),
    )
    image = [1, 0.25, 0, 0]
    assert net.input_hi is not None and net.input_lo is not None
    shift = bnncert.ImageShift(image, 1, (2, 2), net.input_lo, net.input_hi)
    for number in range(shift.count + 1):
        moved = shift.bounds(number)[0]
        assert np.all(moved >= 0) and np.all(moved <= net.input_hi)
    assert "clipped to the data box" in shift.describe()
    assert bnncert.verify(net, shift, 0).status == "robust"
    # To the right, the 1 comes to the second pixel.
    free = bnncert.verify(net, bnncert.ImageShift(image, 1, (2, 2), 0, 1), 0)
    assert free.status == "not_robust" and free.counterexample is not None
    assert "right" in free.counterexample.place


def test_a_misclassified_image_is_named_as_such() -> None:
    net = bnncert.Network.from_arrays([[[1] * 4], [[1], [-1]]], [[0], [0, 0]], input_shape=(2, 2))
    result = bnncert.verify(net, bnncert.Patch([1, 1, 1, 1], 1, (2, 2), 0, 1, value=1), 1)
    assert result.is_misclassified and result.counterexample is not None
    assert result.counterexample.place == "the image itself"


@pytest.mark.parametrize("shape", [(6,), (2, 2, 2, 2), (5, 4, 4)])
def test_inputs_that_are_no_image_are_refused(shape: tuple[int, ...]) -> None:
    image = np.zeros(int(np.prod(shape)))
    with pytest.raises(bnncert.InputError, match="a patch needs an image; the network's inputs"):
        bnncert.Patch(image, 1, shape, 0, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: bnncert.Patch(x, 3, (2, 3), 0, 1), "larger than the image of 2 x 3 pixels"),
        (
            lambda x: bnncert.Patch(x, -1, (2, 3), 0, 1),
            "radius is -1; a patch expects a whole number",
        ),
        (lambda x: bnncert.Patch(x, 0.5, (2, 3), 0, 1), "radius is 0.5; a patch expects"),
        (lambda x: bnncert.Patch(x, 1, (2, 3)), "a patch needs a data box"),
        (lambda x: bnncert.Patch(x, 1, (2, 3), 0, 1, value=2), "value is 2; expected a number in"),
        (lambda x: bnncert.Patch(x, 1, (3, 3), 0, 1), "the image has 6 values"),
        (lambda x: bnncert.Patch(x, 1, (2, 3), 0, 1, 1, grid=1), "a patch of one value has no"),
        (lambda x: bnncert.Patch(x + 0.25, 1, (2, 3), 0, 1, grid=1), "is not on the grid"),
        (lambda x: bnncert.ImageShift(x, 2, (2, 3)), "moves all of the image of 2 x 3 pixels out"),
        (lambda x: bnncert.ImageShift(x, -1, (2, 3)), "radius is -1; a shift expects"),
        (lambda x: bnncert.BrightnessSteps(x, 1), "needs a grid"),
        (lambda x: bnncert.BrightnessSteps(x, 1, grid=bnncert.Grid([1, 2] * 3)), "one grid step"),
        (lambda x: bnncert.BrightnessSteps(x + 0.3, 1, grid=1), "is not on the grid"),
        (lambda x: bnncert.Brightness([0.0], -1), "radius is -1"),
        (lambda x: bnncert.Brightness([2.0], 1, -1, 1), "brightness needs an image inside"),
        (lambda x: bnncert.Brightness([np.nan], 1, -1, 1), "expected a finite number"),
        (lambda x: bnncert.Contrast([0.0], 1.5, -1, 1), "contrast expects at most 1"),
        (lambda x: bnncert.Contrast([0.0], 0.5), "contrast needs a data box"),
        (lambda x: bnncert.Contrast([0.0], 0.5, value=np.inf), "value is inf"),
    ],
)
def test_numbers_without_a_meaning_are_refused(make: object, message: str) -> None:
    with pytest.raises(bnncert.InputError, match=message):
        make(np.zeros(6))  # type: ignore[operator]


def test_first_layers_of_real_weights_have_certificates_that_are_accepted(tmp_path: Path) -> None:
    weights = [[[0.5, 0.25, 0.5, 0.25], [0.5, -0.25, 0.25, 0.5]], [[1, 1], [-1, -1]]]
    net = bnncert.Network.from_arrays(
        weights, [[1.25, 1.25], [0, 0]], input_lo=-1, input_hi=1, input_shape=(2, 2)
    )
    image = np.array([0.5, 0.5, 0.5, 0.5])
    for value in (None, 0.0):
        patch = bnncert.Patch(image, 1, (2, 2), -np.ones(4), np.ones(4), value)
        path = tmp_path / "patch.cert"
        result = bnncert.verify(net, patch, 0, timeout=60, certificate=path)
        assert (result.status, result.certificate) == ("robust", str(path))
        assert check(path, net).verdict == "robust"


def test_a_certificate_does_not_make_values_between_those_of_the_grid_count(tmp_path: Path) -> None:
    # Value v of the one free pixel: class 0 is reached at |v - 0.25| <= 0.125 only, off the grid.
    net = bnncert.Network.from_arrays(
        [[[0, 0, 1, 0], [0, 0, -1, 0]], [[1, 1], [0, 0]]], [[-0.125, 0.375], [0, 1]]
    )
    net = replace(net, input_shape=(2, 2))
    patch = bnncert.Patch([0, 0, 1, 0], 1, (2, 2), -1.5, 1.5, None, bnncert.Grid(0.5, -1.5))
    assert net.classify(np.array([[0, 0, 0.25, 0], [0, 0, 0, 0], [0, 0, 0.5, 0]])).tolist() == [
        0,
        1,
        1,
    ]
    for certificate in (None, tmp_path / "patch.bnncert"):
        result = bnncert.verify(net, patch, label=1, timeout=60, certificate=certificate)
        assert result.status == "robust"


# -- paths: brightness and contrast -----------------------------------------------------------


def test_bounds_and_statuses_agree_with_an_independent_sweep(tmp_path: Path) -> None:
    statuses: Counter[str] = Counter()
    file = tmp_path / "proof.bnncert"

    @few(30)
    @given(question=path_questions())
    def agree(question: PathQuestion) -> None:
        statuses.update(agree_in_every_mode(question, "auto"))
        result = question.verify(certificate=file)
        assert result.certificate == str(file)
        assert check(file, question.network).verdict == result.status
        for target, minimum in question.targets(result):
            if target.tried:
                assert target.lower == target.upper == minimum

    agree()
    assert statuses["robust"] > 20 and statuses["not_robust"] > 20


@few(25)
@given(question=path_questions())
def test_the_cells_partition_the_path_and_have_its_signs(question: PathQuestion) -> None:
    path = question.region
    assert isinstance(path, ImagePath)
    layer = question.network.layers[0]
    cells = list(path_cells(layer, path, Deadline()))
    assert cells[0].lo == path.first and cells[0].has_lo
    assert cells[-1].hi == path.last and cells[-1].has_hi
    for a, b in pairwise(cells):
        assert a.hi == b.lo and a.has_hi != b.has_lo and not np.array_equal(a.signs, b.signs)
    for t in all_places(question.net, path):
        (cell,) = [
            c
            for c in cells
            if c.lo <= t <= c.hi and (t > c.lo or c.has_lo) and (t < c.hi or c.has_hi)
        ]
        exact = image_at(path, t)
        assert tuple(exact) == path.at(t) and path.contains(exact)
        assert np.array_equal(cell.signs, layer.exact_signs(exact))
        assert cell.lo <= cell.point() <= cell.hi


@few(25)
@given(question=path_questions(), data=st.data())
def test_a_verdict_with_enclosed_biases_holds_for_every_bias(
    question: PathQuestion, data: st.DataObject
) -> None:
    network = question.network
    first = network.layers[0]
    width = np.array([data.draw(st.sampled_from([0.0, 0.25, 1.0])) for _ in range(first.size)])
    low, high = first.bias - width, first.bias + width
    enclosed = replace(first, bias_lo=low, bias_hi=high)
    loose = replace(network, layers=(enclosed, *network.layers[1:]))
    result = bnncert.verify(loose, question.region, question.label)
    shares = [data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in range(first.size)]
    biases = (low + np.array(shares) * (high - low), *question.net.biases[1:])
    net = TinyNetwork(question.net.weights, biases, question.net.sign_zero)
    expected = PathQuestion(net, question.region, question.label).expected()
    assert result.status in (expected, "unknown")
    if not np.any(width):
        assert result.status == expected


def test_a_point_beside_the_path_is_not_on_it() -> None:
    path = bnncert.Brightness([0.5, 0.0], 0.75, -1, 1)
    assert path.contains([Fraction(1), Fraction(3, 4)])
    assert path.contains([Fraction(1), Fraction(1, 2)])
    assert not path.contains([Fraction(1), Fraction(1, 4)])
    assert not path.contains([Fraction(7, 8), Fraction(1, 4)])
    assert not path.contains([Fraction(1), Fraction(7, 8)])


def test_the_simplest_number_between_two_has_few_digits() -> None:
    assert simplest_between(Fraction(1, 3), Fraction(2, 3)) == Fraction(1, 2)
    assert simplest_between(Fraction(-1), Fraction(1)) == 0
    assert simplest_between(Fraction(-3, 4), Fraction(-1, 2)) == Fraction(-5, 8)
    assert simplest_between(Fraction(0), Fraction(1, 1000)) == Fraction(1, 1024)


def test_other_methods_and_arithmetics_are_refused() -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    path = bnncert.Brightness([0.5, 0], 0.2)
    with pytest.raises(bnncert.InputError, match="method sdp is not for brightness; use auto"):
        bnncert.verify(net, path, 0, method="sdp")
    with pytest.raises(bnncert.InputError, match="float32 is not for brightness"):
        bnncert.verify(net, path, 0, arithmetic="float32")


def test_the_time_limit_ends_the_first_sums_of_a_path() -> None:
    network = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0.5], [0, 0]])
    path = bnncert.Brightness([0.0, 0.0], 1)
    cells = path_cells(network.layers[0], path, Deadline(1e-9))
    with pytest.raises(OutOfTimeError):
        next(cells)
