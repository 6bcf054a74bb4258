"""An image inside a data box, from which the shapes of change start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.region import checked_vector


@dataclass(frozen=True, eq=False)
class BoxedImage:
    """The values of an image, and the data box (None: no limit)."""

    values: FloatArray
    lo: FloatArray | None
    hi: FloatArray | None

    @staticmethod
    def of(
        image: npt.ArrayLike, lo: npt.ArrayLike | None, hi: npt.ArrayLike | None, what: str
    ) -> BoxedImage:
        """Check the numbers; raise InputError if the image, where `what` starts, is outside."""
        values = checked_vector(image, None, "input")
        low = None if lo is None else checked_vector(lo, values.size, "clip (lower)")
        high = None if hi is None else checked_vector(hi, values.size, "clip (upper)")
        outside = np.zeros(values.size, dtype=bool)
        if low is not None:
            outside |= values < low
        if high is not None:
            outside |= values > high
        if np.any(outside):
            i = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"input {i} = {values[i]:.9g} lies outside the data box; {what} needs an image "
                "inside"
            )
        return BoxedImage(values, low, high)

    def clipped(self, values: FloatArray) -> FloatArray:
        """Return the nearest values inside the data box: min(max(v, lo), hi)."""
        above = values if self.lo is None else np.maximum(values, self.lo)
        return above if self.hi is None else np.minimum(above, self.hi)

    @property
    def has_one_range(self) -> bool:
        """Whether the data box is the same for all inputs."""
        return all(b is None or bool(np.all(b == b[0])) for b in (self.lo, self.hi))

    @property
    def text(self) -> str:
        """The data box as the end of a description."""
        if self.lo is None or self.hi is None:
            return ""
        return f", data in [{self.lo.min():.9g}, {self.hi.max():.9g}]"
