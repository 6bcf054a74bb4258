"""Covers are sets of inputs that questions about one region refuse, and lie in their hull."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError
from bnncert.problem import robustness
from bnncert.questions.prover import solve
from bnncert.regions import Cover, Region

NETWORK = bnncert.Network.from_arrays(
    [[[1, 1, 0, 0], [1, -1, 0, 1], [0, 1, 1, 1]], [[1, 1, 1], [-1, -1, 1]]], [[0, 0, 0], [0, 0]]
)
IMAGE = [0.5, 0.25, 0.5, 0.75]

COVERS: dict[str, Callable[[], Cover]] = {
    "brightness": lambda: bnncert.Brightness(IMAGE, 0.5, 0, 1),
    "contrast": lambda: bnncert.Contrast(IMAGE, 0.5, 0, 1),
    "patch": lambda: bnncert.Patch(IMAGE, 1, (2, 2), 0, 1),
    "patch of a value": lambda: bnncert.Patch(IMAGE, 1, (2, 2), 0, 1, value=0.25),
    "shift": lambda: bnncert.ImageShift(IMAGE, 1, (2, 2), 0, 1),
    "brightness in steps": lambda: bnncert.BrightnessSteps(IMAGE, 0.5, 0, 1, grid=0.25),
}


@pytest.fixture(params=COVERS)
def cover(request: pytest.FixtureRequest) -> Cover:
    return COVERS[request.param]()


def test_the_hull_is_a_region_that_contains_the_cover(cover: Cover) -> None:
    assert not isinstance(cover, Region) and isinstance(cover.hull, Region)
    assert not cover.is_box and cover.hull.is_box
    rng = np.random.default_rng(0)
    for point in (cover.center, *cover.sample(rng, 20)):
        assert cover.hull.contains(point)
    # Methods work on the hull, counterexamples are those of the cover.
    problem = robustness(NETWORK, cover, 0)
    assert problem.inputs is cover and isinstance(problem.region, Region)


def test_questions_about_one_region_refuse_it(cover: Cover) -> None:
    ball = bnncert.Ball("linf", IMAGE, 0.25)
    questions: list[tuple[Callable[..., object], str]] = [
        (lambda region: bnncert.faults(NETWORK, region, 0), "faults takes one region"),
        (lambda region: bnncert.compare(NETWORK, NETWORK, region), "compare takes one region"),
        (lambda region: bnncert.count(NETWORK, region, 0), "counting takes a box"),
        (lambda region: bnncert.monotone(NETWORK, 0, region), "has to be a box"),
        (lambda region: bnncert.bound(NETWORK, region, 0), "takes one region|is not for"),
    ]
    for ask, words in questions:
        with pytest.raises(InputError, match=words):
            ask(cover)
    assert bnncert.bound(NETWORK, ball, 0, method="interval").lower > -np.inf


def test_a_method_refuses_what_it_does_not_divide(cover: Cover) -> None:
    problem, better = robustness(NETWORK, cover, 0), "verify" if cover.kind == "union" else "auto"
    with pytest.raises(InputError, match=f"is not for {cover.norm}; use {better}"):
        solve([problem], method="interval")
    if cover.kind == "union":
        with pytest.raises(InputError, match="use verify"):
            solve([problem])
    assert bnncert.verify(NETWORK, cover, 0, timeout=60).status in ("robust", "not_robust")
