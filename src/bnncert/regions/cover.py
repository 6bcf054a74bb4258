"""Covers: images that a region does not describe, because they are a path or a union of boxes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.box import Box
from bnncert.regions.region import InputSet, checked_vector


def refuse_cover(inputs: InputSet, question: str) -> None:
    """Raise InputError if a question about one region gets a cover."""
    if isinstance(inputs, Cover):
        raise InputError(f"{question} takes one region, not {inputs.norm}: use verify")


class Cover(InputSet):
    """A shape of change of an image inside a data box, which is a path or a union of boxes.

    Verification divides it: a path into cells in which no sign of the first layer changes, and a
    union into its boxes.  Its hull is a box that contains more images.
    """

    #: What `to_dict` calls such covers.
    kind: ClassVar[str]
    norm: str

    def __init__(
        self, image: npt.ArrayLike, lo: npt.ArrayLike | None, hi: npt.ArrayLike | None, what: str
    ) -> None:
        """Check the numbers; raise InputError if the image, where `what` starts, is outside."""
        values = self.middle = checked_vector(image, None, "input")
        self.clip_lo = None if lo is None else checked_vector(lo, values.size, "clip (lower)")
        self.clip_hi = None if hi is None else checked_vector(hi, values.size, "clip (upper)")
        outside = np.zeros(values.size, dtype=bool)
        if self.clip_lo is not None:
            outside |= values < self.clip_lo
        if self.clip_hi is not None:
            outside |= values > self.clip_hi
        if np.any(outside):
            i = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"input {i} = {values[i]:.9g} lies outside the data box; {what} needs an image "
                "inside"
            )
        self.center = np.array(values)

    @property
    def hull(self) -> Box:
        """The bounding box."""
        return Box(self.lo, self.hi)

    def clipped(self, values: FloatArray) -> FloatArray:
        """Return the nearest values inside the data box: min(max(v, lo), hi)."""
        above = values if self.clip_lo is None else np.maximum(values, self.clip_lo)
        return above if self.clip_hi is None else np.minimum(above, self.clip_hi)

    @property
    def has_one_range(self) -> bool:
        """Whether the data box is the same for all inputs."""
        return all(b is None or bool(np.all(b == b[0])) for b in (self.clip_lo, self.clip_hi))

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the name of the shape and its radius, with the image and the data box."""
        fields = {"region": self.norm, "radius": str(Fraction(self.stated_radius))}
        return fields, self._centre_arrays()

    def to_dict(self) -> dict[str, Any]:
        """Return the cover as plain data."""
        return {
            "kind": self.kind,
            "norm": self.norm,
            "center": self.middle.tolist(),
            "radius": self.stated_radius,
            **self._clip_lists(),
            "value": self.value,
        }
