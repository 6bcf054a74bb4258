"""A counterexample as a file: the exact point, or a picture together with the original.

A picture (.png) shows three images of the same size from left to right: the original, the
counterexample, and their difference.  The first two have 8 bits a sample,

    level = round(255 (x - lo) / (hi - lo))

with the data box [lo, hi], so the levels of a point of integer pixels are exactly its pixels.  The
largest difference of an input has the full range around a middle grey.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.engine.verdict import Counterexample
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.network import Network
from bnncert.regions.pictures import as_image, difference, png_bytes, shades

#: The kinds of files that a counterexample can be written to.
SUFFIXES = (".png", ".npy")

#: Two numbers are the same pixel if they differ by less than this share of a level.
ROUNDING = 1e-4


def check_suffix(path: Path) -> None:
    """Raise if the suffix is not that of a picture or an array."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: suffix {path.suffix!r}; expected .png (picture) or .npy (point)")


@dataclass(frozen=True, eq=False)
class CounterexampleFile:
    """The file for a counterexample, and the data for a picture."""

    path: Path
    shape: tuple[int, ...]
    #: The original that a picture shows beside the counterexample; a query has none.
    original: FloatArray | None = None
    #: The values of black and white, if known.
    lo: FloatArray | None = None
    hi: FloatArray | None = None

    def __post_init__(self) -> None:
        """Raise at once if the file cannot be written."""
        check_suffix(self.path)
        if not self._is_picture:
            return
        if self.original is None:
            raise InputError(
                f"{self.path}: a picture shows a counterexample beside the centre of a ball, which "
                "a query does not state; name a .npy file"
            )
        if self._image(self.original) is None:
            raise InputError(
                f"{self.path}: inputs of shape {self.shape} are not an image (grey or RGB); name a "
                ".npy file"
            )
        if self.lo is None or self.hi is None:
            raise InputError(
                f"{self.path}: a picture needs the range of the inputs; give --clip or --scale, or "
                "name a .npy file"
            )

    @staticmethod
    def around(
        path: Path,
        network: Network,
        centre: FloatArray,
        clip_lo: FloatArray | None,
        clip_hi: FloatArray | None,
        shape: tuple[int, ...] = (),
    ) -> CounterexampleFile:
        """Return the file of counterexamples in a ball; the network's data box has precedence.

        `shape` is that of the image which is the centre, if the network states no shape.
        """
        lo, hi = network.input_lo, network.input_hi
        if lo is None or hi is None:
            lo, hi = clip_lo, clip_hi
        return CounterexampleFile(path, shape or network.input_shape, centre, lo, hi)

    @property
    def _is_picture(self) -> bool:
        return self.path.suffix.lower() == ".png"

    def write(self, found: Counterexample | None) -> str:
        """Write the file and return a sentence about it; without a counterexample write nothing."""
        if found is None:
            return f"{self.path} is not written: there is no counterexample"
        if self._is_picture:
            pixels, exact = self.picture(found.point)
            write_atomically(self.path, png_bytes(pixels))
            kept = "its pixels are exact" if exact else "its pixels are rounded to 8 bits"
            return f"counterexample: {self.path} (original, counterexample, difference; {kept})"
        if found.exact is not None:
            return (
                f"{self.path} is not written: the counterexample is a point of rationals that "
                "floats do not hold; --json states it"
            )
        content = io.BytesIO()
        np.save(content, found.point)
        write_atomically(self.path, content.getvalue())
        return f"counterexample: {self.path} ({found.point.size} numbers)"

    def picture(self, point: FloatArray) -> tuple[npt.NDArray[np.uint8], bool]:
        """Return the three images side by side, and whether 8 bits hold the counterexample."""
        assert self.original is not None
        assert self.lo is not None
        assert self.hi is not None
        width = np.maximum(self.hi - self.lo, 1e-300)
        before, after = ((p - self.lo) / width for p in (self.original, point))
        levels = 255 * after
        exact = bool(np.all(np.abs(levels - np.clip(np.rint(levels), 0, 255)) < ROUNDING))
        first, second = self._image(before), self._image(after)
        assert first is not None
        assert second is not None
        if first.ndim == 2:
            # With one channel the difference is also grey, as the file has one format.
            change = difference(first[..., None], second[..., None])[..., 0]
        else:
            change = difference(first, second)
        return np.hstack([shades(first, 0.0, 1.0), shades(second, 0.0, 1.0), change]), exact

    def _image(self, point: FloatArray) -> FloatArray | None:
        # The user requested a picture, so small squares are also pictures.
        shapes = [self.shape]
        for channels in (1, 3):
            side = math.isqrt(point.size // channels)
            shapes.append((channels, side, side))
        return as_image(point, *shapes)
