"""Keras files are read as TensorFlow evaluates them."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bnncert.model.loading import load
from tests.data.make_larq_fixtures import FOLDER, inputs

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")
from tests.model.formats.keras.h5_files import changed, read, sound, write_h5  # noqa: E402

#: From the definitions in make_larq_fixtures.py; a pooling layer is a layer of its own, and what
#: overlapping windows share (images: 11 x 11 cells in 4 x 4 windows) counts for each of them.
SIZES = {
    "dense.h5": (16, 8, 8, 8, 3),
    "images.keras": (8 * 8, 11 * 11 * 4, 4 * 4 * 4, 2 * 2 * 6, 2 * 2 * 12, 3),
    "padded.h5": (8 * 8, 8 * 8 * 6, 4 * 4 * 6, 4 * 4 * 8, 2 * 2 * 8, 3),
    "functional.h5": (48, 6 * 4 * 4, 3 * 4 * 4, 2 * 3 * 4, 2 * 3 * 5, 3),
    "plain.keras": (8 * 8, 6 * 6 * 4, 4 * 4 * 4, 3),
}


@pytest.mark.parametrize("name", SIZES)
def test_scores_are_those_of_tensorflow(name: str) -> None:
    network = load(FOLDER / f"larq_{name}.gz")
    with np.load(FOLDER / "larq_scores.npz") as stored:
        expected = stored[name]
    scores = network.evaluate(inputs(network.input_shape))
    assert network.sizes == SIZES[name]
    assert all(layer.sign_zero == "plus" for layer in network.layers)
    # The models tell the inputs apart, so that agreement means something.
    assert len(np.unique(expected, axis=0)) > 20
    assert set(expected.argmax(axis=1)) == {0, 1, 2}
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=4e-6)


def test_softmax_is_noted() -> None:
    assert load(FOLDER / "larq_dense.h5.gz").output_transform == "softmax"
    assert load(FOLDER / "larq_plain.keras.gz").output_transform == "scores"


@pytest.mark.parametrize("size", [1, 50])
def test_convolutions_keep_their_fast_form(size: int) -> None:
    network = load(FOLDER / "larq_images.keras.gz")
    described = [layer for layer in network.layers if layer.convolution is not None]
    assert len(described) == 3
    rng = np.random.default_rng(size)
    for layer in described:
        signs = rng.choice([-1.0, 1.0], size=(size, layer.inputs)).astype(np.float32)
        np.testing.assert_array_equal(
            layer.operator(np.float32).forward(signs), (layer.weights @ signs.T).T
        )


def test_a_small_model_by_hand(tmp_path: Path) -> None:
    network = read(tmp_path, sound())
    assert network.depth == 1
    # x1 + x2 and -x1 + x2; the second kernel is ((1, -1), (0, 1)).
    points = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-2.0, -1.0], [0.25, 0.5]])
    signs = np.array([[1, -1], [1, 1], [1, 1], [-1, 1], [1, 1]])
    np.testing.assert_array_equal(network.last_signs(points), signs)
    expected = np.stack([signs[:, 0], signs[:, 1] - signs[:, 0]], axis=1)
    np.testing.assert_array_equal(network.evaluate(points), expected)
    # (1, -1) gives exactly zero: +1 in Larq.
    assert network.layers[0].sign_zero == "plus"
    exact = network.evaluate_exactly(np.array([1.0, -1.0]))
    assert exact == [Fraction(1), Fraction(-2)]


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    path = write_h5(tmp_path / "net.h5", changed(0, activation="relu"))
    done = subprocess.run(
        [sys.executable, "-m", "bnncert", "info", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"{path}: layer first (QuantDense): its activation is relu" in line
