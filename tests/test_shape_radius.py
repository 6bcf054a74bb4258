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
from tests.every_mode import few
from tests.test_paths_against_brute_force import PathQuestion, all_places, image_at, path_questions
from tests.test_unions_against_brute_force import UnionBruteForce, union_questions


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
        found = bnncert.radius(
            question.network,
            path.middle,
            question.label,
            path.norm,
            clip_lo=path.clip_lo,
            clip_hi=path.clip_hi,
            value=path.value,
            maximum=path.radius,
        )
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
        box = path.clip_lo, path.clip_hi
        shape: bnncert.Region = bnncert.Brightness(path.middle, found.upper, *box)
        if path.norm == "contrast":
            shape = bnncert.Contrast(path.middle, min(1.0, found.upper), *box, path.value)
        assert shape.contains(point)
        seen["attained" if attained else "open"] += 1

    check()
    assert seen["robust"] > 2 and seen["attained"] + seen["open"] > 5


@few(10)
@given(question=union_questions())
def test_sizes_are_certified_up_to_the_first_that_is_falsified(question: UnionBruteForce) -> None:
    union, network = question.region, question.network
    assert isinstance(union, bnncert.Patch | bnncert.ImageShift)
    found = bnncert.radius(
        network,
        union.middle,
        question.label,
        union.norm,
        clip_lo=-1.5,
        clip_hi=1.5,
        value=union.value,
        maximum=1,
    )
    for size in (0, 1):
        shape = type(union)(union.middle, size, question.shape, -1.5, 1.5, union.value)
        asked = UnionBruteForce(question.net, shape, question.label, question.shape)
        if asked.expected() == "robust":
            assert found.lower >= size
        else:
            assert found.upper == size and found.lower < size
            break


def test_arguments_that_do_not_fit_are_refused() -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    with pytest.raises(bnncert.InputError, match="brightness without a data box needs"):
        bnncert.radius(net, [1, 1], 0, "brightness")
    with pytest.raises(bnncert.InputError, match="value belongs to contrast, patch or shift"):
        bnncert.radius(net, [1, 1], 0, "brightness", value=0, maximum=1)
    with pytest.raises(bnncert.InputError, match="a patch needs an image"):
        bnncert.radius(net, [1, 1], 0, "patch", clip_lo=-1, clip_hi=1)
    with pytest.raises(bnncert.InputError, match="value is 1; the norms linf, l2 and l1"):
        bnncert.radius(net, [1, 1], 0, "linf", value=1)


def test_a_path_that_runs_out_of_time_has_no_radius() -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]])
    found = bnncert.radius(net, [1, 1], 0, "brightness", clip_lo=-2, clip_hi=2, timeout=1e-9)
    assert found.lower == -math.inf and found.upper == math.inf
    assert found.probes[0].status == "timeout"
    assert np.isinf(found.gap)
