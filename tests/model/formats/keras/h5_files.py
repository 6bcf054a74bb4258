"""Keras files that are written by hand, in the layout of Keras 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.model.loading import load
from bnncert.model.network import Network

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")

Layers = list[tuple[str, dict[str, Any], dict[str, Any]]]


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


def changed(number: int, **options: Any) -> Layers:
    layers = sound()
    layers[number][1].update(options)
    return layers
