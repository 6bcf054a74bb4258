"""Images as inputs of networks with one or three channels."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from bnncert.errors import FormatError, MissingExtraError
from bnncert.formats.images import Image, read_image

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
