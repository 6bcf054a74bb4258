"""An explanation as a picture: the image, and beside it the image with the kept inputs marked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.text import Text

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically
from bnncert.questions.explain.explanation_answer import Explanation
from bnncert.regions.pictures import figures, marked, png_bytes, shades
from bnncert.report.picture import grey_lines, picture_lines, requested_image, side_by_side

#: The kinds of files.
SUFFIXES = (".png", ".html")

#: Pictures are enlarged so that the shorter side has at least this many pixels.
LEAST_SIDE = 224


@dataclass(frozen=True, eq=False)
class KeptPicture:
    """The data for pictures of explanations of one image.

    `path` names the file; None is for the terminal.
    """

    path: Path | None
    shape: tuple[int, ...]
    image: FloatArray
    #: The values of black and white.
    lo: FloatArray
    hi: FloatArray

    def __post_init__(self) -> None:
        """Raise at once if there can be no picture."""
        name = "--picture" if self.path is None else str(self.path)
        if self.path is not None and self.path.suffix.lower() not in SUFFIXES:
            raise InputError(f"{name}: suffix {self.path.suffix!r}; expected .png or .html")
        requested_image(self.image, self.shape, name)

    def _as_image(self, point: FloatArray) -> FloatArray:
        return requested_image(point, self.shape, "--picture")

    def _scaled(self) -> FloatArray:
        """Return the image with values from 0 to 1."""
        return self._as_image((self.image - self.lo) / np.maximum(self.hi - self.lo, 1e-300))

    def _pixels(self, found: Explanation) -> list[npt.NDArray[np.uint8]]:
        """Return the image and the marked one, in colour."""
        kept = self._as_image(found.mask.astype(np.float64))
        plain = shades(self._scaled(), 0.0, 1.0)
        coloured = plain if plain.ndim == 3 else np.repeat(plain[..., None], 3, axis=2)
        return [coloured, marked(plain, kept > 0)]

    def write(self, found: Explanation) -> str:
        """Write the file and return a sentence about it."""
        assert self.path is not None
        pictures = self._pixels(found)
        if self.path.suffix.lower() == ".html":
            captions = (f"class {found.label}", f"{len(found.kept)} kept inputs")
            body = figures(list(zip(captions, pictures, strict=True)))
            page = f'<!DOCTYPE html><meta charset="utf-8"><title>{found.summary}</title>'
            write_atomically(self.path, f"{page}<p>{found.summary}</p>{body}\n")
        else:
            times = max(1, -(-LEAST_SIDE // min(pictures[0].shape[:2])))
            wide = np.hstack(pictures).repeat(times, axis=0).repeat(times, axis=1)
            write_atomically(self.path, png_bytes(wide))
        return f"picture: {self.path} (the image, and the image with the kept inputs in orange)"

    def lines(self, found: Explanation, *, colour: bool) -> list[Text]:
        """Return the image and the kept inputs as lines for a terminal."""
        kept = self._as_image(found.mask.astype(np.float64))
        places = kept if kept.ndim == 2 else kept.max(axis=2)
        blocks = [
            ("image", grey_lines(self._scaled(), colour=colour)),
            ("kept inputs", picture_lines(places, 0.0, 1.0, colour=colour)),
        ]
        return side_by_side(blocks)
