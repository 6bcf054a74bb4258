"""An oracle for two copies of a tiny network: every pair of inputs, in exact rationals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product

from tests.brute_force import TinyNetwork

Point = tuple[Fraction, ...]


def outcomes(tiny: TinyNetwork, point: Sequence[Fraction]) -> set[tuple[Fraction, ...]]:
    """Return all score vectors that an input can have: signs at ties may be either."""
    states: set[tuple[Fraction, ...]] = {tuple(point)}
    last = len(tiny.weights) - 1
    for number, (weights, bias) in enumerate(zip(tiny.weights, tiny.biases, strict=True)):
        after: set[tuple[Fraction, ...]] = set()
        for state in states:
            sums = [
                sum((Fraction(w) * x for w, x in zip(row, state, strict=True)), Fraction(b))
                for row, b in zip(weights.tolist(), bias.tolist(), strict=True)
            ]
            if number == last:
                after.add(tuple(sums))
                continue
            zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[tiny.sign_zero]
            signs = [zero if s == 0 else (1,) if s > 0 else (-1,) for s in sums]
            after.update(tuple(map(Fraction, choice)) for choice in product(*signs))
        states = after
    return states


def class_of(scores: Sequence[Fraction]) -> int:
    """Return the first class with the highest score."""
    return max(range(len(scores)), key=lambda k: (scores[k], -k))


def fails(
    tiny: TinyNetwork,
    pairs: Iterable[tuple[Point, Point]],
    violated: Callable[[Sequence[Fraction], Sequence[Fraction]], bool],
) -> bool:
    """Whether a pair of inputs violates a relation between their scores."""
    known: dict[Point, set[tuple[Fraction, ...]]] = {}

    def scores(point: Point) -> set[tuple[Fraction, ...]]:
        if point not in known:
            known[point] = outcomes(tiny, point)
        return known[point]

    return any(violated(a, b) for x, y in pairs for a in scores(x) for b in scores(y))


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
