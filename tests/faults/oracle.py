"""An independent oracle for faults in tiny networks: all sets of faults, in whole numbers.

Inputs are multiples of 1/4, so everything is evaluated in units of 1/4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

import bnncert

#: (layer, neuron, input) for a weight; (layer, neuron, sign) for a stuck threshold.
Place = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Tiny:
    """Weights and biases as lists, biases in quarters for the first layer and in halves above."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    sign_zero: Any

    def build(self) -> bnncert.Network:
        first, *above = self.biases
        return bnncert.Network.from_arrays(
            self.weights, [first / 4, *(b / 2 for b in above)], sign_zero=self.sign_zero
        )

    @property
    def depth(self) -> int:
        return len(self.weights) - 1

    def scores(
        self, point: tuple[int, ...], stuck: dict[tuple[int, int], int]
    ) -> Iterator[list[int]]:
        """Yield the scores in halves for all decisions of ties; the point is in quarters."""

        def extend(below: list[int], layer: int) -> Iterator[list[int]]:
            factor = 1 if layer == 0 else 2
            sums = [
                factor * sum(int(w) * x for w, x in zip(row, below, strict=True)) + int(b)
                for row, b in zip(self.weights[layer], self.biases[layer], strict=True)
            ]
            if layer == self.depth:
                yield sums
                return
            tie = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[self.sign_zero]
            choices = [
                (stuck[layer, j],)
                if (layer, j) in stuck
                else (1,)
                if u > 0
                else (-1,)
                if u < 0
                else tie
                for j, u in enumerate(sums)
            ]
            for signs in product(*choices):
                yield from extend(list(signs), layer + 1)

        yield from extend(list(point), 0)

    def is_lost(
        self,
        points: Iterable[tuple[int, ...]],
        label: int,
        ties: str,
        stuck: dict[tuple[int, int], int],
    ) -> bool:
        """Whether another class can win at one of the points."""
        for point in points:
            for scores in self.scores(point, stuck):
                others = max(s for k, s in enumerate(scores) if k != label)
                if scores[label] < others or (scores[label] == others and ties == "violation"):
                    return True
        return False


def places(tiny: Tiny, kind: str, place: str, layer: int | None) -> list[list[Place]]:
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
    tiny: Tiny,
    points: list[tuple[int, ...]],
    label: int,
    ties: str,
    scope: tuple[str, str, int | None],
    most: int,
) -> int | None:
    """Return the least number of faults that change the class; None if it is more than `most`."""
    kind = scope[0]
    for count in range(most + 1):
        for group in places(tiny, *scope):
            for chosen in combinations(group, count):
                if _is_changed(tiny, points, label, ties, kind, chosen):
                    return count
    return None


def _is_changed(
    tiny: Tiny,
    points: list[tuple[int, ...]],
    label: int,
    ties: str,
    kind: str,
    chosen: tuple[Place, ...],
) -> bool:
    if kind == "thresholds":
        stuck = {(n, j): s for n, j, s in chosen}
        return tiny.is_lost(points, label, ties, stuck)
    weights = [w.copy() for w in tiny.weights]
    for n, j, i in chosen:
        weights[n][j, i] *= -1
    return Tiny(weights, tiny.biases, tiny.sign_zero).is_lost(points, label, ties, {})


def random_tiny(rng: np.random.Generator, depth: int) -> Tiny:
    """Return a network with few weights; the last layer may have weights of size 2."""
    sizes = [int(rng.integers(1, 3)), *rng.integers(1, 4, depth).tolist(), int(rng.integers(2, 4))]
    weights = [rng.integers(-1, 2, (sizes[n + 1], sizes[n])) for n in range(depth + 1)]
    if rng.random() < 0.3:
        weights[-1] = weights[-1] * rng.integers(1, 3, weights[-1].shape)
    if rng.random() < 0.3:
        weights[0] = weights[0] * rng.integers(1, 3, weights[0].shape)
    biases = [rng.integers(-3, 4, n) for n in sizes[1:]]
    return Tiny(weights, biases, str(rng.choice(["plus", "minus", "either"])))
