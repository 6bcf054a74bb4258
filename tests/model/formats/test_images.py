"""Image files, with Pillow and without it."""

from __future__ import annotations

import importlib.util
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.images import MAGIC, Image, read_image, read_png

COLOURS = np.random.default_rng(1).integers(0, 256, (4, 5, 3), dtype=np.uint8)
GREY = COLOURS[..., 0]


def image(pixels: np.ndarray, kind: str) -> Image:
    return Image(pixels, kind, Path("x.png"))


@pytest.mark.parametrize("shape", [(20,), (4, 5), (1, 4, 5), (4, 5, 1)])
def test_colours_become_grey_as_in_pillow(shape: tuple[int, ...]) -> None:
    pixels, text = image(COLOURS, "RGB").fitted(shape)
    np.testing.assert_array_equal(pixels, PillowImage.fromarray(COLOURS).convert("L"))
    assert text == "RGB converted to grey"
    same, text = image(GREY, "grey").fitted(shape)
    assert same is GREY or np.array_equal(same, GREY)
    assert text == ""


def test_equal_channels_become_exactly_that_grey() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    pixels, _ = image(np.repeat(levels[..., None], 3, axis=2), "palette").fitted((256,))
    np.testing.assert_array_equal(pixels, levels)


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 5, 3)])
def test_grey_becomes_three_channels(shape: tuple[int, ...]) -> None:
    pixels, text = image(GREY, "grey").fitted(shape)
    assert pixels.shape == (4, 5, 3) and np.all(pixels == GREY[..., None])
    assert text == "grey converted to RGB"
    assert image(COLOURS, "RGB").fitted(shape)[1] == ""
    assert image(COLOURS, "palette").fitted(shape)[1] == "palette converted to RGB"


def test_the_order_of_colours_is_said_if_the_network_has_no_shape() -> None:
    assert "side by side" in image(COLOURS, "RGB").fitted((60,))[1]


@pytest.mark.parametrize("shape", [(21,), (5, 4), (1, 5, 4), (3, 5, 4), (4, 4, 3), (10, 2)])
def test_other_sizes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match=r"x\.png: image of 5 x 4 pixels; the network has"):
        image(COLOURS, "RGB").fitted(shape)


def test_png_is_read_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PillowImage.fromarray(COLOURS).save(tmp_path / "x.png")
    with_pillow = read_image(tmp_path / "x.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    without = read_image(tmp_path / "x.png")
    np.testing.assert_array_equal(without.pixels, with_pillow.pixels)
    assert without.kind == with_pillow.kind == "RGB"
    with pytest.raises(MissingExtraError, match=r"reading \.jpg images needs pillow: pip install"):
        read_image(tmp_path / "x.jpg")


def tiff(samples: bytes) -> bytes:
    """Return a TIFF image of one RGB pixel with 16 bits a sample."""
    entries = [(256, 1), (257, 1), (258, None), (259, 1), (262, 2), (273, None), (277, 3)]
    entries += [(278, 1), (279, len(samples))]
    end = 8 + 2 + 12 * len(entries) + 4
    # The bits of the three samples, and the samples, are behind the directory.
    far = {258: (3, 3, end), 273: (4, 1, end + 6)}
    parts = [b"II*\0" + struct.pack("<IH", 8, len(entries))]
    for tag, value in entries:
        parts.append(struct.pack("<HHII", tag, *far.get(tag, (3, 1, value or 0))))
    return b"".join([*parts, bytes(4), struct.pack("<HHH", 16, 16, 16), samples])


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(rows: bytes, *, size: tuple[int, int] = (4, 5), depth: int = 8, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return MAGIC + b"".join(parts)


WIDE = struct.pack(">4H", 0x01FF, 0x80FF, 0xFFFF, 0xFFFF)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            (f"{colour}.png", png(b"\0" + WIDE[: 2 * count], size=(1, 1), depth=16, colour=colour))
            for colour, count in ((2, 3), (4, 2), (6, 4))
        ),
        ("x.ppm", b"P6 1 1 65535\n" + WIDE[:6]),
        ("x.tif", tiff(WIDE[:6])),
    ],
)
def test_samples_of_16_bits_are_not_shortened(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with PillowImage.open(tmp_path / name) as opened:
        assert opened.mode in ("RGB", "RGBA", "LA")
    with pytest.raises(FormatError, match=f"{name}: image of 16 bits a sample; expected one byte"):
        read_image(tmp_path / name)


@pytest.mark.parametrize(("text", "why"), [("hello", "expected PNG or JPEG"), ("", "the file is")])
def test_the_message_about_another_content_names_the_file(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "x.png").write_text(text)
    with pytest.raises(FormatError, match=rf"x\.png: not a readable image \({why}") as error:
        read_image(tmp_path / "x.png")
    assert "object at" not in str(error.value)


PATH = Path("x.png")


def encoded(image: PillowImage.Image, **how: object) -> bytes:
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
@settings(max_examples=20, deadline=None)
def test_pixels_are_those_of_pillow(
    seed: int, width: int, height: int, mode: str, smooth: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
    if smooth:
        # Neighbours that differ by little make encoders choose other filters.
        values = np.cumsum(values // 60, axis=1, dtype=np.uint8)
    image = PillowImage.fromarray(values).convert(mode)
    found = read_png(encoded(image, optimize=smooth), PATH)
    assert found is not None
    wanted = np.asarray(image.convert("L" if mode in ("1", "L", "LA") else "RGB"))
    np.testing.assert_array_equal(found[0], wanted)
    assert found[1] == {"P": "palette", "RGB": "RGB", "RGBA": "RGB"}.get(mode, "grey")


def test_all_filters_and_few_bits(tmp_path: Path) -> None:
    """One row for each filter; Pillow is the oracle for the same bytes."""
    rng = np.random.default_rng(3)
    for depth, length in ((8, 4), (4, 2), (2, 1), (1, 1)):
        rows = b"".join(bytes([k]) + rng.bytes(length) for k in range(5))
        content = png(rows, depth=depth)
        found = read_png(content, PATH)
        assert found is not None
        with PillowImage.open(io.BytesIO(content)) as image:
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
@settings(max_examples=20, deadline=None)
def test_a_changed_byte_is_refused_or_read(place: int, value: int) -> None:
    content = bytearray(WHOLE)
    content[place] = value
    try:
        found = read_png(bytes(content), PATH)
    except FormatError:
        return
    assert found is None or found[0].dtype == np.uint8
