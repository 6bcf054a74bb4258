"""Certified and falsified numbers of faults against all sets of faults in tiny networks."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest

import bnncert
from bnncert.questions.faults.faults_answer import FaultsResult
from tests.plain_network import PlainNetwork
from tests.questions.faults.oracle import least_faults, random_tiny

#: Sets of more faults are not enumerated.
MOST = 2


def question(
    seed: int, radius: int
) -> tuple[PlainNetwork, list[tuple[int, ...]], bnncert.Ball, int, str]:
    """Return a network, the points of a ball in quarters, the ball, a label and `ties`."""
    rng = np.random.default_rng(seed)
    tiny = random_tiny(rng, int(rng.choice([1, 2, 3], p=[0.25, 0.5, 0.25])))
    inputs = tiny.weights[0].shape[1]
    centre = rng.integers(-4, 5, inputs)
    points = [
        tuple(int(c + m) for c, m in zip(centre, move, strict=True))
        for move in product(range(-radius, radius + 1), repeat=inputs)
    ]
    ball = bnncert.Ball("linf", centre / 4, radius / 4, grid=1 / 4)
    label = int(tiny.build().classify(centre / 4)[0])
    return tiny, points, ball, label, str(rng.choice(["violation", "robust"]))


def check(seed: int, radius: int) -> FaultsResult:
    tiny, points, ball, label, ties = question(seed, radius)
    chosen: Literal["violation", "robust"] = "robust" if ties == "robust" else "violation"
    found = bnncert.faults(tiny.build(), ball, label, ties=chosen, timeout=60)
    for row in found.rows:
        scope = (row.scope.kind, row.scope.place, row.scope.layer)
        least = least_faults(tiny, points, label, ties, scope, MOST)
        about = f"seed {seed}, radius {radius}, {scope}: {row.texts}, least {least}"
        if least is not None:
            assert row.certified is None or row.certified < least, about
        if row.falsified is not None:
            assert row.falsified > MOST if least is None else row.falsified >= least, about
            assert row.falsified == len(row.bits), about
        if least == 0:
            assert row.falsified == 0, about
    return found


@pytest.mark.parametrize("seed", range(9))
def test_no_wrong_number_at_a_point(seed: int) -> None:
    check(seed, 0)


@pytest.mark.parametrize("seed", range(100, 105))
def test_no_wrong_number_in_a_ball(seed: int) -> None:
    check(seed, 1)
