"""An oracle for two copies of a tiny network: every pair of inputs, in exact rationals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product

from tests.brute_force import TinyNetwork

Point = tuple[Fraction, ...]


#: The signs of neurons at sums of 0: (layer, neuron, sign).
Choices = frozenset[tuple[int, int, int]]


def outcomes(
    tiny: TinyNetwork, point: Sequence[Fraction]
) -> set[tuple[tuple[Fraction, ...], Choices]]:
    """Return all score vectors that an input can have, with the signs at sums of 0 that they need.

    If sign(0) may be either, it is so for each neuron on its own.
    """
    states: set[tuple[tuple[Fraction, ...], Choices]] = {(tuple(point), frozenset())}
    last = len(tiny.weights) - 1
    for number, (weights, bias) in enumerate(zip(tiny.weights, tiny.biases, strict=True)):
        after: set[tuple[tuple[Fraction, ...], Choices]] = set()
        for state, known in states:
            sums = [
                sum((Fraction(w) * x for w, x in zip(row, state, strict=True)), Fraction(b))
                for row, b in zip(weights.tolist(), bias.tolist(), strict=True)
            ]
            if number == last:
                after.add((tuple(sums), known))
                continue
            zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[tiny.sign_zero]
            signs = [zero if s == 0 else (1,) if s > 0 else (-1,) for s in sums]
            for choice in product(*signs):
                new = {(number, j, choice[j]) for j, s in enumerate(sums) if s == 0}
                after.add((tuple(map(Fraction, choice)), known | new))
        states = after
    return states


def agree(one: Choices, two: Choices) -> bool:
    """Whether no neuron has sign(0) = +1 for one input and -1 for the other."""
    return not any((layer, j, -sign) in two for layer, j, sign in one)


def class_of(scores: Sequence[Fraction]) -> int:
    """Return the first class with the highest score."""
    return max(range(len(scores)), key=lambda k: (scores[k], -k))


def fails(
    tiny: TinyNetwork,
    pairs: Iterable[tuple[Point, Point]],
    violated: Callable[[Sequence[Fraction], Sequence[Fraction]], bool],
) -> bool:
    """Whether a pair of inputs violates a relation between their scores.

    If sign(0) may be either, it is the same for both inputs, for each neuron.
    """
    known: dict[Point, set[tuple[tuple[Fraction, ...], Choices]]] = {}

    def scores(point: Point) -> set[tuple[tuple[Fraction, ...], Choices]]:
        if point not in known:
            known[point] = outcomes(tiny, point)
        return known[point]

    return any(
        violated(a, b) and agree(one, two)
        for x, y in pairs
        for a, one in scores(x)
        for b, two in scores(y)
    )


def ordered_pairs(
    axes: Sequence[Sequence[Fraction]],
    feature: int,
    step: Fraction | None = None,
    allowed: Callable[[Point], bool] = lambda point: True,
) -> list[tuple[Point, Point]]:
    """Return all pairs of points of a product of axes with a larger value of one feature."""
    found = []
    for point in filter(allowed, product(*axes)):
        for value in axes[feature]:
            gap = value - point[feature]
            if gap > 0 and (step is None or (gap / step).denominator == 1):
                found.append((point, (*point[:feature], value, *point[feature + 1 :])))
    return found
