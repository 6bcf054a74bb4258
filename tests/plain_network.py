"""Tiny networks of whole numbers, evaluated by plain loops: nothing of the package is used.

The inputs and the biases of the first layer are counted in quarters, all other biases in halves.
So every sum is a whole number (or a rational one, where a point is none of quarters), and ties are
frequent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np

import bnncert
from tests.brute_force import TinyNetwork

#: A number of quarters.
Quarters: TypeAlias = int | Fraction
Point: TypeAlias = tuple[Quarters, ...]
Scores: TypeAlias = tuple[int, ...]

SIGNS_AT_ZERO = ("plus", "minus", "either")
TIES = ("violation", "robust")


@dataclass(frozen=True, eq=False)
class PlainNetwork:
    """Weights and biases, rows are neurons; the built network has them times positive factors.

    Attributes
    ----------
    weights, biases
        Whole numbers, those of the output last.
    sign_zero
        The value of sign(0).
    factors
        A factor for each neuron of the first layer and one for all scores, which change nothing.
    """

    weights: Sequence[Any]
    biases: Sequence[Any]
    sign_zero: Any
    factors: tuple[tuple[float, ...], float] = field(default=((), 1.0))

    @cached_property
    def tiny(self) -> TinyNetwork:
        """The same numbers as the package takes them."""
        first, *above = (np.asarray(b, dtype=np.float64) for b in self.biases)
        weights = [np.asarray(w, dtype=np.float64) for w in self.weights]
        biases = [first / 4, *(b / 2 for b in above)]
        rows, scores = self.factors
        if rows:
            weights[0], biases[0] = weights[0] * np.array(rows)[:, None], biases[0] * np.array(rows)
        weights[-1], biases[-1] = weights[-1] * scores, biases[-1] * scores
        return TinyNetwork(tuple(weights), tuple(biases), self.sign_zero)

    def build(self, **about: Any) -> bnncert.Network:
        tiny = self.tiny
        return bnncert.Network.from_arrays(
            tiny.weights, tiny.biases, sign_zero=self.sign_zero, **about
        )

    @property
    def depth(self) -> int:
        return len(self.weights) - 1

    @property
    def inputs(self) -> int:
        return len(self.weights[0][0])

    @property
    def classes(self) -> int:
        return len(self.weights[-1])

    @cached_property
    def _rows(self) -> list[list[tuple[list[int], int]]]:
        """For every layer the weights and the bias of each neuron."""
        layers = zip(self.weights, self.biases, strict=True)
        return [
            [([int(v) for v in row], int(b)) for row, b in zip(w, bias, strict=True)]
            for w, bias in layers
        ]

    def sums(self, number: int, below: Sequence[Quarters]) -> list[Any]:
        """Return the sums of a layer: in quarters for the first one, in halves above."""
        factor = 1 if number == 0 else 2
        found = []
        for row, bias in self._rows[number]:
            total: Quarters = 0
            for w, x in zip(row, below, strict=True):
                total += w * x
            found.append(factor * total + bias)
        return found

    def signs(self, total: Quarters) -> tuple[int, ...]:
        """Return the signs that a neuron with this sum may have."""
        if total > 0:
            return (1,)
        if total < 0:
            return (-1,)
        return {"plus": (1,), "minus": (-1,), "either": (1, -1)}[self.sign_zero]

    def hidden(
        self, point: Sequence[Quarters], stuck: Mapping[tuple[int, int], int] | None = None
    ) -> set[tuple[int, ...]]:
        """Return the sign vectors that the last hidden layer may have at a point."""
        stuck = stuck or {}
        states: set[Any] = {tuple(point)}
        for number in range(self.depth):
            after: set[Any] = set()
            for state in states:
                choices = [
                    (stuck[number, j],) if (number, j) in stuck else self.signs(u)
                    for j, u in enumerate(self.sums(number, state))
                ]
                after.update(product(*choices))
            states = after
        return states

    def outcomes(
        self, point: Sequence[Quarters], stuck: Mapping[tuple[int, int], int] | None = None
    ) -> set[Scores]:
        """Return all scores in halves that a point may have; ties may be decided either way."""
        return {tuple(self.sums(self.depth, last)) for last in self.hidden(point, stuck)}

    def pair_outcomes(self, x: Point, y: Point) -> set[tuple[Scores, Scores]]:
        """Return all scores that two points may have if equal ties are decided in the same way.

        Each neuron whose sum is 0 may have either sign (where sign(0) may be either), but one whose
        sum is 0 for both points has the same sign for both.
        """
        states: set[Any] = {(x, y)}
        for number in range(self.depth):
            after: set[Any] = set()
            for one, two in states:
                sums = zip(self.sums(number, one), self.sums(number, two), strict=True)
                choices = [
                    [(s, s) for s in self.signs(u)]
                    if u == v == 0
                    else list(product(self.signs(u), self.signs(v)))
                    for u, v in sums
                ]
                for chosen in product(*choices):
                    after.add((tuple(s for s, _ in chosen), tuple(s for _, s in chosen)))
            states = after
        return {
            (tuple(self.sums(self.depth, a)), tuple(self.sums(self.depth, b))) for a, b in states
        }

    def is_lost(
        self,
        points: Iterable[Sequence[Quarters]],
        label: int,
        ties: str,
        stuck: Mapping[tuple[int, int], int] | None = None,
    ) -> bool:
        """Whether another class can win at one of the points."""
        return any(
            is_other(scores, label, ties) for p in points for scores in self.outcomes(p, stuck)
        )

    def classes_at(self, point: Sequence[Quarters]) -> set[int]:
        """Return the classes that a point may have."""
        return {first_best(scores) for scores in self.outcomes(point)}


def is_other(scores: Sequence[int], label: int, ties: str) -> bool:
    """Whether another class has a higher score, or the same one where ties are violations."""
    best = max(s for k, s in enumerate(scores) if k != label)
    return best > scores[label] or (best == scores[label] and ties == "violation")


def first_best(scores: Sequence[int]) -> int:
    """Return the first class with the highest score."""
    best = 0
    for k, s in enumerate(scores):
        if s > scores[best]:
            best = k
    return best


def quarters(values: Iterable[Any]) -> Point:
    """Return floats or rationals as exact numbers of quarters."""
    found = [4 * Fraction(v) for v in values]
    return tuple(int(v) if v.denominator == 1 else v for v in found)


def random_plain(
    rng: np.random.Generator,
    inputs: int | None = None,
    *,
    depth: int | None = None,
    sign_zero: str | None = None,
    classes: int | None = None,
) -> PlainNetwork:
    """Return a network of 2 to 4 inputs, 1 to 3 layers of 1 to 3 neurons, and 2 to 3 classes.

    Weights are -1, 0 and 1, or of sizes up to 3; some networks are multiplied by factors.
    """
    inputs = int(rng.integers(2, 5)) if inputs is None else inputs
    depth = int(rng.choice([1, 2, 3], p=[0.35, 0.4, 0.25])) if depth is None else depth
    hidden = rng.choice([1, 2, 3], depth, p=[0.1, 0.4, 0.5]).tolist()
    sizes = [inputs, *hidden, int(rng.integers(2, 4)) if classes is None else classes]
    zeros = float(rng.choice([0.05, 0.2, 0.5]))
    weights = []
    for number in range(depth + 1):
        shape = (sizes[number + 1], sizes[number])
        made = rng.choice([0, 1, -1], shape, p=[zeros, (1 - zeros) / 2, (1 - zeros) / 2])
        # Above the first layer, the weights of a neuron have one size.
        of_neurons = 0 < number < depth
        factor = rng.integers(1, 4, (shape[0], 1) if of_neurons else shape)
        weights.append((made * factor if rng.random() < 0.3 else made).tolist())
    # Even numbers of halves meet the whole numbers of the sums, so that there are ties.
    unit = int(rng.choice([1, 2], p=[0.4, 0.6]))
    first, *above = (rng.integers(-3, 4, n) for n in sizes[1:])
    biases = [first.tolist(), *((unit * (b // 2)).tolist() for b in above)]
    factors: tuple[tuple[float, ...], float] = ((), 1.0)
    if rng.random() < 0.3:
        rows = 2.0 ** rng.integers(-3, 4, sizes[1])
        factors = tuple(rows.tolist()), 2.0 ** int(rng.integers(-3, 4))
    zero = str(rng.choice(SIGNS_AT_ZERO)) if sign_zero is None else sign_zero
    return PlainNetwork(weights, biases, zero, factors)


@dataclass(frozen=True, eq=False)
class PlainRegion:
    """Grid points by plain loops, and the region of the package that should have the same."""

    region: bnncert.Region
    points: list[tuple[int, ...]]
    centre: tuple[int, ...]
    kind: str


def random_grid_region(
    rng: np.random.Generator, inputs: int, kinds: Sequence[str] = ("box", "linf", "l1", "l2", "l0")
) -> PlainRegion:
    """Return a region of at most some dozens of points on a grid of one, two or four quarters."""
    kind, step = str(rng.choice(kinds)), int(rng.choice([1, 2, 4]))
    origin = int(rng.integers(0, step))
    most = {1: 6, 2: 4, 3: 3}.get(inputs, 2)
    low = [origin + step * int(k) for k in rng.integers(-3, 2, inputs)]
    high = [a + step * int(k) for a, k in zip(low, rng.integers(0, most, inputs), strict=True)]
    axes = [range(a, b + 1, step) for a, b in zip(low, high, strict=True)]
    centre = tuple(int(rng.choice(axis)) for axis in axes)
    lo, hi, middle = (np.array(v) / 4 for v in (low, high, centre))
    grid = bnncert.Grid(step / 4, origin / 4)
    if kind == "box":
        return PlainRegion(bnncert.Box(lo, hi, grid), list(product(*axes)), centre, kind)
    if kind == "l0":
        radius = int(rng.integers(0, inputs + 1))
        ball: bnncert.Region = bnncert.L0Ball(middle, radius, lo, hi, grid=grid)
    else:
        radius = int(rng.integers(0, 4 * step + 1))
        ball = bnncert.Ball(kind, middle, radius / 4, lo, hi, grid=grid)  # type: ignore[arg-type]
    points = [p for p in product(*axes) if _is_near(kind, p, centre, radius)]
    return PlainRegion(ball, points, centre, kind)


def _is_near(kind: str, p: Sequence[int], centre: Sequence[int], radius: int) -> bool:
    gaps = [abs(a - b) for a, b in zip(p, centre, strict=True)]
    if kind == "linf":
        return max(gaps) <= radius
    if kind == "l0":
        return sum(g > 0 for g in gaps) <= radius
    return sum(gaps) <= radius if kind == "l1" else sum(g * g for g in gaps) <= radius**2


def flipped(net: PlainNetwork, places: Iterable[tuple[int, int, int]]) -> PlainNetwork:
    """Return the network in which the weights at (layer, neuron, input) have the other sign."""
    weights = [[list(row) for row in w] for w in net.weights]
    for n, j, i in places:
        weights[n][j][i] *= -1
    return PlainNetwork(weights, net.biases, net.sign_zero, net.factors)


def subsets(size: int) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of the numbers below `size`."""
    for mask in range(1 << size):
        yield tuple(k for k in range(size) if mask >> k & 1)
