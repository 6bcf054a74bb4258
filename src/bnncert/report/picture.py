"""Grey-scale images in the terminal, two pixels per character."""

from __future__ import annotations

import math

import numpy as np
from rich.text import Text

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.pictures import as_image, shades

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


def requested_image(point: FloatArray, shape: tuple[int, ...], name: str) -> FloatArray:
    """Return a point as the picture that the user requested, also if it is a small square.

    Raises InputError if the point is not a picture; `name` is what the message begins with.
    """
    squares = [(n, side, side) for n in (1, 3) if (side := math.isqrt(point.size // n))]
    image = as_image(point, shape, *squares)
    if image is None:
        raise InputError(f"{name}: inputs of shape {shape} are not an image (grey or RGB)")
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
