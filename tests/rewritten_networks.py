"""Other descriptions of the same function: neurons permuted, negated, doubled, scaled or added."""

from __future__ import annotations

import numpy as np

from tests.brute_force import TinyNetwork


def rewritten(net: TinyNetwork, rng: np.random.Generator) -> TinyNetwork:
    """Return a network with the same scores everywhere, except where sign(0) may be either."""
    weights = [w.copy() for w in net.weights]
    biases = [b.copy() for b in net.biases]
    for number in range(len(weights) - 1):
        _permute(weights, biases, number, rng)
        if number > 0 and not _may_tie(weights[number], biases[number]):
            _negate(weights, biases, number, rng)
        _add_unused(weights, biases, number, rng)
        if number == len(weights) - 2:
            _double(weights, biases, number, rng)
    return TinyNetwork(tuple(weights), tuple(biases), net.sign_zero)


Arrays = list[np.ndarray]


def _permute(weights: Arrays, biases: Arrays, k: int, rng: np.random.Generator) -> None:
    order = rng.permutation(biases[k].size)
    weights[k], biases[k] = weights[k][order], biases[k][order]
    weights[k + 1] = weights[k + 1][:, order]


def _may_tie(weights: np.ndarray, biases: np.ndarray) -> bool:
    """Whether a sum can be 0; negation changes sign(0)."""
    whole = biases == np.rint(biases)
    return bool(np.any(whole & ((np.abs(weights).sum(axis=1) + biases) % 2 == 0)))


def _negate(weights: Arrays, biases: Arrays, k: int, rng: np.random.Generator) -> None:
    factor = rng.choice([-1.0, 1.0], biases[k].size)
    weights[k], biases[k] = weights[k] * factor[:, None], biases[k] * factor
    weights[k + 1] = weights[k + 1] * factor


def _add_unused(weights: Arrays, biases: Arrays, k: int, rng: np.random.Generator) -> None:
    """Add a neuron that the next layer does not read."""
    row = rng.choice([-1.0, 0.0, 1.0], (1, weights[k].shape[1]))
    weights[k], biases[k] = np.vstack([weights[k], row]), np.append(biases[k], 0.5)
    weights[k + 1] = np.hstack([weights[k + 1], np.zeros((weights[k + 1].shape[0], 1))])


def _double(weights: Arrays, biases: Arrays, k: int, rng: np.random.Generator) -> None:
    """Replace a neuron by two, each with half of its weight in the scores."""
    j = int(rng.integers(biases[k].size))
    weights[k], biases[k] = (
        np.vstack([weights[k], weights[k][j]]),
        np.append(biases[k], biases[k][j]),
    )
    half = weights[k + 1][:, [j]] / 2
    weights[k + 1][:, [j]] = half
    weights[k + 1] = np.hstack([weights[k + 1], half])
