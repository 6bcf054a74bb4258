"""Image files as pixels, and pixels as the input of a network: grey or RGB."""

from __future__ import annotations

import importlib.util
import io
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import BnncertError, FormatError, MissingExtraError, reason
from bnncert.model.formats.file_content import read_bytes
from bnncert.model.formats.limits import DEFAULT_LIMITS, too_many
from bnncert.model.formats.png import read_png

#: Modes of Pillow with one byte per channel, and the mode to which they are converted.
IMAGE_MODES = {
    **dict.fromkeys(("1", "L", "LA", "La"), "L"),
    **dict.fromkeys(("P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"), "RGB"),
}

#: Formats of Pillow with these suffixes; other formats may start external programs.
IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM")

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

#: Words for the modes of Pillow that differ from their names.
KIND_WORDS = {"L": "grey", "LA": "grey", "La": "grey", "1": "black and white"} | dict.fromkeys(
    ("P", "PA"), "palette"
)

#: Weights of red, green and blue in a grey level (ITU-R 601-2), in 65536ths, as Pillow has them.
LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class Image:
    """The pixels of an image file, (H, W) grey or (H, W, 3) RGB, and what the file holds."""

    pixels: npt.NDArray[np.uint8]
    #: A word such as grey, RGB or palette.
    kind: str
    path: Path

    @property
    def is_grey(self) -> bool:
        """Whether there is one channel."""
        return self.pixels.ndim == 2

    def fitted(self, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.uint8], str]:
        """Return the pixels with as many channels as a network has, and a text if they changed.

        A colour becomes the grey level (19595 R + 38470 G + 7471 B) / 65536, rounded, and a grey
        level becomes three equal channels.

        Raises FormatError if the image has another size than the inputs.
        """
        height, width = self.pixels.shape[:2]
        area, (channels, *sides) = height * width, _geometry(shape)
        size = channels * math.prod(sides)
        if size not in (area, 3 * area) or (sides and sides != [height, width]):
            needed = f"{sides[1]} x {sides[0]} pixels" if sides else f"{size} inputs"
            raise FormatError(
                f"{self.path}: image of {width} x {height} pixels; the network has {needed}"
            )
        if size == area and not self.is_grey:
            grey = (self.pixels.astype(np.uint32) @ LUMA + 0x8000) >> 16
            return grey.astype(np.uint8), f"{self.kind} converted to grey"
        if size == area:
            return self.pixels, ""
        # A network that states no shape gets the colours of a pixel next to each other.
        order = "" if sides else ", the colours of a pixel side by side"
        if self.is_grey:
            return np.repeat(self.pixels[..., None], 3, axis=2), "grey converted to RGB" + order
        converted = "" if self.kind == "RGB" else f"{self.kind} converted to RGB"
        return self.pixels, (converted or ("RGB" if order else "")) + order


def _geometry(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (channels, height, width), or (inputs,) if the shape is not that of an image."""
    if len(shape) == 2 and 1 not in shape:
        return 1, *shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    return (math.prod(shape),)


def is_image(path: str | Path) -> bool:
    """Return whether a file is an image by its suffix."""
    return Path(path).suffix.lower() in IMAGE_SUFFIXES


def read_image(path: Path) -> Image:
    """Read an image file; PNG is also read without Pillow."""
    has_pillow = importlib.util.find_spec("PIL") is not None
    if not has_pillow and path.suffix.lower() == ".png":
        found = read_png(read_bytes(path), path)
        if found is not None:
            return Image(*found, path)
        raise MissingExtraError(
            f"{path}: reading interlaced PNG images needs pillow: pip install 'bnncert[images]'"
        )
    if not has_pillow:
        raise MissingExtraError(
            f"{path}: reading {path.suffix} images needs pillow: pip install 'bnncert[images]'"
        )
    return _read_with_pillow(path)


def _is_wide(tiles: Iterable[Any]) -> bool:
    """Return whether an opened image has samples of 16 bits, which Pillow shortens in colours."""
    for codec, _, _, settings in tiles:
        parts = settings if isinstance(settings, tuple) else (settings,)
        # PNG and TIFF name "RGB;16B" and the like; PPM states the largest value.
        if any(isinstance(part, str) and ";16" in part for part in parts):
            return True
        if codec.startswith("ppm") and any(isinstance(p, int) and p > 255 for p in parts):
            return True
    return False


def _read_with_pillow(path: Path) -> Image:
    from PIL import Image as PillowImage
    from PIL import UnidentifiedImageError

    content = read_bytes(path)
    try:
        # Warnings of Pillow are not needed: the image is either read or refused below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with PillowImage.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:
                if image.width * image.height > DEFAULT_LIMITS.pixels:
                    size = f"{image.width} x {image.height} pixels"
                    raise too_many(path, size, DEFAULT_LIMITS.pixels, "pixels")
                if _is_wide(image.tile):
                    raise FormatError(
                        f"{path}: image of 16 bits a sample; expected one byte a channel"
                    )
                found = image.mode
                mode = IMAGE_MODES.get(found)
                pixels = None if mode is None else np.asarray(image.convert(mode), dtype=np.uint8)
    except BnncertError:
        raise
    except UnidentifiedImageError as error:
        # The message of Pillow names an object in memory instead of the file.
        why = "the file is empty" if not content else f"expected {' or '.join(IMAGE_FORMATS)}"
        raise FormatError(f"{path}: not a readable image ({why})") from error
    except Exception as error:  # Pillow raises many types on broken files
        raise FormatError(f"{path}: not a readable image ({reason(error)})") from error
    if pixels is None:
        raise FormatError(f"{path}: image of mode {found}; expected one byte a channel")
    kind = KIND_WORDS.get(found, "RGB" if found.startswith("RGB") else found)
    return Image(pixels, kind, path)
