"""Keras, Larq and QKeras model files, ``.h5`` and ``.keras``, read without TensorFlow.

A model is Sequential, or Functional without branches.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import CannotExecuteError, Execution, ModelDescription
from bnncert.model.formats.file_content import DEFAULT_LIMITS, ZIP_MAGIC, Limits
from bnncert.model.formats.keras.archive import KerasArchive, group_names
from bnncert.model.formats.keras.layers import apply_layer, roles_of
from bnncert.model.formats.keras.quantizers import check_package
from bnncert.model.formats.layer_chain import Chain, FileLayer

# -- the layers in order ------------------------------------------------------------------


@dataclass(frozen=True)
class ConfiguredLayer:
    """A layer with its options, and the group of a .keras file that has its weights."""

    layer: FileLayer
    options: dict[str, Any]
    group: str


@dataclass(frozen=True)
class KerasModel:
    """The layers in the order in which they are applied, and the shape of the input."""

    layers: tuple[ConfiguredLayer, ...]
    input_shape: tuple[int, ...]


def parse_model(config: dict[str, Any], source: str) -> KerasModel:
    """Read the configuration of a whole model."""
    kind = config.get("class_name")
    if kind not in ("Sequential", "Functional", "Model"):
        raise UnsupportedModelError(
            f"{source}: the model is of class {kind}; expected Sequential, or Functional"
        )
    body = config.get("config")
    # The oldest files have the list of layers itself.
    body = {"layers": body} if isinstance(body, list) else body
    entries = body.get("layers") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(entries, list) or not entries:
        raise FormatError(f"{source}: the model's configuration lists no layers")
    layers = [_configured(entry, source, number) for number, entry in enumerate(entries)]
    groups = group_names([layer.kind for layer, _ in layers])
    order = list(range(len(layers)))
    if kind != "Sequential":
        order = _chain(layers, entries, body, source)
    return KerasModel(
        tuple(ConfiguredLayer(*layers[k], group=groups[k]) for k in order),
        _input_shape(layers[order[0]][1], body, config, source),
    )


def _configured(entry: Any, source: str, number: int) -> tuple[FileLayer, dict[str, Any]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
        raise FormatError(f"{source}: layer {number} of the configuration has no class_name")
    options = entry.get("config")
    if not isinstance(options, dict):
        raise FormatError(f"{source}: layer {number} of the configuration has no config")
    kind = entry["class_name"].rpartition(">")[2]
    name = options.get("name", entry.get("name"))
    layer = FileLayer(source, str(number if name is None else name), kind)
    check_package({**entry, "registered_name": entry["class_name"]}, layer, "class")
    check_package(entry, layer, "class")
    _check_type(options.get("dtype"), layer)
    return layer, options


def _check_type(dtype: Any, layer: FileLayer) -> None:
    if isinstance(dtype, dict):
        inner = dtype.get("config")
        dtype = inner.get("name") if isinstance(inner, dict) else None
    if dtype not in (None, "float32"):
        raise layer.unsupported(f"it computes in {dtype}; expected float32")


def _chain(
    layers: list[tuple[FileLayer, dict[str, Any]]],
    entries: list[dict[str, Any]],
    body: dict[str, Any],
    source: str,
) -> list[int]:
    """Order the layers of a Functional model as its graph does."""
    number = {layer.name: k for k, (layer, _) in enumerate(layers)}
    follower: dict[str, int] = {}
    starts = []
    for k, (layer, _) in enumerate(layers):
        with layer.reading():
            before = _predecessor(layer, entries[k].get("inbound_nodes", []))
        if before is None:
            starts.append(k)
        elif before not in number:
            raise layer.broken(f"it reads from {before}, which is not a layer")
        elif before in follower:
            raise layer.unsupported(
                f"layer {before} feeds layer {layers[follower[before]][0].name} as well; branches "
                "and residual connections are not supported"
            )
        else:
            follower[before] = k
    if len(starts) != 1 or len(number) != len(layers):
        raise UnsupportedModelError(
            f"{source}: {len(starts)} layers without input; expected a chain of layers with one"
        )
    order = [starts[0]]
    while (name := layers[order[-1]][0].name) in follower:
        order.append(follower[name])
    ends = [end for end in _strings(body.get("output_layers")) if end in number]
    if len(order) != len(layers) or ends != [layers[order[-1]][0].name]:
        raise UnsupportedModelError(
            f"{source}: the layers are not a chain from one input to one output"
        )
    return order


def _predecessor(layer: FileLayer, nodes: Any) -> str | None:
    """Find the layer that this one reads from, None for the first."""
    if not nodes:
        return None
    if len(nodes) != 1:
        raise layer.unsupported("it is applied more than once; shared layers are not supported")
    node = nodes[0]
    if isinstance(node, dict):
        sources = list(_histories([node.get("args"), node.get("kwargs")]))
        options = [node.get("kwargs")]
    else:
        inputs = [node] if isinstance(node[0], str) else node
        sources = [entry[0] for entry in inputs]
        options = [entry[3] for entry in inputs if len(entry) > 3]
    if any(isinstance(chosen, dict) and chosen.get("training") for chosen in options):
        raise layer.unsupported("it is always in training mode")
    if len(sources) != 1:
        raise layer.unsupported(
            f"it has {len(sources)} inputs; branches and residual connections are not supported"
        )
    return str(sources[0])


def _histories(tree: Any) -> Iterator[str]:
    """Yield the layers whose outputs occur among the arguments of a call."""
    if isinstance(tree, dict):
        if tree.get("class_name") == "__keras_tensor__":
            yield tree["config"]["keras_history"][0]
            return
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from _histories(item)


def _strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from _strings(item)


def _input_shape(
    first: dict[str, Any], body: dict[str, Any], config: dict[str, Any], source: str
) -> tuple[int, ...]:
    built = config.get("build_config")
    for shape in (
        first.get("batch_input_shape"),
        first.get("batch_shape"),
        body.get("build_input_shape"),
        built.get("input_shape") if isinstance(built, dict) else None,
    ):
        if isinstance(shape, list) and len(shape) > 1:
            sizes = shape[1:]
            if not all(type(n) is int and n > 0 for n in sizes):
                raise UnsupportedModelError(
                    f"{source}: input shape {tuple(shape)}; only the batch axis may vary"
                )
            return tuple(sizes)
    raise FormatError(
        f"{source}: the file does not state the shape of the input; begin the model with an Input"
    )


# -- execution and reading ----------------------------------------------------------------

#: Packages that register layers of their own with Keras when they are imported.
_PACKAGES = ("larq", "qkeras")


def keras_execution(
    content: bytes, config: bytes | None, input_shape: tuple[int, ...]
) -> Execution:
    """Let Keras execute the bytes of a file; `config` describes one of weights only.

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


def read_keras(
    content: bytes, source: str, limits: Limits = DEFAULT_LIMITS, config: bytes | None = None
) -> ModelDescription:
    """Read a network from the bytes of a Keras file; `config` describes a file of weights only."""
    with KerasArchive(content, source, limits, config) as archive:
        model = parse_model(archive.config, source)
        chain = Chain(source, model.input_shape)
        for configured in model.layers:
            layer, options = configured.layer, configured.options
            with layer.reading():
                arrays = archive.arrays(layer, configured.group, roles_of(layer.kind, options))
                apply_layer(chain, layer, options, arrays)
        execution = keras_execution(content, config, model.input_shape)
        return replace(chain.description("keras"), execution=execution)
