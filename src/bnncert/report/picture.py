"""Pictures in the terminal and in files: images, explanations, and counterexamples.

A picture of a counterexample (.png) shows three images of the same size from left to right: the
original, the counterexample, and their difference.  The first two have 8 bits a sample,

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
from rich.text import Text

from bnncert.arrays import FloatArray
from bnncert.engine.verdict import Counterexample
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.network import Network
from bnncert.questions.explain.explanation_answer import Explanation
from bnncert.regions import InputSet
from bnncert.regions.pictures import as_image, difference, figures, marked, png_bytes, shades

#: Characters from dark to light, for terminals without colour.
RAMP = " .:-=+*#%@"


def picture_lines(image: FloatArray, lo: float, hi: float, *, colour: bool) -> list[Text]:
    """Draw a 2-D image; with colour, an upper half block shows two rows at once."""
    grey = shades(image, lo, hi).astype(np.int64)
    if not colour:
        return [
            Text("".join(RAMP[v * (len(RAMP) - 1) // 255] for v in row for _ in range(2)))
            for row in grey
        ]
    if grey.shape[0] % 2:
        grey = np.vstack([grey, np.zeros((1, grey.shape[1]), dtype=np.int64)])
    lines = []
    for top, bottom in zip(grey[::2], grey[1::2], strict=True):
        line = Text()
        for a, b in zip(top.tolist(), bottom.tolist(), strict=True):
            line.append("▀", style=f"rgb({a},{a},{a}) on rgb({b},{b},{b})")
        lines.append(line)
    return lines


def requested_image(
    point: FloatArray, shape: tuple[int, ...], name: str, way_out: str = ""
) -> FloatArray:
    """Return a point as the picture that the user requested, also if it is a small square.

    Raises InputError if the point is not a picture; the message begins with `name` and ends with
    `way_out`.
    """
    squares = [(n, side, side) for n in (1, 3) if (side := math.isqrt(point.size // n))]
    image = as_image(point, shape, *squares)
    if image is None:
        raise InputError(f"{name}: inputs of shape {shape} are not an image (grey or RGB){way_out}")
    return image


def grey_lines(image: FloatArray, *, colour: bool) -> list[Text]:
    """Draw an image with values from 0 to 1, of which colours are shown in grey."""
    return picture_lines(image if image.ndim == 2 else image.mean(axis=2), 0, 1, colour=colour)


def side_by_side(blocks: list[tuple[str, list[Text]]], gap: int = 4) -> list[Text]:
    """Put titled pictures of equal height next to each other."""
    width = [max([len(title), *(line.cell_len for line in lines)]) for title, lines in blocks]
    rows = [Text()]
    for (title, _), w in zip(blocks, width, strict=True):
        rows[0].append(title.ljust(w + gap), style="bold")
    for k in range(max(len(lines) for _, lines in blocks)):
        row = Text()
        for (_, lines), w in zip(blocks, width, strict=True):
            cell = lines[k].copy() if k < len(lines) else Text()
            cell.append(" " * (w + gap - cell.cell_len))
            row.append_text(cell)
        rows.append(row)
    return rows


#: The kinds of files.
KEPT_SUFFIXES = (".png", ".html")

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
        if self.path is not None and self.path.suffix.lower() not in KEPT_SUFFIXES:
            raise InputError(f"{name}: suffix {self.path.suffix!r}; expected .png or .html")
        requested_image(self.image, self.shape, name)

    def _as_image(self, point: FloatArray) -> FloatArray:
        return requested_image(point, self.shape, "--picture")

    def _scaled(self, point: FloatArray) -> FloatArray:
        """Scale a point to an image with values from 0 to 1."""
        return self._as_image((point - self.lo) / np.maximum(self.hi - self.lo, 1e-300))

    def _pictures(self, found: Explanation) -> list[tuple[str, npt.NDArray[np.uint8]]]:
        """Draw the image, the kept units, and the nearest witness with its difference, in colour.

        The difference has its own scale, because a witness may be too near to be told apart.
        """
        units = "inputs" if found.domain.blocks is None else "blocks"
        before = self._scaled(self.image)
        plain, kept = shades(before, 0.0, 1.0), self._as_image(found.mask.astype(np.float64))
        shown = [
            (f"class {found.label}", plain),
            (f"{len(found.kept_units)} kept {units}", marked(plain, kept > 0)),
        ]
        if found.nearest is not None:
            unit, witness = found.nearest
            after = self._scaled(witness.point)
            freed = f"input {unit}"
            if found.domain.blocks is not None:
                freed = "block ({},{})".format(*found.domain.blocks.place(unit))
            other = "another class" if witness.predicted is None else f"class {witness.predicted}"
            shown += [
                (f"{other} with {freed} free", shades(after, 0.0, 1.0)),
                ("what changed", difference(before, after)),
            ]
        return [(name, p if p.ndim == 3 else np.repeat(p[..., None], 3, 2)) for name, p in shown]

    def write(self, found: Explanation) -> str:
        """Write the file and return a sentence about it."""
        assert self.path is not None
        shown = self._pictures(found)
        if self.path.suffix.lower() == ".html":
            page = f'<!DOCTYPE html><meta charset="utf-8"><title>{found.summary}</title>'
            write_atomically(self.path, f"{page}<p>{found.summary}</p>{figures(shown)}\n")
        else:
            pictures = [pixels for _, pixels in shown]
            times = max(1, -(-LEAST_SIDE // min(pictures[0].shape[:2])))
            wide = np.hstack(pictures).repeat(times, axis=0).repeat(times, axis=1)
            write_atomically(self.path, png_bytes(wide))
        units = "inputs" if found.domain.blocks is None else "blocks"
        parts = f"the image, and the image with the kept {units} in orange"
        if len(shown) > 2:
            parts = f"the image, the kept {units} in orange, {shown[2][0]}, {shown[3][0]}"
        return f"picture: {self.path} ({parts})"

    def lines(self, found: Explanation, *, colour: bool) -> list[Text]:
        """Return the image and the kept inputs as lines for a terminal."""
        kept = self._as_image(found.mask.astype(np.float64))
        places = kept if kept.ndim == 2 else kept.max(axis=2)
        units = "inputs" if found.domain.blocks is None else "blocks"
        blocks = [
            ("image", grey_lines(self._scaled(self.image), colour=colour)),
            (f"kept {units}", picture_lines(places, 0.0, 1.0, colour=colour)),
        ]
        return side_by_side(blocks)


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
        self._image(self.original)
        if self.lo is None or self.hi is None:
            raise InputError(
                f"{self.path}: a picture needs the range of the inputs; give --clip or --scale, or "
                "name a .npy file"
            )

    @staticmethod
    def around(
        path: Path | None, network: Network, ball: InputSet | None, shape: tuple[int, ...] = ()
    ) -> CounterexampleFile | None:
        """Return the file of counterexamples in a ball, if one is named; a query has no ball.

        `shape` is that of the image which is the centre, if the network states no shape.  The
        network's data box has precedence over that of the ball.
        """
        if path is None or ball is None:
            return None if path is None else CounterexampleFile(path, network.input_shape)
        lo, hi = network.input_lo, network.input_hi
        if lo is None or hi is None:
            lo, hi = ball.clip_lo, ball.clip_hi
        return CounterexampleFile(path, shape or network.input_shape, ball.middle, lo, hi)

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
        assert self.original is not None and self.lo is not None and self.hi is not None
        width = np.maximum(self.hi - self.lo, 1e-300)
        before, after = ((p - self.lo) / width for p in (self.original, point))
        levels = 255 * after
        exact = bool(np.all(np.abs(levels - np.clip(np.rint(levels), 0, 255)) < ROUNDING))
        first, second = self._image(before), self._image(after)
        if first.ndim == 2:
            # With one channel the difference is also grey, as the file has one format.
            change = difference(first[..., None], second[..., None])[..., 0]
        else:
            change = difference(first, second)
        return np.hstack([shades(first, 0.0, 1.0), shades(second, 0.0, 1.0), change]), exact

    def _image(self, point: FloatArray) -> FloatArray:
        return requested_image(point, self.shape, str(self.path), "; name a .npy file")
