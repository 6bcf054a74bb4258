"""Brightness and contrast against an independent sweep over the path in rationals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.reachability.path_signs import path_cells, simplest_between
from bnncert.engine.verdict import Result
from bnncert.regions import ImagePath
from tests.brute_force import TinyNetwork, TinyQuestion, last_layers_at, scores_of
from tests.every_mode import agree_in_every_mode, few
from tests.strategies import tiny_networks


def image_at(path: ImagePath, t: Fraction) -> list[Fraction]:
    """Return the image at t by the definition of the shape."""
    if isinstance(path, bnncert.Brightness):
        values = [Fraction(x) + t for x in path.middle.tolist()]
    else:
        assert isinstance(path, bnncert.Contrast)
        values = [
            m + t * (Fraction(x) - m)
            for x, m in zip(path.middle.tolist(), map(Fraction, path.pivot.tolist()), strict=True)
        ]
    lo, hi = ([None] * path.size if v is None else v.tolist() for v in (path.clip_lo, path.clip_hi))
    values = [v if a is None else max(v, Fraction(a)) for v, a in zip(values, lo, strict=True)]
    return [v if b is None else min(v, Fraction(b)) for v, b in zip(values, hi, strict=True)]


def critical_numbers(net: TinyNetwork, path: ImagePath) -> list[Fraction]:
    """Return numbers t such that all signs are constant between two neighbours."""
    middle = 0 if isinstance(path, bnncert.Brightness) else 1
    first, last = middle - Fraction(path.radius), middle + Fraction(path.radius)
    bends = {first, last}
    for i, x in enumerate(path.middle.tolist()):
        for limit in (path.clip_lo, path.clip_hi):
            if limit is None:
                continue
            if isinstance(path, bnncert.Brightness):
                bends.add(Fraction(float(limit[i])) - Fraction(x))
            elif x != path.pivot[i]:  # type: ignore[attr-defined]
                m = Fraction(float(path.pivot[i]))  # type: ignore[attr-defined]
                bends.add((Fraction(float(limit[i])) - m) / (Fraction(x) - m))
    corners = sorted(t for t in bends if first <= t <= last)
    found = set(corners)
    for row, b in zip(net.weights[0].tolist(), net.biases[0].tolist(), strict=True):

        def total(t: Fraction, row: Sequence[float] = row, b: float = b) -> Fraction:
            return Fraction(b) + sum(
                Fraction(w) * y for w, y in zip(row, image_at(path, t), strict=True)
            )

        for low, high in pairwise(corners):
            u, v = total(low), total(high)
            if u * v < 0:
                found.add(low + (high - low) * u / (u - v))
    return sorted(found)


def all_places(net: TinyNetwork, path: ImagePath) -> list[Fraction]:
    numbers = critical_numbers(net, path)
    return sorted({*numbers, *((a + b) / 2 for a, b in pairwise(numbers))})


@dataclass(frozen=True, eq=False)
class PathQuestion(TinyQuestion):
    """A question about a path of images."""

    @cached_property
    def scores(self) -> list[list[Fraction]]:
        assert isinstance(self.region, ImagePath)
        lasts: set[tuple[int, ...]] = set()
        for t in all_places(self.net, self.region):
            lasts |= last_layers_at(self.net, image_at(self.region, t))
        return scores_of(self.net, lasts)

    def check(self, result: Result, ties: str = "violation") -> None:
        super().check(result, ties)
        if result.counterexample is not None:
            found = result.counterexample
            exact = found.exact or tuple(map(Fraction, found.point.tolist()))
            assert isinstance(self.region, ImagePath)
            assert is_on(self.region, exact) and self.region.contains(exact)


def is_on(path: ImagePath, point: Sequence[Fraction]) -> bool:
    """Whether a point is an image of the path: one of few values of t gives it."""
    corners = critical_numbers(
        TinyNetwork((np.zeros((0, path.size)),), (np.zeros(0),), "plus"), path
    )
    places = set(corners)
    for i, (x, value) in enumerate(zip(path.middle.tolist(), point, strict=True)):
        # An input that is not at a side of the data box is x + t, or m + t (x - m).
        if isinstance(path, bnncert.Brightness):
            places.add(value - Fraction(x))
        elif x != path.pivot[i]:  # type: ignore[attr-defined]
            m = Fraction(float(path.pivot[i]))  # type: ignore[attr-defined]
            places.add((value - m) / (Fraction(x) - m))
    return any(corners[0] <= t <= corners[-1] and image_at(path, t) == list(point) for t in places)


@st.composite
def path_questions(draw: st.DrawFn) -> PathQuestion:
    net = draw(tiny_networks(inputs=3))
    quarter = st.integers(-6, 6).map(lambda v: v / 4)
    center = np.array([draw(quarter) for _ in range(3)])
    if draw(st.booleans()):
        center = center + 0.1
    lo, hi = (None, None) if draw(st.booleans()) else (-1.625, 1.625)
    radius = draw(st.integers(0, 8)) / 8
    if draw(st.booleans()):
        region: bnncert.Region = bnncert.Brightness(center, 4 * radius, lo, hi)
    else:
        value = None if lo is not None and draw(st.booleans()) else draw(quarter)
        region = bnncert.Contrast(center, radius, lo, hi, value)
    return PathQuestion(net, region, draw(st.integers(0, net.weights[-1].shape[0] - 1)))


def test_bounds_and_statuses_agree_with_an_independent_sweep() -> None:
    statuses: Counter[str] = Counter()

    @few(30)
    @given(question=path_questions())
    def check(question: PathQuestion) -> None:
        statuses.update(agree_in_every_mode(question, "auto"))
        result = question.verify()
        for target, minimum in question.targets(result):
            if target.tried:
                assert target.lower == target.upper == minimum

    check()
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bnncert.Brightness([0.0], -1), "radius is -1"),
        (lambda: bnncert.Brightness([2.0], 1, -1, 1), "brightness needs an image inside"),
        (lambda: bnncert.Brightness([np.nan], 1, -1, 1), "expected a finite number"),
        (lambda: bnncert.Contrast([0.0], 1.5, -1, 1), "contrast expects at most 1"),
        (lambda: bnncert.Contrast([0.0], 0.5), "contrast needs a data box"),
        (lambda: bnncert.Contrast([0.0], 0.5, value=np.inf), "value is inf"),
    ],
)
def test_numbers_without_a_meaning_are_refused(make: object, message: str) -> None:
    with pytest.raises(bnncert.InputError, match=message):
        make()  # type: ignore[operator]


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
