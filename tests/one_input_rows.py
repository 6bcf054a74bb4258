"""First layers whose neurons read one input each: every reachable sign pattern, in exact rationals.

Such a layer binarises its inputs.  The thresholds divide the values of an input into points and
open intervals, and of each of these only its distance from the centre matters, so that many more
inputs are possible than for the elimination of `tests.brute_force`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

import bnncert
from tests.brute_force import TinyNetwork

#: Signs of the first layer; 0 for neurons that a part of the computation does not concern.
Signs = tuple[int, ...]

#: The least distance of a part of the line from the centre, and whether no point of it has that.
Distance = tuple[Fraction, bool]

ZERO = Fraction(0)


def reads_one_input(net: TinyNetwork) -> bool:
    """Whether every neuron of the first layer reads at most one input."""
    return bool(np.all(np.count_nonzero(net.weights[0], axis=1) <= 1))


def reachable_patterns(net: TinyNetwork, region: bnncert.Region) -> set[Signs]:
    """Return every sign pattern of the first layer that some point of a box or a ball has."""
    norm, center, radius, low, high = _bounds(region)
    power = 2 if norm == "l2" else 1
    found: dict[Signs, Distance] = dict.fromkeys(_constant_signs(net), (ZERO, False))
    for i in range(region.size):
        parts = _parts(net, i, center[i], low[i], high[i])
        joined: dict[Signs, Distance] = {}
        for (whole, (spent, open_)), (own, (distance, missed)) in product(
            found.items(), parts.items()
        ):
            cost = distance**power
            total = max(spent, cost) if norm == "linf" else spent + cost
            # The largest distance of an L-inf ball decides, whichever input it belongs to.
            strict = (open_ and spent == total) or (missed and cost == total)
            strict = strict if norm == "linf" else open_ or missed
            if radius is not None and (total, strict) > (radius**power, False):
                continue
            signs = tuple(a or b for a, b in zip(whole, own, strict=True))
            joined[signs] = min(joined.get(signs, (total, strict)), (total, strict))
        found = joined
    return set(found)


def _bounds(
    region: bnncert.Region,
) -> tuple[str, list[Fraction], Fraction | None, list[Fraction | None], list[Fraction | None]]:
    """Return the norm, the centre, the radius, and the bounds of every input."""

    def fractions(values: np.ndarray | None) -> list[Fraction | None]:
        return [None] * region.size if values is None else [Fraction(v) for v in values.tolist()]

    if isinstance(region, bnncert.Ball):
        center = [Fraction(v) for v in region.middle.tolist()]
        clip = fractions(region.clip_lo), fractions(region.clip_hi)
        return region.norm, center, Fraction(region.radius), *clip
    assert isinstance(region, bnncert.Box)
    center = [Fraction(v) for v in region.lo.tolist()]
    return "linf", center, None, fractions(region.lo), fractions(region.hi)


def _constant_signs(net: TinyNetwork) -> Iterator[Signs]:
    """Yield the signs of neurons that read nothing, 0 for the others."""
    biases = [Fraction(v) for v in net.biases[0].tolist()]
    reads = net.weights[0].any(axis=1)
    choices = [(0,) if r else _signs(b, net.sign_zero) for r, b in zip(reads, biases, strict=True)]
    yield from product(*choices)


def _signs(value: Fraction, sign_zero: str) -> Signs:
    if value:
        return (1,) if value > 0 else (-1,)
    return {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]


def _parts(
    net: TinyNetwork, i: int, center: Fraction, low: Fraction | None, high: Fraction | None
) -> dict[Signs, Distance]:
    """Return the signs that the values of one input give, with their distances from the centre."""
    weights = [Fraction(v) for v in net.weights[0][:, i].tolist()]
    biases = [Fraction(v) for v in net.biases[0].tolist()]
    cuts = sorted({-b / w for w, b in zip(weights, biases, strict=True) if w})
    ends = [None, *cuts, None]
    found: dict[Signs, Distance] = {}

    def add(x: Fraction, distance: Distance | None) -> None:
        if distance is None:
            return
        choices = [
            _signs(w * x + b, net.sign_zero) if w else (0,)
            for w, b in zip(weights, biases, strict=True)
        ]
        for signs in product(*choices):
            found[signs] = min(found.get(signs, distance), distance)

    for cut in cuts:
        inside = (low is None or low <= cut) and (high is None or cut <= high)
        add(cut, (abs(cut - center), False) if inside else None)
    for left, right in pairwise(ends):
        add(_between(left, right), _distance(left, right, center, low, high))
    return found


def _between(left: Fraction | None, right: Fraction | None) -> Fraction:
    """Return a point of an open interval."""
    if left is None:
        return ZERO if right is None else right - 1
    return left + 1 if right is None else (left + right) / 2


def _distance(
    left: Fraction | None,
    right: Fraction | None,
    center: Fraction,
    low: Fraction | None,
    high: Fraction | None,
) -> Distance | None:
    """Return how far the open interval within [low, high] is from the centre, None if empty."""
    # An end and whether it is excluded; of equal ends the excluded one counts.
    starts = [(v, s) for v, s in ((left, True), (low, False)) if v is not None]
    stops = [(v, not s) for v, s in ((right, True), (high, False)) if v is not None]
    start, stop = max(starts, default=None), min(stops, default=None)
    if start is None or stop is None:
        is_empty = False
    else:
        is_empty = start[0] > stop[0] or (start[0] == stop[0] and (start[1] or not stop[1]))
    if is_empty:
        return None
    if start is not None and center <= start[0]:
        return start[0] - center, start[1]
    if stop is not None and center >= stop[0]:
        return center - stop[0], not stop[1]
    return ZERO, False
