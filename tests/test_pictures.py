"""Notebooks show the input of a result, and its counterexample beside it."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest

import bnncert
from bnncert.engine.verdict import Result
from bnncert.model.loading import load_demo_images, load_demo_network


def pictures(result: Result) -> list[bytes]:
    """Return the PNG files in the HTML of a result."""
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', result._repr_html_())
    return [base64.b64decode(text) for text in found]


def test_a_result_shows_the_image_and_its_counterexample() -> None:
    network, images = load_demo_network(), load_demo_images()
    grid = bnncert.Grid(1 / 127.5, -1)
    ball = bnncert.Ball("linf", images.point(38), 1 / 127.5, -1, 1, grid)
    result = bnncert.verify(network, ball, 2, method="attack", timeout=30)
    assert result.counterexample is not None
    shown = pictures(result)
    assert len(shown) == 3 and "input: 2" in result._repr_html_()
    image = pytest.importorskip("PIL.Image")
    before, after, change = (np.asarray(image.open(io.BytesIO(file))) for file in shown)
    assert np.array_equal(before, images.pixels[38].reshape(28, 28))
    levels = np.rint((result.counterexample.point + 1) * 127.5).reshape(28, 28)
    assert np.array_equal(after, levels)
    assert change.shape == (28, 28, 3)


def test_a_robust_result_shows_the_image_only() -> None:
    network, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(0), 0.0005, -1, 1)
    result = bnncert.verify(network, ball, 7, timeout=30)
    assert result.status == "robust" and len(pictures(result)) == 1


@pytest.mark.parametrize("box", [None, 1.0])
def test_inputs_that_are_no_image_have_no_picture(box: float | None) -> None:
    network = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    low = None if box is None else -box
    ball = bnncert.Ball("linf", [0.5, 0], 0.3, low, box)
    result = bnncert.verify(network, ball, 0, timeout=30)
    assert result.status == "not_robust"
    assert pictures(result) == [] and "<table>" in result._repr_html_()
