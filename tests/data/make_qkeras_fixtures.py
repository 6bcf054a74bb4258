"""Write models of QKeras and Keras 3 as JSON and weights, and what they compute.

Run where tensorflow, tf_keras and qkeras are installed, and where keras (3) and torch are::

    TF_USE_LEGACY_KERAS=1 python tests/data/make_qkeras_fixtures.py qkeras
    KERAS_BACKEND=torch python tests/data/make_qkeras_fixtures.py keras3
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from make_larq_fixtures import FOLDER, inputs


def qkeras_models() -> dict[str, Any]:
    """Return networks with the quantisers of QKeras, with weights and activations of few bits."""
    import qkeras as q
    from tf_keras import Sequential, layers

    plain = {"use_bias": False}
    dense = Sequential(
        [
            *(layers.Input((16,)), q.QDense(8, kernel_quantizer=q.binary(alpha=1), **plain)),
            *(layers.BatchNormalization(), q.QActivation(q.binary(alpha=1))),
            q.QDense(8, kernel_quantizer="ternary(alpha=1)", bias_quantizer="quantized_bits(4,1)"),
            q.QActivation("ternary"),
            q.QDense(8, kernel_quantizer=q.binary(), **plain),
            q.QActivation(q.quantized_bits(3, 1, 0, alpha=1)),
            q.QDense(3, kernel_quantizer=q.quantized_bits(4, 1, 1, alpha=1.0), **plain),
        ]
    )
    cut = "ternary(alpha=1,threshold=0.25)"
    images = Sequential(
        [
            *(layers.Input((8, 8, 1)), q.QConv2D(4, 3, kernel_quantizer="binary(alpha=1)")),
            *(layers.BatchNormalization(), q.QActivation("quantized_relu(2,1)")),
            *(layers.MaxPooling2D(), q.QConv2D(6, 2, kernel_quantizer=cut, **plain)),
            *(layers.BatchNormalization(), q.QActivation("binary"), layers.Flatten()),
            q.QDense(3, kernel_quantizer="binary(alpha=1)", **plain),
        ]
    )
    return {"qkeras_dense": dense, "qkeras_images": images}


def keras3_models() -> dict[str, Any]:
    """Return a network of plain layers with the activations of hls4ml."""
    import keras
    from keras import ops

    def ternary_tanh(x: Any) -> Any:
        return ops.where(x > 0.5, 1.0, ops.where(x <= -0.5, -1.0, 0.0))

    def binary_tanh(x: Any) -> Any:
        return ops.where(x >= 0, 1.0, -1.0)

    model = keras.Sequential(
        [
            *(keras.Input((16,)), keras.layers.Dense(8), keras.layers.BatchNormalization()),
            *(keras.layers.Activation(ternary_tanh), keras.layers.Dense(8, use_bias=False)),
            *(keras.layers.Activation(binary_tanh), keras.layers.Dense(3)),
        ]
    )
    return {"keras3_tanh": model}


def fill(model: Any, rng: np.random.Generator, is_stored: bool) -> None:
    """Give a model random weights; `is_stored` if the kernels are to be -1, 0 and 1 as stored."""
    for layer in model.layers:
        arrays = layer.get_weights()
        if "BatchNormalization" in type(layer).__name__:
            n = len(arrays[0])
            moments = (rng.normal(0, 1, n), rng.uniform(0.5, 3, n))
            layer.set_weights([rng.normal(1, 0.5, n), rng.normal(0, 0.3, n), *moments])
        elif arrays:
            kernel = rng.uniform(-1, 1, arrays[0].shape)
            kernel = np.rint(1.5 * kernel) if is_stored else kernel
            layer.set_weights([kernel, *(rng.uniform(-1, 1, a.shape) for a in arrays[1:])])


def main(kind: str) -> None:
    """Write all files of one kind."""
    rng = np.random.default_rng(4)
    scores = {}
    is_qkeras = kind == "qkeras"
    for name, model in (qkeras_models() if is_qkeras else keras3_models()).items():
        fill(model, rng, is_stored=not is_qkeras)
        scores[name] = np.asarray(model.predict(inputs(model.input_shape[1:]), verbose=0))
        ending = "_weights.h5" if is_qkeras else ".weights.h5"
        with tempfile.TemporaryDirectory() as folder:
            model.save_weights(str(Path(folder) / f"net{ending}"))
            content = (Path(folder) / f"net{ending}").read_bytes()
        for end, data in ((".json", model.to_json().encode()), (ending, content)):
            (FOLDER / f"{name}{end}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    np.savez_compressed(FOLDER / f"{kind}_scores.npz", **scores)


if __name__ == "__main__":
    main(sys.argv[1])
