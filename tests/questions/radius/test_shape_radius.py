"""The exact radius of brightness and contrast, and the sizes of patches and shifts."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

import bnncert
from bnncert.regions import ImagePath
from tests.brute_force import last_layers_at, scores_of
from tests.questions.shapes.oracle import (
    PathQuestion,
    UnionBruteForce,
    all_places,
    image_at,
    path_questions,
    union_questions,
)
from tests.strategies import few


def nearest_violation(question: PathQuestion) -> tuple[Fraction, bool] | None:
    """Return the distance of the violations from the image, and whether one has this distance."""
    path, label = question.region, question.label
    assert isinstance(path, ImagePath)
    middle = Fraction(0 if isinstance(path, bnncert.Brightness) else 1)

    def fails(t: Fraction) -> bool:
        scores = scores_of(question.net, last_layers_at(question.net, image_at(path, t)))
        return any(s[label] <= s[k] for s in scores for k in range(len(s)) if k != label)

    # The image itself is one of the places, so that it has cells of its own on both sides.
    places = sorted({*all_places(question.net, path), middle})
    found = [(abs(t - middle), False) for t in places if fails(t)]
    for a, b in pairwise(places):
        if fails((a + b) / 2):
            found.append((min(abs(a - middle), abs(b - middle)), True))
    if not found:
        return None
    distance, missed = min(found)
    return distance, not missed


def test_the_radius_of_a_path_is_exact() -> None:
    seen: Counter[str] = Counter()

    @few(20)
    @given(question=path_questions())
    def check(question: PathQuestion) -> None:
        path = question.region
        assert isinstance(path, ImagePath)
        if path.radius == 0:
            return
        found = bnncert.radius(question.network, path, question.label, maximum=path.radius)
        expected = nearest_violation(question)
        if expected is None:
            assert found.lower == found.limit and found.upper == math.inf
            seen["robust"] += 1
            return
        distance, attained = expected
        if found.limit < distance:
            # All images beyond this radius are at the sides of the data box.
            assert found.lower == found.limit
            return
        assert Fraction(found.upper) >= distance
        assert Fraction(math.nextafter(found.upper, -math.inf)) <= distance
        if attained:
            assert found.lower < distance
            assert distance == 0 or Fraction(math.nextafter(found.lower, math.inf)) >= distance
        else:
            assert found.lower <= distance < Fraction(math.nextafter(found.lower, math.inf))
        assert found.counterexample is not None
        point = found.counterexample.exact or [
            Fraction(v) for v in found.counterexample.point.tolist()
        ]
        largest = 1.0 if path.norm == "contrast" else math.inf
        assert path.with_radius(min(found.upper, largest)).contains(point)
        seen["attained" if attained else "open"] += 1

    check()
    assert seen["robust"] > 2 and seen["attained"] + seen["open"] > 5


@few(10)
@given(question=union_questions())
def test_sizes_are_certified_up_to_the_first_that_is_falsified(question: UnionBruteForce) -> None:
    union, network = question.region, question.network
    assert isinstance(union, bnncert.Patch | bnncert.ImageShift)
    found = bnncert.radius(network, union, question.label, maximum=1)
    for size in (0, 1):
        asked = UnionBruteForce(
            question.net, union.with_radius(size), question.label, question.shape
        )
        if asked.expected() == "robust":
            assert found.lower >= size
        else:
            assert found.upper == size and found.lower < size
            break


def test_brightness_without_a_data_box_needs_a_largest_radius() -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    with pytest.raises(bnncert.InputError, match="brightness without a data box needs"):
        bnncert.radius(net, bnncert.Brightness([1, 1], 0), 0)
    with pytest.raises(bnncert.InputError, match=r"radius takes .* not BrightnessSteps"):
        bnncert.radius(net, bnncert.BrightnessSteps([1, 1], 0, -1, 1, grid=0.5), 0)


def test_a_path_that_runs_out_of_time_has_no_radius() -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    found = bnncert.radius(net, bnncert.Brightness([1, 1], 0, -2, 2), 0, timeout=1e-9)
    assert found.lower == -math.inf and found.upper == math.inf
    assert found.probes[0].status == "timeout"
    assert np.isinf(found.gap)
