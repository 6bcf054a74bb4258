"""Exact classes of many inputs against rational arithmetic, and irrational thresholds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.exact_classes import UNDETERMINED, determined_classes
from tests.brute_force import TinyNetwork
from tests.questions.compare.pairs import classes_at
from tests.random_questions import random_network


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_classes_are_those_of_rational_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    zero: Any = rng.choice(["plus", "minus", "either"])
    net = random_network(rng, 3, zero)
    if rng.random() < 0.4:
        # Real weights of the first layer and of the scores, as floats that do not add exactly.
        weights = [w.copy() for w in net.weights]
        weights[0] *= rng.choice([0.1, 0.3, 1.0], weights[0].shape)
        weights[-1] *= rng.choice([0.1, 0.7, 1.0], weights[-1].shape)
        net = TinyNetwork(tuple(weights), net.biases, zero)
    points = np.vstack(
        [rng.integers(-6, 7, (10, 3)) / 4, rng.normal(0, 1, (5, 3)), np.zeros((1, 3))]
    )
    found = determined_classes(net.build(), points, Deadline(None))
    for point, answer in zip(points, found.tolist(), strict=True):
        wanted = classes_at(net, [Fraction(v) for v in point.tolist()])
        assert wanted == {answer} if len(wanted) == 1 else answer == UNDETERMINED


def test_a_sum_that_floats_do_not_decide() -> None:
    """0.1 + 0.2 - 0.3 is not 0 in binary: the exact sum is positive, that of floats too large."""
    net = TinyNetwork(
        (np.array([[0.1, 0.2, -1.0]]), np.array([[1.0], [-1.0]])),
        (np.zeros(1), np.zeros(2)),
        "minus",
    )
    exact = Fraction(0.1) + Fraction(0.2)
    below, above = float(exact), float(np.nextafter(float(exact), -np.inf))
    points = np.array([[1.0, 1.0, v] for v in (below, above)])
    wanted = [0 if exact > Fraction(v) else 1 for v in (below, above)]
    assert determined_classes(net.build(), points, Deadline(None)).tolist() == wanted == [1, 0]


def test_time_that_is_up() -> None:
    net = random_network(np.random.default_rng(0), 2, "plus").build()
    with pytest.raises(OutOfTimeError):
        determined_classes(net, np.zeros((3, 2)), Deadline(1e-9))


def test_irrational_thresholds_are_compared_as_enclosures() -> None:
    """A first-layer threshold of batch normalisation is known as two floats."""
    net = random_network(np.random.default_rng(4), 2, "plus").build()
    layer = net.layers[0]
    upper = np.nextafter(layer.enclosure[1], np.inf)
    wide = replace(net, layers=(replace(layer, bias_hi=upper), *net.layers[1:]))
    same = bnncert.compare(wide, replace(wide, source="copy"))
    assert same.status == "identical" and "irrational" in same.notes[0]
    # No floats lie between the two, so neither a difference nor a proof is found.
    other = bnncert.compare(net, wide, bnncert.Box([-1, -1], [1, 1]), timeout=0.3)
    assert "in A and between" in other.first_difference
    assert other.status in ("unknown", "timeout")
