"""Patches, shifts and brightness in steps against an enumeration of all positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.search.box_splitting import BoxSplitter
from bnncert.kernel import check
from bnncert.problem import Ties, robustness
from bnncert.regions import ImageUnion
from tests.brute_force import TinyNetwork, TinyQuestion, reachable_last_layers, scores_of
from tests.every_mode import few
from tests.strategies import questions, tiny_networks

SHAPES = ((3, 3), (2, 3), (1, 2, 3), (2, 2, 3), (3, 2, 2))


def layout(shape: tuple[int, ...]) -> np.ndarray:
    """Return the inputs of all pixels as (height, width, channels), written out by hand."""
    numbers = np.arange(int(np.prod(shape)))
    if len(shape) == 2:
        return numbers.reshape(*shape, 1)
    if shape[0] == 1:
        return numbers.reshape(*shape[1:], 1)
    if shape == (3, 2, 2):
        return np.stack([numbers[:4], numbers[4:8], numbers[8:]], axis=1).reshape(2, 2, 3)
    return numbers.reshape(shape)


def boxes(union: ImageUnion, shape: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the corners of all boxes by the definition of the shape."""
    image, pixels = union.middle, layout(shape)
    height, width, _ = pixels.shape
    lowest = np.full(image.size, -np.inf) if union.clip_lo is None else union.clip_lo
    highest = np.full(image.size, np.inf) if union.clip_hi is None else union.clip_hi
    yield image, image
    size = int(union.stated_radius)
    if isinstance(union, bnncert.Patch):
        for row in range(height - size + 1 if size else 0):
            for column in range(width - size + 1):
                lo, hi = image.copy(), image.copy()
                for i in range(row, row + size):
                    for j in range(column, column + size):
                        for k in pixels[i, j]:
                            lo[k] = lowest[k] if union.value is None else union.value
                            hi[k] = highest[k] if union.value is None else union.value
                yield lo, hi
    if isinstance(union, bnncert.ImageShift):
        for down in range(-size, size + 1):
            for right in range(-size, size + 1):
                moved = image.copy()
                for i in range(height):
                    for j in range(width):
                        a, b = i - down, j - right
                        inside = 0 <= a < height and 0 <= b < width
                        source = pixels[min(max(a, 0), height - 1), min(max(b, 0), width - 1)]
                        fill = union.value is not None and not inside
                        moved[pixels[i, j]] = union.value if fill else image[source]
                limits = zip(moved, lowest, highest, strict=True)
                moved = np.array([min(max(v, low), high) for v, low, high in limits])
                yield moved, moved


@dataclass(frozen=True, eq=False)
class UnionBruteForce(TinyQuestion):
    """A question about a union of boxes."""

    shape: tuple[int, ...]

    @cached_property
    def network(self) -> bnncert.Network:
        return replace(self.net.build(), input_shape=self.shape)

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        assert isinstance(self.region, ImageUnion)
        lasts: set[tuple[int, ...]] = set()
        for lo, hi in boxes(self.region, self.shape):
            free = np.flatnonzero(lo < hi)
            # All numbers are multiples of 1/4, so these sums are exact.
            bias = self.net.biases[0] + self.net.weights[0] @ np.where(lo < hi, 0.0, lo)
            weights = (self.net.weights[0][:, free], *self.net.weights[1:])
            small = TinyNetwork(weights, (bias, *self.net.biases[1:]), self.net.sign_zero)
            lasts |= reachable_last_layers(small, bnncert.Box(lo[free], hi[free]))
        return scores_of(self.net, lasts)


@st.composite
def union_questions(draw: st.DrawFn) -> UnionBruteForce:
    shape = draw(st.sampled_from(SHAPES))
    size = int(np.prod(shape))
    net = draw(tiny_networks(inputs=size, max_depth=2))
    quarter = st.integers(-6, 6).map(lambda v: v / 4)
    image = np.array([draw(quarter) for _ in range(size)])
    value = draw(st.none() | quarter)
    most = 1 if size > 9 and value is None else 2
    low, high = np.full(size, -1.5), np.full(size, 1.5)
    if value is None and draw(st.booleans()):
        # A data box of its own for each input, around the image.
        low, high = (np.array([draw(quarter) for _ in range(size)]) for _ in range(2))
        low, high = np.minimum(low, image), np.maximum(high, image)
    if draw(st.booleans()):
        side = draw(st.integers(0, most))
        region: bnncert.Region = bnncert.Patch(image, side, shape, low, high, value)
    else:
        region = bnncert.ImageShift(image, draw(st.integers(0, 1)), shape, low, high, value)
    return UnionBruteForce(net, region, draw(st.integers(0, net.weights[-1].shape[0] - 1)), shape)


def test_verdicts_agree_with_all_positions() -> None:
    statuses: Counter[str] = Counter()

    @few(20)
    @given(question=union_questions(), data=st.data())
    def check(question: UnionBruteForce, data: st.DataObject) -> None:
        for ties in get_args(Ties):
            result = question.verify(ties=ties)
            assert result.status == question.expected(ties)
            question.check(result, ties)
            statuses[result.status] += 1
            if result.counterexample is not None:
                exact = result.counterexample.exact or [
                    Fraction(v) for v in result.counterexample.point.tolist()
                ]
                assert question.region.contains(exact)
                assert result.counterexample.place

    check()
    assert statuses["robust"] > 5 and statuses["not_robust"] > 5


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
