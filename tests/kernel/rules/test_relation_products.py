"""Two copies of a network as one: the scores of both, from any input, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import bnncert
from bnncert.kernel.rules.relation_products import increase_product, values_product
from tests.random_questions import random_network


def numbers(network: bnncert.Network) -> list[np.ndarray]:
    """Return copies of all arrays of the layers."""
    rows = [layer.rows for layer in network.layers]
    return [np.array(a) for r in rows for a in (r.data, r.indices, r.indptr)]


@pytest.mark.parametrize("seed", range(12))
def test_the_scores_are_those_of_both_inputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, 4, ("plus", "minus")[seed % 2]).build()
    before = numbers(network)
    feature = int(rng.integers(0, 4))
    features = rng.permutation(4)[: int(rng.integers(1, 4))].tolist()
    old, new = rng.integers(-2, 3, (2, len(features))).astype(np.float64)
    stepped = increase_product(network, feature).network
    valued = values_product(network, features, old.tolist(), new.tolist()).network
    for _ in range(25):
        x = rng.integers(-8, 9, 4) / 4
        step = float(rng.integers(-4, 5)) / 4
        y = x.copy()
        y[feature] += step
        wanted = np.concatenate([network.evaluate(x), network.evaluate(y)]) / network.output.gain
        assert np.array_equal(stepped.evaluate([*x, step]), wanted)
        x[features] = old
        y = x.copy()
        y[features] = new
        wanted = np.concatenate([network.evaluate(x), network.evaluate(y)]) / network.output.gain
        assert np.array_equal(valued.evaluate([*x, *new]), wanted)
    assert all(np.array_equal(a, b) for a, b in zip(before, numbers(network), strict=True))


def test_equal_weights_of_a_one_hot_group_are_shared() -> None:
    weights = [[[1, 1, 1, 1], [-1, 0, 0, 1]], [[1, 1], [1, -1]]]
    network = bnncert.Network.from_arrays(weights, [[0, 0], [0.5, 0]])
    first, second, third = np.eye(3).tolist()
    same = values_product(network, [1, 2, 3], first, second)
    assert same.network.sizes == (7, 2, 4) and same.shared == (2,)
    # Neuron 1 has another weight for the third category.
    assert values_product(network, [1, 2, 3], second, third).shared == (1,)
