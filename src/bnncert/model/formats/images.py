"""Image files as pixels, and pixels as the input of a network: grey or RGB.

PNG images are also read without Pillow, except interlaced ones; transparency is dropped, as when
Pillow converts an image.
"""

from __future__ import annotations

import importlib.util
import io
import math
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import BnncertError, FormatError, MissingExtraError, reason
from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_bytes, too_many

# -- PNG without Pillow -------------------------------------------------------------------

MAGIC = b"\x89PNG\r\n\x1a\n"

#: Samples of a pixel by colour type: grey, RGB, palette, grey with alpha, RGB with alpha.
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

#: The word for the kind of an image by colour type.
KINDS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey", 6: "RGB"}


@dataclass(frozen=True)
class _Header:
    """The content of the IHDR chunk."""

    width: int
    height: int
    depth: int
    colour: int
    interlaced: int

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of pixels."""
        return -(-self.width * SAMPLES[self.colour] * self.depth // 8)

    @property
    def step(self) -> int:
        """The distance of a byte to the same byte of the pixel to its left."""
        return max(1, SAMPLES[self.colour] * self.depth // 8)


def read_png(content: bytes, path: Path) -> tuple[npt.NDArray[np.uint8], str] | None:
    """Decode the pixels (H, W) or (H, W, 3) and the kind; None if the image is interlaced.

    Raises FormatError if the content is not a complete PNG image of at most 8 bits a sample.
    """
    chunks = _chunks(content, path)
    name, data = next(chunks, (b"", b""))
    if name != b"IHDR" or len(data) != 13:
        raise _broken(path, "no header")
    header = _header(data, path)
    if header.interlaced:
        return None
    palette, packed = b"", []
    for name, data in chunks:
        if name == b"PLTE":
            palette = data
        elif name == b"IDAT":
            packed.append(data)
    samples = _samples(_unfiltered(_unpacked(b"".join(packed), header, path), header, path), header)
    kind = KINDS[header.colour]
    if kind == "palette":
        colours = np.frombuffer(palette[: len(palette) // 3 * 3], dtype=np.uint8).reshape(-1, 3)
        if samples.size and samples.max() >= len(colours):
            raise _broken(path, f"colour {samples.max()} of a palette of {len(colours)}")
        return colours[samples[..., 0]], kind
    if header.colour in (4, 6):
        _warn_of_alpha(samples[..., :-1], samples[..., -1], path)
    if kind == "RGB":
        return np.ascontiguousarray(samples[..., :3]), kind
    scale = 255 // (2**header.depth - 1)
    return samples[..., 0] * np.uint8(scale), kind


def _warn_of_alpha(
    colours: npt.NDArray[np.uint8], alpha: npt.NDArray[np.uint8], path: Path
) -> None:
    """Warn if a picture is drawn in transparency alone, of which nothing is left."""
    if np.ptp(alpha) and not np.ptp(colours.reshape(-1, colours.shape[-1]), axis=0).any():
        warnings.warn(
            f"{path}: all pixels have one colour, and the picture is in the alpha channel, which "
            "is not read; put it on a background first",
            stacklevel=2,
        )


def _broken(path: Path, why: str) -> FormatError:
    return FormatError(f"{path}: not a readable image ({why})")


def _chunks(content: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and data of the chunks up to the end of the image."""
    if not content.startswith(MAGIC):
        raise _broken(path, "not a PNG file")
    place = len(MAGIC)
    while True:
        if place + 12 > len(content):
            raise _broken(path, "truncated")
        (length,) = struct.unpack_from(">I", content, place)
        name = content[place + 4 : place + 8]
        data = content[place + 8 : place + 8 + length]
        end = place + 12 + length
        if end > len(content):
            raise _broken(path, "truncated")
        (stated,) = struct.unpack_from(">I", content, end - 4)
        if zlib.crc32(name + data) != stated:
            raise _broken(path, f"wrong checksum of chunk {name.decode('latin-1')}")
        if name == b"IEND":
            return
        yield name, data
        place = end


def _header(data: bytes, path: Path) -> _Header:
    width, height, depth, colour, packing, filters, interlaced = struct.unpack(">IIBBBBB", data)
    if depth == 16 and colour in SAMPLES:
        raise FormatError(f"{path}: image of 16 bits a sample; expected one byte a channel")
    allowed = (1, 2, 4, 8) if colour in (0, 3) else (8,)
    known = colour in SAMPLES and depth in allowed and interlaced in (0, 1)
    if not (known and width and height and packing == filters == 0):
        raise _broken(path, "unknown kind of PNG")
    if width * height > DEFAULT_LIMITS.pixels:
        raise too_many(path, f"{width} x {height} pixels", DEFAULT_LIMITS.pixels, "pixels")
    return _Header(width, height, depth, colour, interlaced)


def _unpacked(packed: bytes, header: _Header, path: Path) -> bytes:
    """Unpack the filtered rows, each with the number of its filter in front."""
    size = header.height * (header.row_bytes + 1)
    try:
        # No more than the header states is unpacked.
        rows = zlib.decompressobj().decompress(packed, size)
    except zlib.error as error:
        raise _broken(path, str(error)) from error
    if len(rows) < size:
        raise _broken(path, "truncated")
    return rows


def _unfiltered(rows: bytes, header: _Header, path: Path) -> npt.NDArray[np.uint8]:
    """Undo the filters: a byte is stored as its difference to a guess from its neighbours."""
    length, step = header.row_bytes, header.step
    found = np.empty((header.height, length), dtype=np.uint8)
    above = bytes(length)
    for y in range(header.height):
        start = y * (length + 1)
        row = bytearray(rows[start + 1 : start + 1 + length])
        kind = rows[start]
        if kind == 2:
            row = bytearray((np.frombuffer(row, np.uint8) + np.frombuffer(above, np.uint8)).data)
        elif kind in (1, 3, 4):
            _undo(row, above, step, kind)
        elif kind != 0:
            raise _broken(path, f"unknown filter {kind}")
        found[y] = row
        above = bytes(row)
    return found


def _undo(row: bytearray, above: bytes, step: int, kind: int) -> None:
    """Undo a filter in which a byte depends on the one to its left: 1, 3 or 4 (Paeth)."""
    for x in range(len(row)):
        left = row[x - step] if x >= step else 0
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + above[x]) // 2
        else:
            corner = above[x - step] if x >= step else 0
            near = left + above[x] - corner
            # The first of the closest, in this order.
            guess = min((left, above[x], corner), key=lambda value: abs(near - value))
        row[x] = (row[x] + guess) & 255


def _samples(rows: npt.NDArray[np.uint8], header: _Header) -> npt.NDArray[np.uint8]:
    """Spread the samples, (H, W, samples of a pixel), to one byte each."""
    shape = header.height, header.width, SAMPLES[header.colour]
    if header.depth == 8:
        return rows.reshape(shape)
    bits = np.unpackbits(rows, axis=1)[:, : header.width * header.depth]
    weights = 1 << np.arange(header.depth - 1, -1, -1)
    packed = bits.reshape(*shape, header.depth) @ weights
    return np.asarray(packed, dtype=np.uint8)


# -- image files --------------------------------------------------------------------------

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
        """Give the pixels as many channels as a network has, with a text that says what changed.

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
    """Read a shape as (channels, height, width), or as (inputs,) if it is not that of an image."""
    if len(shape) == 2 and 1 not in shape:
        return 1, *shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    return (math.prod(shape),)


def is_image(path: str | Path) -> bool:
    """Decide by its suffix whether a file is an image."""
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
    """Whether an opened image has samples of 16 bits, which Pillow shortens in colours."""
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
                alpha = np.asarray(image.getchannel("A")) if found in ("LA", "RGBA") else None
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
    if alpha is not None:
        _warn_of_alpha(pixels.reshape(*alpha.shape, -1), alpha, path)
    kind = KIND_WORDS.get(found, "RGB" if found.startswith("RGB") else found)
    return Image(pixels, kind, path)
