"""Convolutional models as ONNX files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.extras.training.labelled_images import BYTES
from bnncert.extras.training.training_options import TrainingOptions
from tests.extras.training.tiny import CLASSES, SIDE, blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training.export import (  # noqa: E402
    onnx_bytes,
    to_network,
    write_network,
)
from tests.extras.training.test_export import randomise_normalisation  # noqa: E402
from tests.extras.training.trained import CONV, SHAPE, STRIDED, train  # noqa: E402


@pytest.mark.parametrize("binarised", [False, True], ids=["real", "binarised"])
@pytest.mark.parametrize("options", [CONV, STRIDED], ids=["pooled", "strided"])
def test_the_file_is_the_model(options: TrainingOptions, binarised: bool, tmp_path: Path) -> None:
    net = train(replace(options, epochs=1, binarise_input=binarised))
    rng = np.random.default_rng(5)
    randomise_normalisation(net, rng)
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_bytes(net, BYTES))
    loaded, folded = bnncert.load(path), to_network(net, BYTES)
    assert loaded.sizes == folded.sizes
    for ours, other in zip(loaded.layers[1:], folded.layers[1:], strict=True):
        # Above the first layer folding does not move a threshold from one integer to another.
        np.testing.assert_array_equal(ours.threshold(np.float64), other.threshold(np.float64))
    points = rng.uniform(-1, 1, (300, SIDE * SIDE)).astype(np.float32)
    with torch.no_grad():
        wanted = net.double().eval()(torch.from_numpy(points.astype(np.float64))).numpy()
    np.testing.assert_array_equal(loaded.evaluate(points), wanted)
    assert loaded.input_shape == SHAPE
    assert loaded.input_lo is not None and set(loaded.input_lo) == {-1.0}
    assert loaded.pixel_step == 2 / 255


def test_onnxruntime_executes_it(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra 'replay'")
    net = train(replace(STRIDED, epochs=1))
    path = tmp_path / "net.onnx"
    network, _ = write_network(net, BYTES, blobs(100, 2), path)
    points = BYTES.points(blobs(100, 2).images).astype(np.float32).reshape(-1, *SHAPE)
    session = runtime.InferenceSession(path)
    (scores,) = session.run(None, {"input": points})
    assert scores.shape == (100, CLASSES)
    # float32 sums of the first layer may round across a threshold, which is rare.
    same = np.all(scores == network.evaluate(points).astype(np.float32), axis=1)
    assert np.mean(same) > 0.9
