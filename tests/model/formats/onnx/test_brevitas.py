"""Models that Brevitas exported as QONNX, against what PyTorch computed with them."""

from __future__ import annotations

import numpy as np
import pytest

from bnncert.model.loading import load
from tests.data.make_larq_fixtures import FOLDER, inputs

#: From the definitions in make_brevitas_fixtures.py; the pooling layer is one of its own.
SIZES = {
    "dense": (16, 8, 8, 3),
    "images": (8 * 8, 8 * 8 * 4, 4 * 4 * 4, 2 * 2 * 6, 3),
    # Two bits are two signs, and three bits of a quantised ReLU are seven.
    "two_bits": (16, 2 * 16, 2 * 8, 2 * 8, 3),
    "relu": (8 * 8, 3 * 8 * 8 * 4, 3 * 4 * 4 * 4, 7 * 2 * 2 * 6, 3),
}

LEVELS = ("two_bits", "relu")


@pytest.mark.parametrize("name", SIZES)
def test_scores_are_those_of_pytorch(name: str) -> None:
    network = load(FOLDER / f"brevitas_{name}.onnx.gz")
    scores_of = "brevitas_level_scores.npz" if name in LEVELS else "brevitas_scores.npz"
    with np.load(FOLDER / scores_of) as stored:
        expected = stored[name]
    assert network.sizes == SIZES[name]
    assert all(layer.sign_zero == "plus" for layer in network.layers)
    assert len(np.unique(expected, axis=0)) > 5
    assert len(set(expected.argmax(axis=1))) > 1
    scores = network.evaluate(inputs(network.input_shape))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)
    # Scores are small integers times a common scale; scores that tie may be told apart by rounding.
    first, second = np.sort(expected, axis=1)[:, :-3:-1].T
    clear = first - second > 1e-5
    np.testing.assert_array_equal(scores.argmax(axis=1)[clear], expected.argmax(axis=1)[clear])
