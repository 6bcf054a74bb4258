"""Keras files, executed by Keras where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from pathlib import Path

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.model.description import CannotExecuteError, Execution
from bnncert.model.formats.archive import ZIP_MAGIC

#: Packages that register layers of their own with Keras when they are imported.
_PACKAGES = ("larq", "qkeras")


def keras_execution(
    content: bytes, config: bytes | None, input_shape: tuple[int, ...]
) -> Execution:
    """Return how Keras executes the bytes of a file; `config` describes one of weights only.

    The file was read before, so all its layers are known ones and none has code of its own.
    """

    def outputs(points: FloatArray) -> FloatArray:
        if importlib.util.find_spec("keras") is None:
            raise CannotExecuteError("is not installed")
        try:
            import keras

            for name in _PACKAGES:
                if importlib.util.find_spec(name) is not None:
                    importlib.import_module(name)
            with tempfile.TemporaryDirectory() as folder:
                zipped = content.startswith(ZIP_MAGIC)
                suffix = ".keras" if zipped else ".h5" if config is None else ".weights.h5"
                path = Path(folder) / f"model{suffix}"
                path.write_bytes(content)
                if config is None:
                    model = keras.models.load_model(path, compile=False)
                else:
                    model = keras.models.model_from_json(config.decode())
                    model.load_weights(path)
            batch = points.astype(np.float32).reshape(-1, *input_shape)
            return np.asarray(model.predict(batch, verbose=0), dtype=np.float64)
        except Exception as error:  # Keras and its backends raise many types
            raise CannotExecuteError("does not execute this model") from error

    # A sign that Keras files leave undefined at zero may be -1 or +1 there.
    return Execution("Keras", outputs, sign_of_zero_is_zero=False)
