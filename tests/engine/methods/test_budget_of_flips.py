"""Balls that are budgets of flips: `auto` searches their patterns before it does anything long."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.engine.presolve.pipeline import plain_presolve, presolve
from bnncert.engine.presolve.stability import stability
from bnncert.kernel import check


def binarised(
    rng: np.random.Generator, sizes: tuple[int, ...], ahead: float = 0.0
) -> bnncert.Network:
    """Return a network that binarises its inputs, with random weights -1 and +1.

    Class 0 has a score that is higher by `ahead`.
    """
    weights = [np.eye(sizes[0])]
    weights += [rng.choice([-1.0, 1.0], (b, a)) for a, b in pairwise(sizes)]
    biases = [np.zeros(sizes[0]), *(np.full(n, 0.5) for n in sizes[1:-1])]
    biases.append(rng.uniform(-1, 1, sizes[-1]) + ahead * (np.arange(sizes[-1]) == 0))
    return bnncert.Network.from_arrays(weights, biases)


def flipped(point: np.ndarray, most: int) -> np.ndarray:
    """Return all points with at most so many flips."""
    rows = []
    for count in range(most + 1):
        for places in combinations(range(point.size), count):
            row = point.copy()
            row[list(places)] *= -1
            rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("seed", range(4))
def test_two_flips_of_a_small_network_take_a_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = binarised(rng, (64, 10, 10, 10))
    point = rng.choice([-1.0, 1.0], 64)
    label = int(net.classify(point)[0])
    expected = bool(np.all(net.classify(flipped(point, 2)) == label))
    ball = bnncert.Ball("l1", point, 2.5)
    result = bnncert.verify(net, ball, label, timeout=20)
    assert result.status == ("robust" if expected else "not_robust")
    assert result.seconds < 10


def test_one_flip_of_a_wide_network_is_decided_without_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "bnncert.engine.presolve.pipeline.presolve",
        lambda *_, **__: pytest.fail("pairs were looked for"),
    )
    rng = np.random.default_rng(1)
    net = binarised(rng, (784, 1024, 1024, 1024, 10))
    points = rng.choice([-1.0, 1.0], (400, 784))
    scores = np.sort(net.evaluate(points), axis=1)
    point = points[np.argmax(scores[:, -1] - scores[:, -2])]
    label = int(net.classify(point)[0])
    expected = bool(np.all(net.classify(flipped(point, 1)) == label))
    result = bnncert.verify(net, bnncert.Ball("l1", point, 1.5), label, timeout=30)
    assert result.status == ("robust" if expected else "not_robust")


@pytest.mark.parametrize("ahead", [0.0, 1000.0])
def test_a_certificate_of_a_budget_needs_no_pairs(
    ahead: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The writer is imported before what it imports is changed.
    for module in ("proofs.writing", "engine.presolve.pipeline"):
        monkeypatch.setattr(
            f"bnncert.{module}.presolve", lambda *_, **__: pytest.fail("pairs were looked for")
        )
    rng = np.random.default_rng(3)
    net = binarised(rng, (50, 30, 30, 3), ahead)
    points = rng.choice([-1.0, 1.0], (400, 50))
    scores = np.sort(net.evaluate(points), axis=1)
    point = points[np.argmax(scores[:, -1] - scores[:, -2])]
    label = int(net.classify(point)[0])
    file = tmp_path / "answer.cert"
    ball = bnncert.Ball("l1", point, 1.5)
    result = bnncert.verify(net, ball, label, timeout=30, certificate=file)
    # Intervals prove that a class is so far ahead.
    stages = {t.stage for t in result.targets}
    assert (result.status, stages <= {"interval"}) == ("robust", ahead > 0)
    check(file, net)


def test_plain_presolve_has_the_network_over_its_unstable_neurons() -> None:
    rng = np.random.default_rng(2)
    net = binarised(rng, (6, 8, 8, 3))
    ball = bnncert.Ball("linf", rng.uniform(-1, 1, 6), 0.6)
    plain = plain_presolve(net, ball, stability(net, ball))
    full = presolve(net, ball)
    assert np.all(plain.owner == np.concatenate([b.unstable for b in plain.bounds[:-1]]))
    assert plain.owner.size >= full.owner.size
    for point in ball.sample(rng, 50):
        signs = net.layers[0].exact_signs(point)
        values = signs[plain.layers[0].bounds.unstable]
        below = signs
        for layer, made in zip(net.layers[1:], plain.layers[1:], strict=True):
            exact = layer.weights.toarray() @ below
            width = made.rows.shape[1]
            np.testing.assert_array_equal(made.rows @ values[:width] + made.shift, exact)
            assert np.all((made.bounds.lower <= exact) & (exact <= made.bounds.upper))
            below = np.where(exact >= layer.plus_from, 1, -1)
            values = np.concatenate([values, below[made.bounds.unstable]])
