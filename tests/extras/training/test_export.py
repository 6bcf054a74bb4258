"""A trained model as a network file with the same scores, also as ONNX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from bnncert.errors import BnncertError
from bnncert.extras.training.labelled_images import BYTES, Scaling
from bnncert.extras.training.training_options import TrainingOptions
from tests.extras.training.tiny import CLASSES, SIDE, blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training import export  # noqa: E402
from bnncert.extras.training.binary_model import TernaryNet  # noqa: E402
from bnncert.extras.training.export import onnx_bytes, to_network, write_network  # noqa: E402
from tests.extras.training.trained import CONV, SHAPE, SMALL, STRIDED, train  # noqa: E402


def loops(
    kernel: npt.NDArray[Any], image: npt.NDArray[Any], stride: int = 1
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a convolution with zero padding, and 2 x 2 maxima of `image`, by plain loops."""
    out, channels = kernel.shape[:2]
    _, height, width = image.shape
    sums = np.zeros((out, -(-height // stride), -(-width // stride)))
    for o in range(out):
        for y in range(0, height, stride):
            for x in range(0, width, stride):
                for c in range(channels):
                    for dy in (-1, 0, 1):
                        for dx in (-1, 0, 1):
                            if 0 <= y + dy < height and 0 <= x + dx < width:
                                weight = kernel[o, c, dy + 1, dx + 1]
                                place = o, y // stride, x // stride
                                sums[place] += weight * image[c, y + dy, x + dx]
    pooled = np.zeros((channels, height // 2, width // 2))
    for c in range(channels):
        for y in range(height // 2):
            for x in range(width // 2):
                pooled[c, y, x] = image[c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].max()
    return sums, pooled


def test_convolution_and_pooling_matrices_equal_plain_loops() -> None:
    rng = np.random.default_rng(3)
    for height, width in ((4, 4), (5, 7), (2, 3)):
        kernel = rng.integers(-1, 2, (3, 2, 3, 3)).astype(np.int8)
        image = rng.choice([-1.0, 1.0], (2, height, width))
        sums, pooled = loops(kernel, image)
        matrix = export.convolution_matrix(kernel, (height, width))
        np.testing.assert_array_equal(matrix @ image.reshape(-1), sums.reshape(-1))
        for stride in (2, 3):
            strided, _ = loops(kernel, image, stride)
            matrix = export.convolution_matrix(kernel, (height, width), stride)
            np.testing.assert_array_equal(matrix @ image.reshape(-1), strided.reshape(-1))
        pool = export.pooling_matrix(2, (height, width))
        on = np.where(pool @ image.reshape(-1) + 3 >= 0, 1.0, -1.0)
        np.testing.assert_array_equal(on, pooled.reshape(-1))
    assert export.convolution_matrix(np.zeros((1, 1, 3, 3), np.int8), (2, 2)).nnz == 0


def randomise_normalisation(net: TernaryNet, rng: np.random.Generator) -> None:
    """Give batch normalisation gains of both signs and zero, and odd offsets."""
    with torch.no_grad():
        for layer in net.layers:
            size = layer.norm.weight.numel()
            gain = rng.normal(size=size)
            gain[:2] = 0.0
            layer.norm.weight.copy_(torch.from_numpy(gain))
            layer.norm.bias.copy_(torch.from_numpy(rng.normal(size=size)))


@pytest.mark.parametrize("binarised", [False, True], ids=["real", "binarised"])
@pytest.mark.parametrize("options", [SMALL, CONV, STRIDED], ids=["dense", "conv", "strided"])
def test_the_network_equals_the_model_everywhere(
    options: TrainingOptions, binarised: bool, tmp_path: Path
) -> None:
    net = train(replace(options, epochs=1, binarise_input=binarised))
    rng = np.random.default_rng(4)
    randomise_normalisation(net, rng)
    network = export.to_network(net, BYTES)
    network.save(tmp_path / "net.npz")
    loaded = bnncert.load(tmp_path / "net.npz")
    assert loaded.content_hash == network.content_hash
    points = rng.uniform(-1, 1, (500, SIDE * SIDE))
    with torch.no_grad():
        wanted = net.double().eval()(torch.from_numpy(points)).numpy()
    assert len(np.unique(wanted, axis=0)) > (2 if binarised else 5)
    if binarised:
        first = loaded.layers[0].weights.toarray()
        np.testing.assert_array_equal(first, np.eye(SIDE * SIDE))
        np.testing.assert_array_equal(loaded.evaluate(np.sign(points)), wanted)
    np.testing.assert_array_equal(loaded.evaluate(points), wanted)
    assert loaded.input_shape == SHAPE
    assert loaded.pixel_step == 2 / 255
    assert loaded.input_lo is not None and loaded.input_hi is not None
    assert set(loaded.input_lo) == {-1.0} and set(loaded.input_hi) == {1.0}


def test_a_disagreement_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = train(replace(SMALL, epochs=1))
    right = export.to_network

    def wrong(model: TernaryNet, scaling: Scaling) -> bnncert.Network:
        network = right(model, scaling)
        output = replace(network.output, weights=-network.output.weights)
        return replace(network, output=output)

    monkeypatch.setattr(export, "to_network", wrong)
    with pytest.raises(BnncertError, match="differs from the trained model on 100 of 100"):
        export.write_network(net, BYTES, blobs(100, 2), tmp_path / "net.npz")
    assert list(tmp_path.iterdir()) == []


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
