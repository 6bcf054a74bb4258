"""Exact classes: rationals decide near-ties, and a batch is the same as its points."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bnncert
from bnncert.engine import exact_classes as module
from bnncert.engine.exact_classes import exact_classes
from tests.brute_force import TinyNetwork
from tests.random_questions import random_network


def class_by_rationals(network: TinyNetwork, point: np.ndarray) -> int:
    """Evaluate the raw weights in rationals; sign(0) is +1 where it may be either."""
    values = [Fraction(v) for v in point.tolist()]
    *hidden, (weights, biases) = zip(network.weights, network.biases, strict=True)

    def sums(w: np.ndarray, b: np.ndarray) -> list[Fraction]:
        rows = zip(w.tolist(), b.tolist(), strict=True)
        return [
            sum((Fraction(c) * v for c, v in zip(row, values, strict=True)), Fraction(bias))
            for row, bias in rows
        ]

    for w, b in hidden:
        zero = -1 if network.sign_zero == "minus" else 1
        values = [Fraction(1 if s > 0 else -1 if s < 0 else zero) for s in sums(w, b)]
    scores = sums(weights, biases)
    return scores.index(max(scores))


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_classes_are_those_of_rationals(sign_zero: str) -> None:
    seen: set[int] = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        inputs = int(rng.integers(1, 5))
        tiny = random_network(rng, inputs, sign_zero)
        points = rng.integers(-6, 7, (20, inputs)) / 4
        # The next floats on both sides of ties.
        points[5:10] = np.nextafter(points[:5], np.inf)
        points[10:15] = np.nextafter(points[:5], -np.inf)
        found = exact_classes(tiny.build(), points).tolist()
        assert found == [class_by_rationals(tiny, point) for point in points]
        seen.update(found)
    assert seen >= {0, 1, 2}


def test_a_sum_that_floats_round_to_the_threshold() -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in floats, and the exact sum of these floats is below it.
    exact = Fraction(0.1) + Fraction(0.2)
    above = float(0.1 + 0.2)
    assert exact < Fraction(above)
    network = bnncert.Network.from_arrays(
        [[[1, 1], [1, 1]], [[1, 1], [-1, -1]]], [[-above, -above], [0, 0]]
    )
    assert exact_classes(network, [[0.1, 0.2]]).tolist() == [1]
    assert exact_classes(network, [[0.1, np.nextafter(0.2, 1)]]).tolist() == [0]


def test_a_batch_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    network = random_network(rng, 3, "plus").build()
    points = rng.normal(size=(50, 3))
    whole = exact_classes(network, points)
    monkeypatch.setattr(module, "chunk_size", lambda network: 7)
    assert exact_classes(network, points).tolist() == whole.tolist()
    assert exact_classes(network, points[0]).tolist() == [whole[0]]
