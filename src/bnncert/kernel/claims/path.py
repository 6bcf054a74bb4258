"""Check of a claim about brightness or contrast: the whole path of images is swept again.

A robust claim needs no further data.  A counterexample is one number t, from which the image
follows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import ClaimParts, Shown, Subject, details
from bnncert.kernel.claims.classified import COMMON, ClassifiedImage, exact_list
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.counterexample import is_violated
from bnncert.kernel.path_sweep import PathSums, StatedPath, last_layers, patterns_on
from bnncert.model.layers import UNDECIDED

DETAILS = (*COMMON, "place", "target")

#: The largest number of digits of the place of a counterexample, and of signs that are remembered.
MOST_DIGITS, MOST_SEEN = 2000, 2**26


class PathClaim:
    """The claim about brightness or contrast."""

    def __init__(self, section: Section, subject: Subject) -> None:
        self._found = found = details(section, DETAILS)
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
    """Return the exact path of a claim."""
    image, none = exact_list(claim.image), [None] * claim.image.size
    lower: list[Fraction | None] = list(none if claim.lower is None else exact_list(claim.lower))
    upper: list[Fraction | None] = list(none if claim.upper is None else exact_list(claim.upper))
    if pivot is None:
        return StatedPath(image, [Fraction(1)] * len(image), lower, upper, -radius, radius)
    if radius > 1:
        raise RejectedError("the radius of contrast is above 1")
    middle = exact_list(pivot)
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
    if not isinstance(found["place"], str) or len(found["place"]) > MOST_DIGITS:
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
