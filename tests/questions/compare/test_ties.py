"""Comparisons in which sign(0) may be either: equal neurons decide alike, others on their own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, check
from bnncert.questions.compare.compare import ComparisonSearch
from bnncert.questions.compare.comparison_answer import Difference
from bnncert.questions.prover import Effort, Prover
from tests.brute_force import TinyNetwork
from tests.questions.compare.pairs import changed, classes_at
from tests.random_questions import random_network

BOX = bnncert.Box([-1, -1], [1, 1])


def reordered(net: TinyNetwork, rng: np.random.Generator) -> TinyNetwork:
    """Return the network with its neurons in another order and with other signs."""
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    for k in range(len(weights) - 1):
        order = rng.permutation(biases[k].size)
        # Without weights, -x cannot be told from x.
        sign = np.where(weights[k].any(axis=1), rng.choice([-1.0, 1.0], order.size), 1.0)
        weights[k], biases[k] = (weights[k] * sign[:, None])[order], (biases[k] * sign)[order]
        weights[k + 1] = (weights[k + 1] * sign)[:, order]
    return TinyNetwork(tuple(weights), tuple(biases), net.sign_zero)


def test_other_orders_and_signs_are_equal(tmp_path: Path) -> None:
    """Only duplicates may be taken for each other: the order of tied ones is their identity."""
    path, equal, random = tmp_path / "equal.bnncert", 0, 40
    for seed in range(random):
        rng = np.random.default_rng(seed)
        net = random_network(rng, 3, "either")
        one, two = net.build(), reordered(net, rng).build()
        found = bnncert.compare(one, two, timeout=60, certificate=path)
        assert found.status in ("identical", "equal", "unknown")
        if found.status == "equal":
            report = check(path, one, other=two)
            assert report.verdict == "networks_equal"
            assert "neurons that both networks have take the same sign" in report.statement
        equal += found.status != "unknown"
    assert equal >= 0.85 * random


@pytest.mark.parametrize("order", [[1, 2, 0], [2, 0, 1]])
def test_a_reordered_network_whose_neurons_differ_is_equal(order: list[int]) -> None:
    first, second = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]]), np.eye(2)
    above = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    one, two = (
        TinyNetwork((a, b, second), (np.zeros(3), np.zeros(2), np.zeros(2)), "either").build()
        for a, b in ((first, above), (first[order], above[:, order]))
    )
    for pair in ((one, two), (two, one), (one, one)):
        found = bnncert.compare(*pair, BOX, timeout=60)
        assert found.status == ("identical" if pair[0] is pair[1] else "equal")


@pytest.mark.parametrize("seed", range(6))
def test_answers_on_a_grid(tmp_path: Path, seed: int) -> None:
    """Of a difference both classes are determined, and where it is equal, no point has one."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, 2, "either")
    other = changed(net, rng)
    one, two = net.build(), other.build()
    path = tmp_path / "proof.bnncert"
    grid = bnncert.Box([-1, -1], [1, 1], grid=0.5)
    found = bnncert.compare(one, two, grid, timeout=60, certificate=path)
    points = [list(p) for p in product(np.arange(-1, 1.5, 0.5).tolist(), repeat=2)]
    exact = [[Fraction(v) for v in p] for p in points]
    pairs = [(classes_at(net, p), classes_at(other, p)) for p in exact]
    differ = [len(a) == len(b) == 1 and a != b for a, b in pairs]
    if found.status in ("identical", "equal"):
        assert not any(differ)
    if found.status == "different":
        assert found.difference is not None
        assert differ[points.index(found.difference.point.tolist())]
        assert check(path, one, other=two).verdict == "networks_different"
    # Without ties that change a class, each network has one class for each input.
    if all(len(a) == len(b) == 1 for a, b in pairs):
        assert found.status == "different" if any(differ) else found.status != "different"


def forged(
    path: Path, one: bnncert.Network, two: bnncert.Network, classes: tuple[int, int]
) -> None:
    """Write the claim that two networks have different classes at the input 0."""
    found = Difference(np.zeros(2), None, classes, (np.zeros(2), np.zeros(2)))
    with Prover(Effort(certificate=path), [one, two]).opened() as prover:
        search = ComparisonSearch(prover, one, two, BOX, "", None)
        search.different(found, BOX)
        search.certified(search.answer())


def test_a_difference_of_a_network_and_itself_is_rejected(tmp_path: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]], sign_zero="either")
    path = tmp_path / "wrong.bnncert"
    forged(path, net, net, (0, 1))
    with pytest.raises(RejectedError, match="does not violate"):
        check(path, net, other=net)


def test_a_difference_that_depends_on_ties_is_rejected(tmp_path: Path) -> None:
    """Both networks can have both classes at the input 0, where different neurons are tied."""
    one, two = (
        bnncert.Network.from_arrays([[row], [[1], [-1]]], [[0], [0, 0]], sign_zero="either")
        for row in ([1, 1], [1, -1])
    )
    path = tmp_path / "wrong.bnncert"
    forged(path, one, two, (0, 1))
    with pytest.raises(RejectedError, match="the class of a network at the input depends on"):
        check(path, one, other=two)
    right = bnncert.compare(one, two, BOX, timeout=60, certificate=path)
    assert right.status == "different"
    assert check(path, one, other=two).verdict == "networks_different"
