"""Check of a claim about a patch at every position, or about shifts of an image.

The checker lists all boxes of the claim by itself.  A box is proved by halving it, unless the claim
lists its number: then a part is the ordinary certificate of this box.  Box 0 is the image itself.
For a counterexample the claim names a box, and the part is the counterexample in it.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.box_splits import SplitCheck
from bnncert.kernel.claims.claim import (
    COMMON,
    ClaimPart,
    ClaimParts,
    ClassifiedImage,
    Shown,
    Subject,
)
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly

DETAILS = (*COMMON, "parts", "place")

#: A box by its corners.
Corners: TypeAlias = tuple[FloatArray, FloatArray]


class UnionClaim:
    """The claim about a patch at every position, or about shifts."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found = subject.details(section, DETAILS)
        self._claim = claim = ClassifiedImage(section, found, subject, ("value",))
        shape, radius = claim.shape["region"], claim.radius
        if shape not in ("patch", "shift"):
            raise UnreadableError("section claim: the region is neither patch nor shift")
        pixels = pixel_inputs(claim.network.input_shape)
        if pixels is None:
            raise RejectedError("the inputs of the network are not an image")
        value = _value(claim.shape["value"], claim)
        if not radius.is_integer() or radius > min(pixels.shape[:2]) - (shape == "shift"):
            raise RejectedError("the radius is not a number of pixels that fits into the image")
        make = _Patches if shape == "patch" else _Shifts
        self._boxes: _Patches | _Shifts = make(claim, pixels, int(radius), value)
        #: The boxes with a part, and that of the counterexample.
        self._listed, self._place = found["parts"], found["place"]

    def parts(self) -> ClaimParts:
        """Yield the listed boxes after the check of all others, or the one of a counterexample."""
        listed, place, count = self._listed, self._place, self._boxes.count
        if self._claim.verdict == "not_robust":
            if listed != [] or type(place) is not int or not 0 <= place < count:
                raise UnreadableError("section claim: the box of the counterexample does not exist")
            yield self._part(place)
            return
        if place is not None:
            raise UnreadableError("section claim: a robust claim with a counterexample")
        if not isinstance(listed, list) or not all(type(k) is int for k in listed):
            raise UnreadableError("section claim: the parts are not a list of boxes")
        if any(a >= b for a, b in pairwise(listed)) or (
            listed and not 0 <= listed[0] <= listed[-1] < count
        ):
            raise RejectedError("the boxes with a part are not in ascending order, or do not exist")
        own = set(listed)
        if len(own) < count:
            splits = SplitCheck(self._claim.network, self._claim.functions)
            for number in timed(range(count)):
                if number not in own:
                    splits.refuse_unproved(*self._boxes.at(number))
        for number in timed(listed):
            yield self._part(number)

    def _part(self, number: int) -> ClaimPart:
        """Return the ordinary certificate about one box."""
        lo, hi = self._boxes.at(number)
        box = Section("statement", {"region": "box"}, {"lo": lo, "hi": hi})
        claim = self._claim
        return ClaimPart(claim.network, box, claim.property, claim.verdict)

    def shown(self) -> Shown:
        """Return what holds for all boxes, in words."""
        return self._claim.shown(self._boxes.words)


def _value(stated: Any, claim: ClassifiedImage) -> float | None:
    """Return the stated value of pixels, which lies in the data box."""
    if stated is None:
        return None
    exact = exactly(stated)
    value = float(exact)
    if value != exact:
        raise UnreadableError("section claim: the value is not a float64 number")
    if (claim.lower is not None and value < claim.lower.max()) or (
        claim.upper is not None and value > claim.upper.min()
    ):
        raise RejectedError("the value lies outside the data box")
    return value


class _Patches:
    """The image itself, and the box of the patch at every position, row by row."""

    def __init__(
        self, claim: ClassifiedImage, pixels: IntArray, side: int, value: float | None
    ) -> None:
        self._image, self._pixels, self._side = claim.image, pixels, side
        low, high = (claim.lower, claim.upper) if value is None else (value, value)
        if low is None or high is None:
            raise RejectedError("a patch of any values has no data box")
        self._low, self._high = (np.broadcast_to(v, self._image.shape) for v in (low, high))
        height, self._across = (n - side + 1 for n in pixels.shape[:2])
        #: The number of boxes.
        self.count = 1 + (height * self._across if side else 0)
        self.words = _patch_words(side, value, self.count - 1)

    def at(self, number: int) -> Corners:
        """Count positions row by row, after the image itself."""
        if number == 0:
            return self._image, self._image
        (top, left), side = divmod(number - 1, self._across), self._side
        inside = self._pixels[top : top + side, left : left + side].ravel()
        lo, hi = self._image.copy(), self._image.copy()
        lo[inside], hi[inside] = self._low[inside], self._high[inside]
        return lo, hi


class _Shifts:
    """The image itself, and all shifts of it in the data box: by rows, then by columns."""

    def __init__(
        self, claim: ClassifiedImage, pixels: IntArray, most: int, value: float | None
    ) -> None:
        self._image, self._pixels, self._most = claim.image, pixels, most
        self._lower, self._upper = claim.lower, claim.upper
        picture = self._image[pixels]
        # The image in a frame of what may enter.
        frame = ((most, most), (most, most), (0, 0))
        if value is None:
            self._wide = np.pad(picture, frame, mode="edge")
        else:
            self._wide = np.pad(picture, frame, constant_values=value)
        #: The number of boxes.
        self.count = (2 * most + 1) ** 2
        self.words = _shift_words(most, value, claim)

    def at(self, number: int) -> Corners:
        """Count shifts row by row, after the image itself."""
        if number == 0:
            return self._image, self._image
        middle = self.count // 2
        # The shift by no rows and no columns is the image itself, which comes first.
        place = number - (number <= middle)
        down, right = divmod(place, 2 * self._most + 1)
        rows, columns = 2 * self._most - down, 2 * self._most - right
        height, width = self._pixels.shape[:2]
        moved = np.empty(self._image.size)
        moved[self._pixels] = self._wide[rows : rows + height, columns : columns + width]
        if self._lower is not None:
            moved = np.maximum(moved, self._lower)
        if self._upper is not None:
            moved = np.minimum(moved, self._upper)
        return moved, moved


def _patch_words(side: int, value: float | None, count: int) -> str:
    values = "any values in the data box" if value is None else f"the value {value!r}"
    return (
        f"the image itself and every image in which one square of {side} x {side} pixels has "
        f"{values} ({count} positions)"
    )


def _shift_words(most: int, value: float | None, claim: ClassifiedImage) -> str:
    enters = "with the edge repeated" if value is None else f"with the value {value!r} entering"
    has_one_range = all(b is None or np.all(b == b[0]) for b in (claim.lower, claim.upper))
    clipped = "" if has_one_range else ", clipped to the data box"
    return (
        f"the image itself and every shift of it by up to {most} rows and columns {enters}{clipped}"
    )


#: The shortest side of a flat input that is taken for a square image.
SHORTEST_SIDE = 5


def pixel_inputs(shape: tuple[int, ...]) -> IntArray | None:
    """Return the inputs of every pixel, as (height, width, channels); None if there is no image.

    Channels may come first or last; axes of one entry are left out.  A flat input of at least
    25 values is a square image of one channel, or of three channels one after the other.
    """
    inputs = np.arange(math.prod(shape), dtype=np.int64)
    sizes = [n for n in shape if n > 1]
    if len(sizes) == 2:
        return inputs.reshape(*sizes, 1)
    if len(sizes) == 3 and sizes[0] == 3:
        return np.moveaxis(inputs.reshape(sizes), 0, -1)
    if len(sizes) == 3 and sizes[2] == 3:
        return inputs.reshape(sizes)
    for channels in (1, 3):
        side = math.isqrt(inputs.size // channels)
        if side >= SHORTEST_SIDE and channels * side * side == inputs.size:
            return np.moveaxis(inputs.reshape(channels, side, side), 0, -1)
    return None
