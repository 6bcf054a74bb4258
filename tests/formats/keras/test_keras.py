"""Keras and Larq files: against TensorFlow's own results, ties, and everything that is refused."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bnncert.errors import FormatError, MissingExtraError
from bnncert.formats.keras.archive import group_names
from bnncert.formats.keras.quantizers import quantised
from bnncert.formats.layer_chain import FileLayer
from bnncert.network import Network, load
from tests.data.make_larq_fixtures import FOLDER, inputs

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")

#: From the definitions in make_larq_fixtures.py; a pooling layer is a layer of its own, and what
#: overlapping windows share (images: 11 x 11 cells in 4 x 4 windows) counts for each of them.
SIZES = {
    "dense.h5": (16, 8, 8, 8, 3),
    "images.keras": (8 * 8, 11 * 11 * 4, 4 * 4 * 4, 2 * 2 * 6, 2 * 2 * 12, 3),
    "padded.h5": (8 * 8, 8 * 8 * 6, 4 * 4 * 6, 4 * 4 * 8, 2 * 2 * 8, 3),
    "functional.h5": (48, 6 * 4 * 4, 3 * 4 * 4, 2 * 3 * 4, 2 * 3 * 5, 3),
    "plain.keras": (8 * 8, 6 * 6 * 4, 4 * 4 * 4, 3),
}

Layers = list[tuple[str, dict[str, Any], dict[str, Any]]]


# -- models that TensorFlow wrote -------------------------------------------------------------


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


@pytest.mark.parametrize("threshold", ["0.0", "0.05", "0.1", "0.2", "1.0"])
def test_ternary_quantiser_on_its_edges(threshold: str) -> None:
    with np.load(FOLDER / "larq_edges.npz") as stored:
        weights, expected = stored["weights"], stored[threshold]
    entry = {"class_name": "SteTern", "config": {"threshold_value": float(threshold)}}
    assert np.any(np.abs(weights) == np.float32(threshold))
    np.testing.assert_array_equal(quantised(weights, entry, LAYER, "quantizer"), expected)


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("ste_sign", "ste_sign"),
        ("ste_sign", {"class_name": "Larq>SteSign", "config": {"clip_value": 1.0}}),
        ("ste_sign", {"class_name": "function", "config": "approx_sign", "module": "builtins"}),
        ("mean", {"class_name": "SteTern", "config": {"ternary_weight_networks": True}}),
        ("0.05", "ste_tern"),
    ],
)
def test_other_quantisers_on_the_same_weights(key: str, entry: Any) -> None:
    with np.load(FOLDER / "larq_edges.npz") as stored:
        weights, expected = stored["weights"], stored[key]
    np.testing.assert_array_equal(quantised(weights, entry, LAYER, "quantizer"), expected)


def test_quantised_kernels_stay_what_they_are() -> None:
    # A model that was saved in quantized_scope(True) has -1, 0, 1 already.
    kernel = np.array([[-1, 0, 1, 1, -1, 1]], dtype=np.float32)
    for mean in (False, True):
        entry = {"class_name": "SteTern", "config": {"ternary_weight_networks": mean}}
        np.testing.assert_array_equal(quantised(kernel, entry, LAYER, "quantizer"), kernel)


def test_groups_are_numbered_by_class() -> None:
    kinds = ["QuantDense", "BatchNormalization", "QuantDense", "QuantConv2D", "QuantDense"]
    assert group_names(kinds) == [
        "quant_dense",
        "batch_normalization",
        "quant_dense_1",
        "quant_conv2d",
        "quant_dense_2",
    ]


# -- files written here, in the layout of Keras 2 ----------------------------------------------

LAYER = FileLayer("net.h5", "dense", "QuantDense")


def dense(units: int, kernel: Any, bias: Any = None, **options: Any) -> Any:
    config = {"units": units, "use_bias": bias is not None, "activation": "linear", **options}
    arrays = {"kernel": kernel} if bias is None else {"kernel": kernel, "bias": bias}
    return "QuantDense", config, arrays


def sound() -> Layers:
    """Return a model 2-2-2 that can be read; tests break it."""
    return [
        dense(2, [[0.5, -0.5], [0.5, 0.5]], kernel_quantizer="ste_sign", name="first"),
        dense(
            2,
            [[0.3, -0.3], [0.01, 0.3]],
            input_quantizer="ste_sign",
            kernel_quantizer="ste_tern",
            name="second",
        ),
    ]


def write_h5(
    path: Path,
    layers: Layers,
    *,
    shape: tuple[int | None, ...] = (2,),
    config: dict[str, Any] | None = None,
) -> Path:
    entries: list[dict[str, Any]] = [
        {"class_name": "InputLayer", "config": {"name": "in", "batch_input_shape": [None, *shape]}}
    ]
    with h5py.File(path, "w") as file:
        weights = file.create_group("model_weights")
        for number, (kind, options, arrays) in enumerate(layers):
            name = options.get("name", f"layer{number}")
            entries.append({"class_name": kind, "config": {**options, "name": name}})
            group = weights.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{role}:0".encode() for role in arrays]
            for role, array in arrays.items():
                if isinstance(array, h5py.ExternalLink):
                    group[f"{name}/{role}:0"] = array
                else:
                    kept = array if isinstance(array, np.ndarray) else np.float32(array)
                    group.create_dataset(f"{name}/{role}:0", data=kept)
        model = {"class_name": "Sequential", "config": {"layers": entries}}
        file.attrs["model_config"] = json.dumps(model if config is None else config)
    return path


def read(tmp_path: Path, layers: Layers, **options: Any) -> Network:
    return load(write_h5(tmp_path / "net.h5", layers, **options))


def refusal(tmp_path: Path, layers: Layers, **options: Any) -> str:
    with pytest.raises(FormatError) as caught:
        read(tmp_path, layers, **options)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'net.h5'}: ")
    assert message.isprintable()
    return message[len(str(tmp_path)) + 1 :]


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


@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, 3.0])
def test_what_the_padding_holds(value: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    kernel = rng.uniform(-1, 1, (3, 3, 1, 2)).astype(np.float32)
    layers: Layers = [
        ("Activation", {"activation": "ste_sign"}, {}),
        (
            "QuantConv2D",
            {
                "filters": 2,
                "kernel_size": [3, 3],
                "padding": "same",
                "use_bias": False,
                "pad_values": value,
                "kernel_quantizer": "ste_sign",
                "activation": "ste_sign",
            },
            {"kernel": kernel},
        ),
        ("Flatten", {}, {}),
        ("Dense", {"units": 32, "use_bias": False}, {"kernel": np.eye(32, dtype=np.float32)}),
    ]
    network = read(tmp_path, layers, shape=(4, 4, 1))
    images = rng.uniform(-1, 1, (50, 4, 4, 1))
    padded = np.pad(np.sign(images), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=value)
    taps = np.sign(kernel)
    expected = np.array(
        [
            [[np.sum(image[i : i + 3, j : j + 3, :, None] * taps, axis=(0, 1, 2)) for j in range(4)]
             for i in range(4)]
            for image in padded
        ]
    )  # fmt: skip
    np.testing.assert_array_equal(
        network.evaluate(images), np.where(expected >= 0, 1, -1).reshape(50, -1)
    )


def conv(kernel_shape: tuple[int, ...] = (2, 2, 1, 1), **options: Any) -> Layers:
    config = {"filters": 1, "kernel_size": [2, 2], "use_bias": False, "name": "conv", **options}
    kernel = np.ones(kernel_shape, dtype=np.float32)
    return [("QuantConv2D", config, {"kernel": kernel})]


def after_a_padding_of_ones(*layers: Any) -> Layers:
    """Return a convolution, pooling, and what comes behind them."""
    head: Layers = [*conv(padding="same", pad_values=1.0, kernel_quantizer="ste_sign")]
    head[0][2]["kernel"][0] = -1
    return [*head, ("MaxPooling2D", {"name": "pool", "pool_size": [2, 2]}, {}), *layers]


@pytest.mark.parametrize(
    "layers",
    [
        [("Flatten", {}, {}), dense(1, np.ones((4, 1), dtype=np.float32))],
        conv(name="second"),
        [("MaxPooling2D", {"pool_size": [2, 2]}, {}), ("Activation", {"activation": "sign"}, {})],
        [
            (
                "BatchNormalization",
                {"axis": 1},
                {
                    "gamma": np.ones(4, dtype=np.float32),
                    "beta": np.ones(4, dtype=np.float32),
                    "moving_mean": np.ones(4, dtype=np.float32),
                    "moving_variance": np.ones(4, dtype=np.float32),
                },
            )
        ],
        [("Softmax", {}, {})],
        [("GlobalMaxPooling2D", {}, {})],
        [],
    ],
)
def test_pooling_over_a_padding_of_ones_waits_for_a_sign(layers: Any, tmp_path: Path) -> None:
    message = refusal(tmp_path, after_a_padding_of_ones(*layers), shape=(4, 4, 1))
    assert "pools sums over a padding" in message or "linear function of signs" in message


def test_epsilon_is_the_float32_that_tensorflow_uses(tmp_path: Path) -> None:
    one = np.ones(1, dtype=np.float32)
    # With mean and variance 0 and gamma = beta = 1 the threshold is -sqrt(epsilon).
    arrays = {"gamma": one, "beta": one, "moving_mean": 0 * one, "moving_variance": 0 * one}
    norm = ("BatchNormalization", {"axis": [1], "epsilon": 0.1}, arrays)
    head: Any = dense(1, [[1.0]], kernel_quantizer="ste_sign")
    tail: Any = dense(1, [[1.0]], input_quantizer="ste_sign")
    network = read(tmp_path, [head, norm, tail], shape=(1,))
    squared = float(np.float32(0.1))
    above, below = (np.array([[-np.sqrt(squared) + d]]) for d in (1e-12, -1e-12))
    assert network.evaluate(above)[0, 0] == 1
    assert network.evaluate(below)[0, 0] == -1


# -- refused layers ---------------------------------------------------------------------------


def changed(number: int, **options: Any) -> Layers:
    layers = sound()
    layers[number][1].update(options)
    return layers


KERNEL = np.array([[0.3, -0.3], [0.01, 0.3]], dtype=np.float32)
MEAN = {"class_name": "SteTern", "config": {"ternary_weight_networks": True}}
NORM = {name: np.ones(2, dtype=np.float32) for name in ("gamma", "beta")}
STATISTICS = {f"moving_{name}": np.ones(2, dtype=np.float32) for name in ("mean", "variance")}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([("Lambda", {"name": "trick", "function": "x"}, {})], "layer trick (Lambda): this kind"),
        ([("LSTM", {"name": "lstm"}, {})], "layer lstm (LSTM): this kind of layer"),
        ([("ReLU", {"name": "relu"}, {})], "layer relu (ReLU): this kind of layer"),
        (changed(0, activation="relu"), "layer first (QuantDense): its activation is relu"),
        (
            [("Activation", {"name": "a", "activation": "tanh"}, {})],
            "layer a (Activation): its activation is tanh",
        ),
        (changed(0, input_quantizer="ste_tern"), "its input_quantizer is ste_tern"),
        (changed(1, kernel_quantizer="dorefa_quantizer"), "its kernel_quantizer is dorefa"),
        (
            changed(1, kernel_quantizer={"class_name": "MagnitudeAwareSign", "config": {}}),
            "layer second (QuantDense): its kernel_quantizer MagnitudeAwareSign scales",
        ),
        (changed(1, kernel_quantizer=5), "its kernel_quantizer is not a name"),
        (
            changed(1, kernel_quantizer={"class_name": "Mine>SteSign", "config": {}}),
            "neither of Keras nor of Larq",
        ),
        (
            changed(1, kernel_quantizer={"class_name": "SteSign", "module": "mine.q"}),
            "its kernel_quantizer comes from mine.q",
        ),
        (
            changed(
                1, kernel_quantizer={"class_name": "SteTern", "config": {"threshold_value": "x"}}
            ),
            "has the threshold 'x'",
        ),
        (changed(0, dtype="mixed_float16"), "layer first (QuantDense): it computes in mixed_float"),
        (
            changed(0, dtype={"class_name": "DTypePolicy", "config": {"name": "bfloat16"}}),
            "it computes in bfloat16",
        ),
        (changed(0, units=3), "kernel of shape (2, 2); expected (2, 3), inputs x units"),
        (changed(0, use_bias=True), "has the arrays kernel; expected kernel, bias"),
        ([dense(2, np.ones((3, 2)).astype("f4"), name="d")], "kernel of shape (3, 2); expected (2"),
        ([dense(2, np.ones((2, 2)), name="d")], "its kernel has type float64; expected float32"),
        ([dense(2, [[np.nan, 1], [1, 1]], name="d")], "NaN or infinity in its kernel"),
        ([dense(2, KERNEL, [0.0], name="d")], "bias of shape (1,) for 2 channels"),
        (
            [dense(2, [[-1e-40, 1], [1, 1]], kernel_quantizer="ste_sign", name="d")],
            "layer d (QuantDense): weight -1e-40 at (0, 0) is so small",
        ),
        (
            # The mean is 0.75, and 0.525 is 0.7 times that.
            [dense(2, [[1.0, 0.525], [1.0, 0.475]], kernel_quantizer=MEAN, name="d")],
            "is too close to that for float32",
        ),
        (conv(), "layer conv (QuantConv2D): its input has shape (2,)"),
        (
            [("BatchNormalization", {"name": "b", "axis": [1]}, {**NORM})],
            "has the arrays beta, gamma; expected gamma, beta, moving_mean, moving_variance",
        ),
        (
            [("BatchNormalization", {"name": "b", "axis": [1, 2]}, {**NORM, **STATISTICS})],
            "statistics along the axes [1, 2]",
        ),
        (
            [("BatchNormalization", {"name": "b", "axis": 4}, {**NORM, **STATISTICS})],
            "axis 4 of a tensor of rank 2",
        ),
        (
            [("BatchNormalization", {"name": "b", "epsilon": -1}, {**NORM, **STATISTICS})],
            "variance + epsilon is not positive",
        ),
        ([("MaxPooling2D", {"name": "p", "pool_size": [2, 2]}, {})], "expected (height, width"),
        ([("Reshape", {"name": "r", "target_shape": [3]}, {})], "cannot have shape (3,)"),
        ([("Reshape", {"name": "r"}, {})], "layer r (Reshape): malformed"),
        ([("Activation", {"name": "new\nline", "activation": "elu"}, {})], "layer new line"),
        ([sound()[0]], "the model has no sign activation"),
        (
            [*sound(), ("Softmax", {"name": "s"}, {}), dense(2, KERNEL, name="after")],
            "layer after (QuantDense): softmax must be the last",
        ),
        (
            [sound()[0], ("Activation", {"activation": "hard_tanh"}, {}), dense(2, KERNEL)],
            "after a Clip only a sign is supported",
        ),
    ],
)
def test_refused_layers(layers: Layers, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, layers)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (conv(data_format="channels_first"), "data_format channels_first; only channels_last"),
        (conv(padding="causal"), "layer conv (QuantConv2D): padding 'causal'"),
        (conv(padding="same", pad_values=1.0), "padding with 1 is supported for kernels of -1, 0"),
        (
            conv(padding="same", pad_values=[1.0], kernel_quantizer="ste_sign"),
            "pad_values [1.0]; expected one number",
        ),
        (conv((2, 3, 1, 1)), "kernel of shape (2, 3, 1, 1); expected (2, 2) with 1"),
        (conv((2, 2, 3, 1)), "kernel of shape (1, 3, 2, 2) in 1 groups on 1 channels"),
        (conv(strides=[1.5, 1]), "layer conv (QuantConv2D): malformed"),
        (conv(kernel_size=[2]), "kernel of shape"),
        ([("ZeroPadding2D", {"name": "z", "padding": [1, 1]}, {})], "layer z (ZeroPadding2D): mal"),
    ],
)
def test_refused_layers_on_images(layers: Layers, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, layers, shape=(4, 4, 1))


def test_hidden_weights_that_are_not_ternary(tmp_path: Path) -> None:
    layers = [*changed(1, kernel_quantizer=None), dense(2, KERNEL, input_quantizer="ste_sign")]
    assert "net.h5: second: neuron 0 has weight" in refusal(tmp_path, layers)


def test_weights_in_another_file_are_not_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones((2, 2), dtype=np.float32)
    link = h5py.ExternalLink(str(tmp_path / "other.h5"), "/secret")
    message = refusal(tmp_path, [dense(2, link, name="d")])
    assert "layer d (QuantDense): its weights cannot be read" in message
    assert "link to another place" in message


# -- refused models and files -----------------------------------------------------------------


def graph(*edges: tuple[str, Any], outputs: Any = (("c", 0, 0),)) -> dict[str, Any]:
    """Return a Functional model of activations, each with its inbound nodes."""
    layers = [
        {
            "class_name": "InputLayer" if name == "in" else "Activation",
            "name": name,
            "config": {"name": name, "activation": "linear", "batch_input_shape": [None, 2]},
            "inbound_nodes": nodes,
        }
        for name, nodes in edges
    ]
    body = {"layers": layers, "input_layers": [["in", 0, 0]], "output_layers": outputs}
    return {"class_name": "Functional", "config": body}


def after(*names: str, **options: Any) -> Any:
    return [[[name, 0, 0, options] for name in names]]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"class_name": "MyModel", "config": {}}, "the model is of class MyModel"),
        ({"class_name": "Sequential", "config": {"layers": []}}, "lists no layers"),
        ({"class_name": "Sequential", "config": {"layers": [7]}}, "layer 0 of the configuration"),
        (
            {"class_name": "Sequential", "config": [{"class_name": "Flatten", "config": {}}]},
            "does not state the shape of the input",
        ),
        (
            {
                "class_name": "Sequential",
                "config": [{"class_name": "Mine>Dense", "config": {"name": "d"}}],
            },
            "layer d (Dense): its class is Mine>Dense",
        ),
        (
            graph(("in", []), ("a", after("in")), ("b", after("in")), ("c", after("b"))),
            "layer in feeds layer a as well; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", after("a", "in"))),
            "layer c (Activation): it has 2 inputs; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", [*after("a"), *after("a")])),
            "layer c (Activation): it is applied more than once",
        ),
        (
            graph(("in", []), ("c", after("in", training=True))),
            "layer c (Activation): it is always in training mode",
        ),
        (graph(("in", []), ("a", after("x"))), "it reads from x, which is not a layer"),
        (graph(("in", []), ("a", []), ("c", after("in"))), "2 layers without input"),
        (graph(("in", []), ("a", after("in")), outputs=[["in", 0, 0]]), "are not a chain"),
        (graph(("in", []), ("a", 7)), "layer a (Activation): malformed"),
    ],
)
def test_refused_models(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, [], config=config)


def test_input_sizes_must_be_fixed(tmp_path: Path) -> None:
    assert "only the batch axis may vary" in refusal(tmp_path, sound(), shape=(None,))


def write_keras(path: Path, **members: bytes | None) -> Path:
    content = zipfile.ZipFile(io.BytesIO(gzip.decompress(PLAIN.read_bytes())))
    with zipfile.ZipFile(path, "w") as archive:
        for name in content.namelist():
            data = members.get(name.split(".")[0], content.read(name))
            if data is not None:
                archive.writestr(name, data)
    return path


PLAIN = FOLDER / "larq_plain.keras.gz"


def weights_file(change: Any) -> bytes:
    archive = zipfile.ZipFile(io.BytesIO(gzip.decompress(PLAIN.read_bytes())))
    buffer = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(buffer, "r+") as file:
        change(file)
    return buffer.getvalue()


def _rename(file: Any) -> None:
    file["layers/conv2d/vars"].attrs["name"] = "other"


def _drop(file: Any) -> None:
    del file["layers/conv2d"]


def _lose(file: Any) -> None:
    del file["layers/batch_normalization/vars/0"]


def _swap(file: Any) -> None:
    del file["layers/conv2d/vars/0"]
    file["layers/conv2d/vars"].create_group("0")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_rename, "layer first (Conv2D): group conv2d holds the weights of layer other"),
        (_drop, "layer first (Conv2D): its weights (group conv2d) are missing"),
        (_lose, "layer norm (BatchNormalization): 3 arrays; expected gamma, beta, moving_mean"),
        (_swap, "layer first (Conv2D): its kernel is missing"),
    ],
)
def test_weights_of_an_archive_that_do_not_fit(change: Any, expected: str, tmp_path: Path) -> None:
    path = write_keras(tmp_path / "net.keras", model=weights_file(change))
    with pytest.raises(FormatError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {expected}")


def _damaged(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / ("net.keras" if "keras" in kind else "net.h5")
    if kind == "text as h5":
        path.write_text("this is not a model")
    elif kind == "truncated h5":
        content = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
        path.write_bytes(content[: len(content) // 2])
    elif kind == "truncated keras":
        content = gzip.decompress(PLAIN.read_bytes())
        path.write_bytes(content[: len(content) // 2])
    elif kind == "keras without config":
        write_keras(path, config=None)
    elif kind == "keras with broken weights":
        write_keras(path, model=b"\x89HDF\r\n\x1a\n broken")
    elif kind == "keras with broken config":
        write_keras(path, config=b"{")
    elif kind == "keras with a list":
        write_keras(path, config=b"[]")
    elif kind == "weights only h5":
        with h5py.File(path, "w") as file:
            file.create_group("dense")
    return path


DAMAGE = {
    "text as h5": "not a readable HDF5 file",
    "truncated h5": "not a readable HDF5 file",
    "truncated keras": "not a readable .keras file",
    "keras without config": "config.json is missing in the archive",
    "keras with broken weights": "not a readable HDF5 file",
    "keras with broken config": "configuration:1: not valid JSON",
    "keras with a list": "configuration is not a JSON object",
    "weights only h5": "no attribute model_config",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    path = _damaged(tmp_path, kind)
    with pytest.raises(FormatError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert DAMAGE[kind] in str(caught.value)
    assert str(caught.value).isprintable()


def test_every_truncation_is_one_clear_error(tmp_path: Path) -> None:
    content = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
    path = tmp_path / "net.h5"
    for length in range(1, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError) as caught:
            load(path)
        assert str(caught.value).isprintable()


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


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"larq_dense.*bnncert\[larq\]"):
        load(FOLDER / "larq_dense.h5.gz")


def test_the_scores_do_not_depend_on_the_container(tmp_path: Path) -> None:
    plain = gzip.decompress((FOLDER / "larq_dense.h5.gz").read_bytes())
    # The content decides, whatever the file is called.
    (tmp_path / "model").write_bytes(plain)
    first = load(tmp_path / "model")
    assert first.content_hash == load(FOLDER / "larq_dense.h5.gz").content_hash
    points: npt.NDArray[np.float32] = inputs((16,))[:10]
    np.testing.assert_array_equal(
        first.evaluate(points), load(FOLDER / "larq_dense.h5.gz").evaluate(points)
    )


@pytest.mark.parametrize("error", [OverflowError, SystemError, ZeroDivisionError, MemoryError])
def test_whatever_h5py_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*arguments: Any) -> None:
        raise error("in the\nlibrary")

    path = tmp_path / "model.h5"
    path.write_bytes(gzip.decompress((FOLDER / "larq_functional.h5.gz").read_bytes()))
    for place in ("h5py.Dataset.__getitem__", "h5py.AttributeManager.get", "h5py.File.__init__"):
        with monkeypatch.context() as patched:
            patched.setattr(place, fail)
            with pytest.raises(FormatError, match=r"model\.h5: .*in the") as caught:
                load(path)
            assert "\n" not in str(caught.value)
