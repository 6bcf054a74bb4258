"""PNG images without Pillow: grey, RGB and palette with at most 8 bits a sample.

Transparency is dropped, as when Pillow converts an image.  Interlaced images are left to Pillow.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError
from bnncert.model.formats.limits import DEFAULT_LIMITS, too_many

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
    """Return the pixels (H, W) or (H, W, 3) and the kind; None if the image is interlaced.

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
    if kind == "RGB":
        return np.ascontiguousarray(samples[..., :3]), kind
    scale = 255 // (2**header.depth - 1)
    return samples[..., 0] * np.uint8(scale), kind


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
    """Return the filtered rows, each with the number of its filter in front."""
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
    """Return the samples (H, W, samples of a pixel), one byte each."""
    shape = header.height, header.width, SAMPLES[header.colour]
    if header.depth == 8:
        return rows.reshape(shape)
    bits = np.unpackbits(rows, axis=1)[:, : header.width * header.depth]
    weights = 1 << np.arange(header.depth - 1, -1, -1)
    packed = bits.reshape(*shape, header.depth) @ weights
    return np.asarray(packed, dtype=np.uint8)
