"""Points as pictures: the input, the counterexample, and their difference."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray

#: Ends of the scale of differences, darker and lighter than before; their middle is no change.
_LESS, _SAME, _MORE = np.array([(0, 84, 148), (240, 240, 240), (184, 72, 0)], dtype=np.float64)

#: The colours of marked pixels that are black and white without the mark.
_MARKED_DARK, _MARKED_LIGHT = np.array([(160, 60, 0), (255, 190, 90)], dtype=np.float64)


def as_image(point: FloatArray, *shapes: tuple[int, ...]) -> FloatArray | None:
    """Shape a point as (height, width) or (height, width, 3); None if it is not a picture.

    The first shape of a picture is used.  A flat point of the right size is a square picture of one
    channel, or of three channels one after the other.
    """
    for shape in shapes:
        sizes = [n for n in shape if n > 1]
        if math.prod(sizes) != point.size:
            continue
        if len(sizes) == 2:
            return point.reshape(sizes)
        if len(sizes) == 3 and sizes[0] == 3:
            return np.moveaxis(point.reshape(sizes), 0, -1)
        if len(sizes) == 3 and sizes[2] == 3:
            return point.reshape(sizes)
    for channels in (1, 3):
        side = math.isqrt(point.size // channels)
        # Smaller points are more often other features than pictures.
        if side >= 5 and channels * side * side == point.size:
            grid = point.reshape(channels, side, side)
            return grid[0] if channels == 1 else np.moveaxis(grid, 0, -1)
    return None


def image_layout(shape: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Find channels before the rows, height, width and channels behind the columns of an image.

    A flat input is a square image of one channel, or of three one after the other; of three sizes
    the channels are the first one, unless only the last one is a number of channels (1 or 3).
    None if it is not an image.
    """
    if len(shape) == 1:
        for channels in (1, 3):
            side = math.isqrt(shape[0] // channels)
            if side and channels * side * side == shape[0]:
                return (channels, side, side, 1)
        return None
    if len(shape) == 2:
        return (1, shape[0], shape[1], 1)
    if len(shape) != 3:
        return None
    if shape[0] not in (1, 3) and shape[2] in (1, 3):
        return (1, *shape)
    return (*shape, 1)


def pixel_inputs(shape: tuple[int, ...]) -> IntArray | None:
    """Find the inputs of every pixel, as (height, width, channels); None if there is no image."""
    image = as_image(np.arange(math.prod(shape), dtype=np.float64), shape)
    if image is None:
        return None
    return np.asarray(image.reshape(*image.shape[:2], -1), dtype=np.int64)


def shades(image: FloatArray, lo: float, hi: float) -> npt.NDArray[np.uint8]:
    """Scale an image to bytes, from lo (black) to hi (white)."""
    scaled = (image - lo) / max(hi - lo, 1e-300)
    return np.clip(np.rint(255 * np.nan_to_num(scaled)), 0, 255).astype(np.uint8)


def difference(before: FloatArray, after: FloatArray) -> npt.NDArray[np.uint8]:
    """Draw the difference on its own scale: blue for less, orange for more.

    For colour images each channel is shown separately, around a middle grey.
    """
    change = after - before
    most = float(np.max(np.abs(change), initial=0.0))
    share = change / most if most > 0 else np.zeros_like(change)
    if share.ndim == 3:
        return np.clip(np.rint(128 + 127 * share), 0, 255).astype(np.uint8)
    end = np.where(share[..., None] < 0, _LESS, _MORE)
    mixed: FloatArray = _SAME + (end - _SAME) * np.abs(share)[..., None]
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def marked(pixels: npt.NDArray[np.uint8], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Draw a picture in grey in which the chosen pixels are orange, light where it is light.

    `chosen` has the shape of `pixels`; a pixel of a colour image is chosen if a channel is.
    """
    grey = pixels.astype(np.float64)
    if pixels.ndim == 3:
        grey, chosen = grey.mean(axis=2), np.logical_or.reduce(chosen, axis=2)
    orange = _MARKED_DARK + (_MARKED_LIGHT - _MARKED_DARK) * grey[..., None] / 255
    mixed = np.where(chosen[..., None], orange, grey[..., None])
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def png_bytes(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Write (height, width) or (height, width, 3) as a PNG file; 8 bits a sample, no filter."""
    colour = pixels.ndim == 3
    height, width = pixels.shape[:2]
    lines = np.ascontiguousarray(pixels).reshape(height, -1)
    # Each line begins with its filter, 0 for none.
    raw = np.hstack([np.zeros((height, 1), dtype=np.uint8), lines]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colour else 0, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


@dataclass(frozen=True, eq=False)
class Original:
    """The centre of a ball, with what is needed to show inputs as pictures."""

    point: FloatArray
    #: The shape of an input.
    shape: tuple[int, ...]
    #: The values of black and white.
    lo: FloatArray
    hi: FloatArray

    def _image(self, point: FloatArray) -> FloatArray | None:
        """Shape an input as a picture with values from 0 to 1."""
        return as_image((point - self.lo) / np.maximum(self.hi - self.lo, 1e-300), self.shape)

    def html(self, counterexample: FloatArray | None, captions: tuple[str, str]) -> str:
        """Show the input, and a counterexample beside it with their difference, if any."""
        before = self._image(self.point)
        if before is None:
            return ""
        shown = [(captions[0], shades(before, 0.0, 1.0))]
        after = None if counterexample is None else self._image(counterexample)
        if after is not None:
            shown += [(captions[1], shades(after, 0.0, 1.0))]
            shown += [("difference", difference(before, after))]
        return figures(shown)


def figures(shown: list[tuple[str, npt.NDArray[np.uint8]]]) -> str:
    """Show pictures with their captions side by side, as HTML."""
    parts = "".join(_figure(caption, pixels) for caption, pixels in shown)
    return f'<div style="display:flex">{parts}</div>'


def _figure(caption: str, pixels: npt.NDArray[np.uint8]) -> str:
    """Show a picture with a caption, its pixels as squares."""
    file = base64.b64encode(png_bytes(pixels)).decode("ascii")
    return (
        f'<figure style="margin:0.3em;text-align:center"><img width="112" alt="{escape(caption)}" '
        f'style="image-rendering:pixelated" src="data:image/png;base64,{file}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
