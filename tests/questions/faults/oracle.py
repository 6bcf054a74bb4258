"""An independent oracle for faults in tiny networks: all sets of faults, in whole numbers."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tests.plain_network import PlainNetwork, flipped

#: (layer, neuron, input) for a weight; (layer, neuron, sign) for a stuck threshold.
Place = tuple[int, int, int]


def places(tiny: PlainNetwork, kind: str, place: str, layer: int | None) -> list[list[Place]]:
    """Return lists of faults; the faults of a set belong to one of them."""
    layers = list(range(tiny.depth + (kind == "weights"))) if layer is None else [layer]
    if kind == "weights" and layer is None and quantises(tiny):
        layers = layers[1:]
    if kind == "thresholds":
        found = [(n, j, s) for n in layers for j in range(len(tiny.weights[n])) for s in (1, -1)]
        return [found]
    rows = [
        [(n, j, i) for i in np.flatnonzero(tiny.weights[n][j]).tolist()]
        for n in layers
        for j in range(len(tiny.weights[n]))
    ]
    return rows if place == "neuron" else [[entry for row in rows for entry in row]]


def quantises(tiny: PlainNetwork) -> bool:
    """Whether the first of several layers compares single inputs with thresholds."""
    return tiny.depth > 1 and all(np.count_nonzero(row) == 1 for row in tiny.weights[0])


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
