"""Models of others: VNN-COMP and Brevitas."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.model.pixel_levels import on_pixels
from bnncert.regions.radii import PixelScale
from tests.data.make_larq_fixtures import FOLDER, inputs

DATA = Path(__file__).resolve().parents[5] / "shared" / "data"
MODELS = {"30": (2700, 2, 200), "48": (6912, 6, 100), "64": (12288, 7, 100)}


def _path(size: str) -> Path:
    found = sorted((DATA / "vnncomp2023" / "onnx").glob(f"3_{size}_*.onnx.gz"))
    if not found:
        pytest.skip("the models of VNN-COMP 2023 are not in the shared data")
    return found[0]


def _images(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return noise and smooth pictures, with integer pixels."""
    images = rng.integers(0, 256, size=(count, *shape)).astype(np.float32)
    ramp = np.linspace(0, 1, int(np.prod(shape))).reshape(shape)
    waves = 128 + 90 * np.sin(ramp * rng.uniform(1, 900, size=(count, 1, 1, 1)))
    images[::2] = np.clip(waves + rng.integers(-30, 31, size=images.shape), 0, 255).round()[::2]
    return images


@pytest.mark.parametrize("size", MODELS)
def test_vnncomp_models_agree_with_onnxruntime(size: str) -> None:
    path = _path(size)
    inputs, depth, count = MODELS[size]
    network = load(path)
    assert network.inputs == inputs
    assert network.depth == depth
    assert network.classes == 43
    assert network.output_transform == "softmax"
    assert all(layer.sign_zero == "plus" for layer in network.layers)
    # Large models are compared at fewer inputs, and say so.
    assert all(note.startswith("compared with onnxruntime at") for note in network.notes)
    model = onnx.load_model_from_string(gzip.decompress(path.read_bytes()))
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    model.graph.output.append(helper.make_tensor_value_info(softmax.input[0], 1, None))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(int(size))
    for start in range(0, count, 50):
        images = _images(rng, min(50, count - start), network.input_shape)
        probabilities, logits = session.run(None, {session.get_inputs()[0].name: images})
        scores = network.evaluate(images)
        np.testing.assert_array_equal(scores, logits)
        np.testing.assert_array_equal(scores.argmax(axis=1), probabilities.argmax(axis=1))
    _check_convolutions(network, rng)


def _check_convolutions(network: Network, rng: np.random.Generator) -> None:
    """Check the fast form of each convolution against its sparse matrix, on integers."""
    described = [layer for layer in network.layers if layer.convolution is not None]
    assert described
    for layer in described:
        operator = layer.operator(np.float32)
        weights = layer.weights
        forth = rng.integers(-1, 2, size=(1, layer.inputs)).astype(np.float32)
        back = rng.integers(-1, 2, size=(1, layer.size)).astype(np.float32)
        np.testing.assert_array_equal(operator.forward(forth)[0], weights @ forth[0])
        np.testing.assert_array_equal(operator.backward(back)[0], weights.T @ back[0])


@pytest.mark.parametrize("suffix", ["json", "npz", "onnx"])
def test_a_dense_model_is_written_with_its_irrational_biases(tmp_path: Path, suffix: str) -> None:
    network = load(_tfc())
    assert np.all(network.output.error > 0)
    network.save(tmp_path / f"net.{suffix}")
    again = load(tmp_path / f"net.{suffix}")
    assert again.content_hash == network.content_hash
    assert again.output.gain == network.output.gain
    np.testing.assert_array_equal(again.output.group, network.output.group)


def test_a_dense_model_on_pixels_is_the_same_at_all_of_them(tmp_path: Path) -> None:
    network = PixelScale.between(0, 1).on(load(_tfc()))
    integers = on_pixels(network)
    pixels = _images(np.random.default_rng(1), 40, (1, 28, 28))
    np.testing.assert_array_equal(network.evaluate(pixels / 255.0), integers.evaluate(pixels))
    # 2 x - 1 >= 0 from pixel 128 on.
    assert np.all(integers.layers[0].bias == 0.5 - 128)


def _tfc() -> Path:
    path = DATA / "models" / "TFC_1W1A.onnx"
    if not path.exists():
        pytest.skip("the Brevitas model is not in the shared data")
    return path


def _run_tfc(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Evaluate the graph of the Brevitas model by hand, in float64."""
    model = onnx.load(_tfc())
    w = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}

    def binary(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(x >= 0, 1.0, -1.0)

    x = binary(2 * images.reshape(len(images), -1) - 1)
    epsilon = float(np.float32(1e-5))
    for weights, layer in (("38", "3"), ("46", "7"), ("54", "11")):
        u = x @ binary(w[weights]).T
        scale, bias, mean, variance = (
            w[f"features.{layer}.weight"],
            w[f"features.{layer}.bias"],
            w[f"features.{layer}.running_mean"],
            _variance(w, layer),
        )
        x = binary((u - mean) / np.sqrt(variance + epsilon) * scale + bias)
    u = x @ binary(w["62"]).T
    deviation = np.power(w["76"].astype(np.float32), np.float32(0.5)).astype(np.float64)
    return (u - w["features.15.running_mean"]) / deviation * w["features.15.weight"] + w[
        "features.15.bias"
    ]


def _variance(w: dict[str, npt.NDArray[Any]], layer: str) -> npt.NDArray[Any]:
    return w[f"features.{layer}.running_var"]


def test_the_brevitas_model_agrees_with_its_definition() -> None:
    network = load(_tfc())
    assert network.sizes == (784, 784, 64, 64, 64, 10)
    assert network.input_shape == (1, 28, 28)
    assert network.sign_zero == "plus"
    rng = np.random.default_rng(7)
    images = rng.integers(0, 256, size=(1000, 1, 28, 28)) / 256
    images[0] = 0.5
    expected = _run_tfc(images)
    scores = network.evaluate(images)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    shares = np.linspace(0.01, 0.9, 1000)[:, None]
    sparse = (rng.random((1000, 784)) < shares).astype(np.float64)
    np.testing.assert_allclose(network.evaluate(sparse), _run_tfc(sparse), rtol=1e-9, atol=1e-9)


#: From the definitions in make_brevitas_fixtures.py; the pooling layer is one of its own.
SIZES = {
    "dense": (16, 8, 8, 3),
    "images": (8 * 8, 8 * 8 * 4, 4 * 4 * 4, 2 * 2 * 6, 3),
    # Two bits are two signs, and three bits of a quantised ReLU are seven.
    "two_bits": (16, 2 * 16, 2 * 8, 2 * 8, 3),
    "relu": (8 * 8, 3 * 8 * 8 * 4, 3 * 4 * 4 * 4, 7 * 2 * 2 * 6, 3),
}

LEVELS = ("two_bits", "relu")


@pytest.mark.parametrize("suffix", ["json", "npz", "onnx"])
@pytest.mark.parametrize("name", SIZES)
def test_written_models_are_read_back_the_same(name: str, suffix: str, tmp_path: Path) -> None:
    """Real weights and ties of batch normalisation are in the files, and nothing is rounded."""
    network = load(FOLDER / f"brevitas_{name}.onnx.gz")
    network.save(tmp_path / f"net.{suffix}")
    assert load(tmp_path / f"net.{suffix}").content_hash == network.content_hash


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
