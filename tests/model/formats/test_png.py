"""PNG images read without Pillow: the same pixels as with it, and broken files."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bnncert.errors import FormatError
from bnncert.model.formats.images import MAGIC, read_png

PATH = Path("x.png")


def encoded(image: Image.Image, **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **how)
    return buffer.getvalue()


@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 19),
    height=st.integers(1, 9),
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA"]),
    smooth=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_pixels_are_those_of_pillow(
    seed: int, width: int, height: int, mode: str, smooth: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
    if smooth:
        # Neighbours that differ by little make encoders choose other filters.
        values = np.cumsum(values // 60, axis=1, dtype=np.uint8)
    image = Image.fromarray(values).convert(mode)
    found = read_png(encoded(image, optimize=smooth), PATH)
    assert found is not None
    wanted = np.asarray(image.convert("L" if mode in ("1", "L", "LA") else "RGB"))
    np.testing.assert_array_equal(found[0], wanted)
    assert found[1] == {"P": "palette", "RGB": "RGB", "RGBA": "RGB"}.get(mode, "grey")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(rows: bytes, *, size: tuple[int, int] = (4, 5), depth: int = 8, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return MAGIC + b"".join(parts)


def test_all_filters_and_few_bits(tmp_path: Path) -> None:
    """One row for each filter; Pillow is the oracle for the same bytes."""
    rng = np.random.default_rng(3)
    for depth, length in ((8, 4), (4, 2), (2, 1), (1, 1)):
        rows = b"".join(bytes([k]) + rng.bytes(length) for k in range(5))
        content = png(rows, depth=depth)
        found = read_png(content, PATH)
        assert found is not None
        with Image.open(io.BytesIO(content)) as image:
            np.testing.assert_array_equal(found[0], np.asarray(image.convert("L")))


def test_interlaced_images_are_left_to_pillow() -> None:
    content = bytearray(png(bytes(25)))
    content[28] = 1
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    assert read_png(bytes(content), PATH) is None


WHOLE = png(bytes(25))
BROKEN = {
    "empty": b"",
    "text": b"no image",
    "only the magic": MAGIC,
    "truncated": WHOLE[:-8],
    "wrong checksum": WHOLE[:20] + b"\x07" + WHOLE[21:],
    "too few rows": png(bytes(20)),
    "no such filter": png(b"\x09" + bytes(24)),
    "16 bits": png(bytes(45), depth=16),
    "no such colour type": png(bytes(25), colour=5),
    "palette without colours": png(bytes(25), colour=3),
    "no pixels": png(b"", size=(0, 0)),
    "too many pixels": png(bytes(10), size=(2**16, 2**16)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_images_are_refused(name: str) -> None:
    with pytest.raises(FormatError, match=r"x\.png"):
        read_png(BROKEN[name], PATH)


@given(place=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255))
@settings(max_examples=80, deadline=None)
def test_a_changed_byte_is_refused_or_read(place: int, value: int) -> None:
    content = bytearray(WHOLE)
    content[place] = value
    try:
        found = read_png(bytes(content), PATH)
    except FormatError:
        return
    assert found is None or found[0].dtype == np.uint8
