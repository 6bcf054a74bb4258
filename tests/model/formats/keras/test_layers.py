"""Keras layers: padding, pooling, normalisation, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")
from tests.model.formats.keras.h5_files import Layers, changed, dense, read, refusal, sound  # noqa: E402


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
            "not of Keras, Larq or QKeras",
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
            "only a sign or a quantiser is supported",
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
