"""An independent oracle for faults in tiny networks: all sets of faults, in whole numbers."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tests.plain_network import PlainNetwork, flipped

#: (layer, neuron, input) for a weight; (layer, neuron, sign) for a stuck threshold.
Place = tuple[int, int, int]


def places(tiny: PlainNetwork, kind: str, place: str, layer: int | None) -> list[list[Place]]:
    """Return lists of faults; the faults of a set belong to one of them."""
    layers = range(tiny.depth + (kind == "weights")) if layer is None else [layer]
    if kind == "thresholds":
        found = [(n, j, s) for n in layers for j in range(len(tiny.weights[n])) for s in (1, -1)]
        return [found]
    rows = [
        [(n, j, i) for i in np.flatnonzero(tiny.weights[n][j]).tolist()]
        for n in layers
        for j in range(len(tiny.weights[n]))
    ]
    return rows if place == "neuron" else [[entry for row in rows for entry in row]]


def least_faults(
    tiny: PlainNetwork,
    points: list[tuple[int, ...]],
    label: int,
    ties: str,
    scope: tuple[str, str, int | None],
    most: int,
) -> int | None:
    """Return the least number of faults that change the class; None if it is more than `most`."""
    for count in range(most + 1):
        for group in places(tiny, *scope):
            for chosen in combinations(group, count):
                if is_changed(tiny, points, label, ties, scope[0], chosen):
                    return count
    return None


def is_changed(
    tiny: PlainNetwork,
    points: list[tuple[int, ...]],
    label: int,
    ties: str,
    kind: str,
    chosen: tuple[Place, ...],
) -> bool:
    """Whether these faults change the class at some point."""
    if kind == "thresholds":
        return tiny.is_lost(points, label, ties, {(n, j): s for n, j, s in chosen})
    return flipped(tiny, chosen).is_lost(points, label, ties)


def random_tiny(rng: np.random.Generator, depth: int) -> PlainNetwork:
    """Return a network with few weights; the last layer may have weights of size 2."""
    sizes = [int(rng.integers(1, 3)), *rng.integers(1, 4, depth).tolist(), int(rng.integers(2, 4))]
    weights = [rng.integers(-1, 2, (sizes[n + 1], sizes[n])) for n in range(depth + 1)]
    if rng.random() < 0.3:
        weights[-1] = weights[-1] * rng.integers(1, 3, weights[-1].shape)
    if rng.random() < 0.3:
        weights[0] = weights[0] * rng.integers(1, 3, weights[0].shape)
    biases = [rng.integers(-3, 4, n) for n in sizes[1:]]
    return PlainNetwork(weights, biases, str(rng.choice(["plus", "minus", "either"])))
