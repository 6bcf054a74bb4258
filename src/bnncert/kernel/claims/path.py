r"""Check of a claim about brightness or contrast: the whole path of images is swept again.

The path is  y_i(t) = clip(a_i + t d_i, lo_i, hi_i)  for t in [first, last].  At every *corner* (the
two ends, and each t at which an input meets the data box) the sums of all neurons are computed as
rationals; between two corners they are linear, so that a sign changes at most once, at a rational
number that follows from the sums at both corners.  A robust claim needs no further data.  A
counterexample is one number t, from which the image follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import COMMON, ClaimParts, ClassifiedImage, Shown, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.counterexample import is_violated
from bnncert.kernel.function import Objects, scaled
from bnncert.kernel.geometry import MOST_DIGITS, digits, dot
from bnncert.kernel.sparse import SparseRows
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network

DETAILS = (*COMMON, "place", "target")

#: The largest number of digits of the place of a counterexample, and of signs that are remembered.
MOST_PLACE_DIGITS, MOST_SEEN = 2000, 2**26


class PathClaim:
    """The claim about brightness or contrast."""

    def __init__(self, section: Section, subject: Subject) -> None:
        self._found = found = subject.details(section, DETAILS)
        self._claim = claim = ClassifiedImage(section, found, subject)
        if claim.shape["region"] not in ("brightness", "contrast"):
            raise UnreadableError("section claim: the region is neither brightness nor contrast")
        is_contrast, size = claim.shape["region"] == "contrast", claim.image.size
        self._pivot = section.floats("pivot", size) if is_contrast else None
        if claim.verdict == "robust" and (found["place"], found["target"]) != (None, None):
            raise UnreadableError("section claim: a robust claim with a counterexample")
        radius = claim.radius
        self._words = f"every brightness offset from {-radius!r} to {radius!r} of the image"
        if self._pivot is not None:
            factors = f"from 1 - {radius!r} to 1 + {radius!r} about {_about(self._pivot, claim)}"
            self._words = f"every contrast factor {factors} of the image"

    def parts(self) -> ClaimParts:
        """Sweep the path; there are no parts."""
        path = _path(self._claim, Fraction(self._claim.radius), self._pivot)
        if self._claim.verdict == "robust":
            _refuse_violations(path, self._claim)
        else:
            _refuse_harmless(path, self._claim, self._found)
        yield from ()

    def shown(self) -> Shown:
        """Return what holds for all images of the path, in words."""
        return self._claim.shown(self._words)


def _about(pivot: FloatArray, claim: ClassifiedImage) -> str:
    """Return in words what contrast does not change; reject numbers that words do not tell."""
    if np.all(pivot == pivot[0]):
        return repr(float(pivot[0]))
    low, high = claim.lower, claim.upper
    if low is None or high is None or not np.array_equal(pivot, (low + high) / 2):
        raise RejectedError("the pivot is neither one number nor the middle of the data box")
    return "the middle of each input"


def _path(claim: ClassifiedImage, radius: Fraction, pivot: Any) -> StatedPath:
    """Move all inputs alike for brightness, and away from the pivot for contrast."""
    image, none = _exactly(claim.image), [None] * claim.image.size
    lower: list[Fraction | None] = list(none if claim.lower is None else _exactly(claim.lower))
    upper: list[Fraction | None] = list(none if claim.upper is None else _exactly(claim.upper))
    if pivot is None:
        return StatedPath(image, [Fraction(1)] * len(image), lower, upper, -radius, radius)
    if radius > 1:
        raise RejectedError("the radius of contrast is above 1")
    middle = _exactly(pivot)
    slope = [x - m for x, m in zip(image, middle, strict=True)]
    return StatedPath(middle, slope, lower, upper, 1 - radius, 1 + radius)


def _refuse_violations(path: StatedPath, claim: ClassifiedImage) -> None:
    """Reject a path with an image at which some function may fail."""
    seen: set[bytes] = set()
    for pattern in timed(patterns_on(path, claim.network)):
        if pattern.tobytes() not in seen:
            if len(seen) * pattern.size > MOST_SEEN:
                # A pattern may be looked at again.
                seen.clear()
            seen.add(pattern.tobytes())
            claim.refuse_violation(last_layers(claim.network, pattern))


def _refuse_harmless(path: StatedPath, claim: ClassifiedImage, found: dict[str, Any]) -> None:
    """Reject a place that is not on the path, or whose image does not violate the property."""
    if not isinstance(found["place"], str) or len(found["place"]) > MOST_PLACE_DIGITS:
        raise UnreadableError("section claim: the place of the counterexample is not a number")
    t, target = exactly(found["place"]), found["target"]
    if not path.first <= t <= path.last:
        raise RejectedError("the counterexample lies outside the path")
    if type(target) is not int or not 0 <= target < len(claim.functions):
        raise RejectedError("the counterexample is for a target that does not exist")
    sums = PathSums(claim.network)
    plain = sums.at(path.image(t))
    pairs = zip(plain, sums.low, sums.high, strict=True)
    signs = np.array([sums.sign(s + a, s + b, j) for j, (s, a, b) in enumerate(pairs)], np.int8)
    if np.any(signs == UNDECIDED):
        raise RejectedError("rounding may change a sign at the counterexample")
    lasts = last_layers(claim.network, signs)
    if not any(is_violated(claim.functions[target], x) for x in lasts):
        raise RejectedError("the counterexample does not violate the property")


# -- the sweep ---------------------------------------------------------------------------------


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
        self.low, self.high = (_exactly(b) for b in layer.enclosure)
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


def _exactly(numbers: FloatArray) -> list[Fraction]:
    return [Fraction(v) for v in numbers.tolist()]


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


def _signs(numbers: list[Fraction]) -> list[int]:
    return [_sign(v) for v in numbers]
