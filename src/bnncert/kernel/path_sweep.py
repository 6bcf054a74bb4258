r"""The first-layer signs along a path of images, computed again in exact arithmetic.

The path is  y_i(t) = clip(a_i + t d_i, lo_i, hi_i)  for t in [first, last].  At every *corner* (the
two ends, and each t at which an input meets the data box) the sums of all neurons are computed as
rationals; between two corners they are linear, so that a sign changes at most once, at a rational
number that follows from the sums at both corners.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Objects, scaled
from bnncert.kernel.geometry import MOST_DIGITS, digits, dot
from bnncert.kernel.sparse import SparseRows
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network


@dataclass(frozen=True, eq=False)
class StatedPath:
    """The exact numbers of a path; None for a side without a limit."""

    start: list[Fraction]
    slope: list[Fraction]
    lower: list[Fraction | None]
    upper: list[Fraction | None]
    first: Fraction
    last: Fraction

    def image(self, t: Fraction) -> list[Fraction]:
        """Return the image at t."""
        image = []
        for a, d, low, high in zip(self.start, self.slope, self.lower, self.upper, strict=True):
            y = a + d * t
            if low is not None:
                y = max(y, low)
            image.append(y if high is None else min(y, high))
        return image

    def corners(self) -> list[Fraction]:
        """Return the ends of the path, and each t between them at which it may bend."""
        found = {self.first, self.last}
        for a, d, *limits in zip(self.start, self.slope, self.lower, self.upper, strict=True):
            found |= {(limit - a) / d for limit in limits if d and limit is not None}
        return sorted(t for t in found if self.first <= t <= self.last)


class PathSums:
    """The sums w.y + b of the first layer at single images, with both ends of each bias."""

    def __init__(self, network: Network) -> None:
        layer = network.layers[0]
        rows = SparseRows.of_weights(layer.rows)
        values, self._shift = rows.values, 0
        if values.dtype.kind == "f":
            values, self._shift = scaled(values)
        parts = digits(values)
        if len(parts) > MOST_DIGITS:
            raise RejectedError("the first layer's weights are too fine")
        self._rows = [rows.with_values(part) for part in parts]
        self.low, self.high = (_rationals(b) for b in layer.enclosure)
        self._tie = {"plus": 1, "minus": -1, "either": TIED}[layer.sign_zero]

    def at(self, image: list[Fraction]) -> list[Fraction]:
        """Return the sums w.y of all neurons, without their biases."""
        common = lcm(*(y.denominator for y in image))
        whole = np.array([int(y * common) for y in image], dtype=object)
        sums: Objects = dot(self._rows, digits(whole))
        return [Fraction(int(s), common << self._shift) for s in sums]

    def sign(self, low: Fraction | int, high: Fraction | int, j: int) -> int:
        """Return the sign of neuron j, given its sum with both ends of its bias."""
        if low > 0 or high < 0:
            return 1 if low > 0 else -1
        return self._tie if self.low[j] == self.high[j] else UNDECIDED


def patterns_on(path: StatedPath, network: Network) -> Iterator[SignArray]:
    """Yield the first-layer signs of all images of the path, some of them more than once."""
    sums = PathSums(network)
    size = len(sums.low)

    def at(t: Fraction) -> tuple[list[Fraction], list[Fraction]]:
        plain = sums.at(path.image(t))
        return (
            [s + b for s, b in zip(plain, sums.low, strict=True)],
            [s + b for s, b in zip(plain, sums.high, strict=True)],
        )

    def signs(low: list[int], high: list[int]) -> SignArray:
        found = [sums.sign(low[j], high[j], j) for j in range(size)]
        return np.array(found, dtype=np.int8)

    corners = path.corners()
    before = at(corners[0])
    yield signs(*map(_signs, before))
    for end in timed(corners[1:]):
        after = at(end)
        # The share of the way to `end` at which a sum crosses zero, with its two signs.
        crossings: dict[Fraction, list[tuple[int, int]]] = {}
        inside = []
        for side in (0, 1):
            inside.append(
                [_sign(u) or _sign(v) for u, v in zip(before[side], after[side], strict=True)]
            )
            for j, (u, v) in enumerate(zip(before[side], after[side], strict=True)):
                if _sign(u) * _sign(v) < 0:
                    crossings.setdefault(u / (u - v), []).append((side, j))
        yield signs(*inside)
        for share in sorted(crossings):
            for side, j in crossings[share]:
                inside[side][j] = 0
            yield signs(*inside)
            for side, j in crossings[share]:
                inside[side][j] = _sign(after[side][j])
            yield signs(*inside)
        yield signs(*map(_signs, after))
        before = after


def last_layers(network: Network, pattern: SignArray) -> list[SignArray]:
    """Return the last-layer signs that first-layer signs allow; reject too many choices."""
    upper = network.layers[1:]
    above = Network(upper, network.output, (pattern.size,))
    open_ = np.flatnonzero((pattern == TIED) | (pattern == UNDECIDED))
    if 2**open_.size > MOST_TIE_CHOICES:
        raise RejectedError("too many signs are undecided at one image")
    found: dict[bytes, SignArray] = {}

    def choices() -> Iterator[SignArray]:
        for choice in product((1, -1), repeat=int(open_.size)):
            signs = pattern.copy()
            signs[open_] = choice
            for layers in above.exact_patterns(signs):
                yield layers[-1] if layers else signs

    for count, last in enumerate(timed(choices()), start=1):
        # The evaluation ends at this number, so that there may be more.
        if count >= MOST_TIE_CHOICES:
            raise RejectedError("too many signs are undecided at one image")
        found[last.tobytes()] = last
    return list(found.values())


def _rationals(numbers: FloatArray) -> list[Fraction]:
    return [Fraction(v) for v in numbers.tolist()]


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


def _signs(numbers: list[Fraction]) -> list[int]:
    return [_sign(v) for v in numbers]
