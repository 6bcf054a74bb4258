"""Write the Keras and Larq models of this folder, and what TensorFlow computes with them.

Run where tensorflow, tf_keras and larq are installed (the tests themselves need none of them)::

    python tests/data/make_larq_fixtures.py

Each model is saved gzipped beside ``larq_scores.npz``, which has the scores (before softmax) of
:func:`inputs` by model.
"""

from __future__ import annotations

import gzip
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).resolve().parent
COUNT = 1000


def inputs(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return inputs in [-1, 1], multiples of 1/64, the same with every version of numpy."""
    size = COUNT * int(np.prod(shape))
    state = np.arange(1, size + 1, dtype=np.uint64)
    # The finaliser of MurmurHash3, on 32 bits.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = ((state ^ (state >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(2**32 - 1)
    steps = (state % np.uint64(129)).astype(np.float32) - 64
    return np.asarray(steps.reshape(COUNT, *shape) / 64, dtype=np.float32)


def dense(tf: Any, lq: Any) -> Any:
    """Return a Sequential model 16-8-8-3 with all signs of Larq, and a frozen layer."""
    k = tf.keras
    return k.Sequential(
        [
            lq.layers.QuantDense(8, kernel_quantizer="ste_tern", input_shape=(16,)),
            k.layers.BatchNormalization(scale=False),
            lq.layers.QuantDense(
                8,
                input_quantizer="ste_sign",
                kernel_quantizer=lq.quantizers.SteTern(threshold_value=0.2),
                kernel_constraint="weight_clip",
                use_bias=False,
            ),
            k.layers.BatchNormalization(center=False, epsilon=1e-2, trainable=False),
            k.layers.Dropout(0.2),
            lq.layers.QuantDense(
                8, input_quantizer="approx_sign", kernel_quantizer="swish_sign", activation=None
            ),
            k.layers.Activation("hard_tanh"),
            lq.quantizers.SteSign(),
            lq.layers.QuantDense(3, kernel_quantizer="approx_sign"),
            k.layers.Activation("softmax"),
        ]
    )


def images(tf: Any, lq: Any) -> Any:
    """Return a Sequential model on 8 x 8 images: padding with ones, pooling, depthwise."""
    k = tf.keras
    return k.Sequential(
        [
            k.layers.Input((8, 8, 1)),
            lq.layers.QuantConv2D(
                4, 3, padding="same", kernel_quantizer="ste_sign", use_bias=False
            ),
            k.layers.MaxPooling2D(3, strides=2, padding="same"),
            k.layers.BatchNormalization(),
            lq.layers.QuantConv2D(
                6,
                3,
                strides=2,
                padding="same",
                pad_values=1.0,
                input_quantizer="ste_sign",
                kernel_quantizer=lq.quantizers.SteTern(ternary_weight_networks=True),
            ),
            k.layers.BatchNormalization(axis=-1, scale=False),
            lq.layers.QuantDepthwiseConv2D(
                2,
                padding="same",
                pad_values=-1.0,
                depth_multiplier=2,
                input_quantizer="ste_sign",
                depthwise_quantizer="ste_sign",
            ),
            k.layers.BatchNormalization(),
            k.layers.Activation(lq.quantizers.SteSign()),
            k.layers.Flatten(),
            k.layers.Dense(3, activation="softmax"),
        ]
    )


def padded(tf: Any, lq: Any) -> Any:
    """Return a model that pools, normalises and flattens sums over a padding of ones."""
    k = tf.keras
    binary = {"padding": "same", "kernel_quantizer": "ste_sign", "use_bias": False}
    return k.Sequential(
        [
            k.layers.Input((8, 8, 1)),
            lq.layers.QuantConv2D(6, 3, pad_values=1.0, **binary),
            k.layers.MaxPooling2D(2),
            k.layers.BatchNormalization(),
            lq.layers.QuantConv2D(8, 3, pad_values=-1.0, input_quantizer="ste_sign", **binary),
            k.layers.MaxPooling2D(3, strides=2, padding="same"),
            k.layers.BatchNormalization(),
            k.layers.Flatten(),
            lq.layers.QuantDense(
                3, input_quantizer="ste_sign", kernel_quantizer="ste_sign", use_bias=False
            ),
        ]
    )


def functional(tf: Any, lq: Any) -> Any:
    """Return a Functional model: reshape, zero padding, separable and grouped convolution."""
    k = tf.keras
    entry = k.Input((48,))
    x = k.layers.Reshape((6, -1, 2))(entry)
    x = k.layers.ZeroPadding2D(((1, 0), (0, 2)))(x)
    x = lq.layers.QuantConv2D(
        4,
        (2, 3),
        groups=2,
        kernel_quantizer="ste_tern",
        activation=lq.quantizers.SteSign(),
        name="grouped",
    )(x)
    x = k.layers.MaxPooling2D((2, 1))(x)
    x = lq.layers.QuantSeparableConv2D(
        4,
        2,
        depthwise_quantizer="ste_sign",
        pointwise_quantizer="ste_tern",
        use_bias=True,
    )(x)
    x = k.layers.BatchNormalization(name="separated")(x)
    x = lq.layers.QuantConv2D(
        5, 1, dilation_rate=1, input_quantizer="ste_sign", kernel_quantizer="ste_sign"
    )(x)
    x = k.layers.Activation(lq.quantizers.SteSign())(x)
    x = k.layers.GlobalAveragePooling2D()(x)
    x = k.layers.Dense(3)(x)
    return k.Model(entry, k.layers.Softmax()(x))


def plain(keras: Any) -> Any:
    """Return a model of Keras 3, without Larq: its kernels are -1 and 1 already."""

    def ste_sign(x: Any) -> Any:
        return keras.ops.where(x >= 0, 1.0, -1.0)

    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, use_bias=False, name="first"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Activation(ste_sign),
            keras.layers.DepthwiseConv2D(3, use_bias=False, name="second"),
            keras.layers.BatchNormalization(scale=False),
            keras.layers.Activation(ste_sign),
            keras.layers.Flatten(),
            keras.layers.Dense(3, use_bias=False),
        ]
    )


def randomise(model: Any, rng: np.random.Generator, signs: bool) -> None:
    """Give every array random numbers: training is not what these tests are about."""
    for layer in model.layers:
        arrays = []
        for array, weight in zip(layer.get_weights(), layer.weights, strict=True):
            role = weight.name.rsplit("/", 1)[-1].split(":")[0]
            if "kernel" in role:
                numbers = rng.uniform(-0.5, 0.5, array.shape)
                if signs:
                    numbers = np.sign(numbers)
            elif role == "moving_variance":
                numbers = rng.uniform(0.2, 3.0, array.shape)
            else:
                numbers = rng.normal(0.0, 0.1 if role == "bias" else 0.7, array.shape)
            arrays.append(numbers.astype(np.float32))
        layer.set_weights(arrays)


def centre(model: Any) -> None:
    """Move the means of the maxima to where they are, so that the signs behind them change."""
    for number, layer in enumerate(model.layers):
        if type(layer).__name__ == "BatchNormalization":
            gamma, beta, mean, variance = layer.get_weights()
            before = type(model)(model.layers[:number])
            typical = np.median(before(inputs((8, 8, 1)), training=False), axis=(0, 1, 2))
            layer.set_weights([gamma, beta, mean * 0.5 + typical.astype(np.float32), variance])


def scores_of(keras: Any, model: Any) -> npt.NDArray[np.float32]:
    """Return what the model computes, before its softmax."""
    last = model.layers[-1]
    if type(last).__name__ in ("Softmax", "Activation"):
        model = keras.Model(model.inputs, last.input)
    elif getattr(last.activation, "__name__", "") == "softmax":
        last.activation = keras.activations.linear
        model = keras.Model(model.inputs, last(last.input))
    shape = tuple(model.inputs[0].shape[1:])
    return np.asarray(model(inputs(shape), training=False), dtype=np.float32)


def edges(lq: Any) -> dict[str, Any]:
    """Return weights on and beside thresholds, and what Larq's quantisers make of them."""
    thresholds = [np.float32(t) for t in (0.0, 0.05, 0.1, 0.2, 1.0)]
    near = [np.nextafter(t, np.float32(end)) for t in thresholds for end in (-2, 2)]
    # Without numbers that are not normal: these are refused.
    kept = [t for t in (*thresholds, *near) if t == 0 or abs(t) > 1e-30]
    weights = np.array([*kept, *(-t for t in kept)], dtype=np.float32).reshape(1, -1)
    made: dict[str, Any] = {"weights": weights}
    for t in ("0.0", "0.05", "0.1", "0.2", "1.0"):
        made[t] = lq.quantizers.SteTern(threshold_value=float(t))(weights).numpy()
    made["mean"] = lq.quantizers.SteTern(ternary_weight_networks=True)(weights).numpy()
    made["ste_sign"] = lq.quantizers.SteSign()(weights).numpy()
    return made


def main() -> None:
    """Write all files."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    # By name, because where the tests run none of them is installed.
    names = ("keras", "larq", "tensorflow")
    keras, larq, tensorflow = (importlib.import_module(name) for name in names)
    rng = np.random.default_rng(20)
    made = {
        "dense.h5": (tensorflow.keras, dense(tensorflow, larq)),
        "images.keras": (tensorflow.keras, images(tensorflow, larq)),
        "functional.h5": (tensorflow.keras, functional(tensorflow, larq)),
        "plain.keras": (keras, plain(keras)),
        "padded.h5": (tensorflow.keras, padded(tensorflow, larq)),
    }
    scores: dict[str, Any] = {}
    for name, (package, model) in made.items():
        randomise(model, rng, signs=package is keras)
        if name == "padded.h5":
            centre(model)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / name)
            content = (Path(folder) / name).read_bytes()
        (FOLDER / f"larq_{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        scores[name] = scores_of(package, model)
    np.savez_compressed(FOLDER / "larq_scores.npz", **scores)
    np.savez_compressed(FOLDER / "larq_edges.npz", **edges(larq))


if __name__ == "__main__":
    main()
