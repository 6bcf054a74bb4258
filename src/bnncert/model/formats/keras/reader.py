"""Keras, Larq and QKeras model files, ``.h5`` and ``.keras``, read without TensorFlow.

A model is Sequential, or Functional without branches; its layers are applied to a chain.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import CannotExecuteError, Execution, ModelDescription
from bnncert.model.formats.file_content import DEFAULT_LIMITS, ZIP_MAGIC, Limits
from bnncert.model.formats.keras.archive import KerasArchive, group_names
from bnncert.model.formats.keras.quantizers import (
    SIGN_CLASSES,
    Kernel,
    activation_of,
    check_package,
    quantised,
    quantised_array,
    quantiser_of,
    step_function,
)
from bnncert.model.formats.layer_chain import Chain, FileLayer, LayerHandler, pair


def roles_of(layer: FileLayer) -> list[str]:
    """List the arrays that a layer has, in the order in which Keras creates them."""
    options = layer.options
    if layer.kind == "BatchNormalization":
        flags = {"gamma": options.get("scale", True), "beta": options.get("center", True)}
        return [*(name for name, on in flags.items() if on), "moving_mean", "moving_variance"]
    weighted = _weighted(layer.kind)
    if weighted is None:
        return []
    return [*weighted[0], *(["bias"] if options.get("use_bias", True) else [])]


def apply_layer(chain: Chain, layer: FileLayer) -> None:
    """Apply one layer; raise if it is not part of a binary network."""
    handler, options = HANDLERS.get(layer.kind), layer.options
    weighted = _weighted(layer.kind)
    if handler is None and weighted is None:
        raise layer.unsupported("this kind of layer is not supported in a binary network")
    if options.get("data_format") == "channels_first":
        raise layer.unsupported("data_format channels_first; only channels_last is supported")
    if options.get("mask") is not None:
        # QKeras multiplies the kernel of a QConv2D with it.
        raise layer.unsupported("a mask of its kernel is not supported")
    if handler is not None:
        handler(chain, layer)
    elif weighted is not None:
        _activate(chain, layer, "input_quantizer")
        weighted[1](chain, layer)
        _activate(chain, layer, "activation")


# -- layers with weights ------------------------------------------------------------------


def _kernel(layer: FileLayer) -> Kernel:
    """Quantise the kernel of a layer of Keras, Larq or QKeras."""
    what = "kernel_quantizer"
    quantiser = quantiser_of(layer.options.get(what), layer, what)
    if quantiser is not None:
        return quantised_array(layer.arrays["kernel"], quantiser, is_kernel=True)
    return _quantised(layer, "kernel", what)


def _quantised(layer: FileLayer, role: str, what: str) -> Kernel:
    """Quantise an array of a layer by the quantiser of Keras or Larq that is its option `what`."""
    return quantised(layer.arrays[role], layer.options.get(what), layer, what)


def _bias(layer: FileLayer) -> Any:
    """Take the bias of a layer, quantised if it is one of QKeras; None without a bias."""
    what = "bias_quantizer"
    if "bias" not in layer.arrays or layer.options.get(what) is None:
        return layer.arrays.get("bias")
    quantiser = quantiser_of(layer.options[what], layer, what)
    if quantiser is None:
        return _quantised(layer, "bias", what)
    return quantised_array(layer.arrays["bias"], quantiser, is_kernel=False)


def _dense(chain: Chain, layer: FileLayer) -> None:
    kernel, units = _kernel(layer), layer.options.get("units")
    if kernel.ndim != 2 or kernel.shape != (chain.shape[-1], units):
        raise layer.broken(
            f"kernel of shape {kernel.shape}; expected ({chain.shape[-1]}, {units}), inputs x units"
        )
    chain.dense(layer, kernel, _bias(layer))


def _convolution(chain: Chain, layer: FileLayer) -> None:
    kernel, options = _kernel(layer), layer.options
    _check_kernel(layer, kernel, options.get("filters"))
    groups = int(options.get("groups", 1))
    _convolve(chain, layer, kernel.transpose(3, 2, 0, 1), _bias(layer), groups)


def _depthwise(chain: Chain, layer: FileLayer) -> None:
    kernel = _quantised(layer, "depthwise_kernel", "depthwise_quantizer")
    multiplier = layer.options.get("depth_multiplier", 1)
    _check_kernel(layer, kernel, multiplier)
    channels = kernel.shape[2]
    # Channel i yields the outputs i * multiplier and following.
    stacked = kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, *kernel.shape[:2])
    _convolve(chain, layer, stacked, layer.arrays.get("bias"), channels)


def _separable(chain: Chain, layer: FileLayer) -> None:
    without = {role: array for role, array in layer.arrays.items() if role != "bias"}
    _depthwise(chain, layer.having(layer.options, without))
    kernel = _quantised(layer, "pointwise_kernel", "pointwise_quantizer")
    second = layer.having({"kernel_size": [1, 1]}, {})
    _check_kernel(second, kernel, layer.options.get("filters"))
    _convolve(chain, second, kernel.transpose(3, 2, 0, 1), layer.arrays.get("bias"))


def _check_kernel(layer: FileLayer, kernel: npt.NDArray[Any], last: Any) -> None:
    size = tuple(layer.options["kernel_size"])
    if kernel.ndim != 4 or kernel.shape[:2] != size or kernel.shape[3] != last:
        raise layer.broken(
            f"kernel of shape {kernel.shape}; expected {size} with {last} in the last axis"
        )


def _convolve(
    chain: Chain, layer: FileLayer, kernel: npt.NDArray[Any], bias: Any, groups: int = 1
) -> None:
    options = layer.options
    with _channels_first(chain, layer):
        same = _same(layer)
        fill = options.get("pad_values", 0.0)
        if isinstance(fill, bool) or not isinstance(fill, (int, float)):
            raise layer.unsupported(f"pad_values {fill!r}; expected one number")
        chain.convolution(
            layer,
            kernel,
            bias,
            strides=pair(options.get("strides", [1, 1])),
            dilations=pair(options.get("dilation_rate", [1, 1])),
            auto_pad="SAME_UPPER" if same else None,
            groups=groups,
            fill=float(np.float32(fill)) if same else 0.0,
        )


def _normalisation(chain: Chain, layer: FileLayer) -> None:
    arrays, axis = layer.arrays, layer.options.get("axis", -1)
    if isinstance(axis, list):
        if len(axis) != 1:
            raise layer.unsupported(f"statistics along the axes {axis}; expected one axis")
        axis = axis[0]
    rank = len(chain.value.shape)
    if type(axis) is not int or axis % rank == 0 or not -rank < axis < rank:
        raise layer.broken(f"axis {axis!r} of a tensor of rank {rank}")
    chain.normalise(
        layer,
        gamma=arrays.get("gamma"),
        beta=arrays.get("beta"),
        mean=arrays["moving_mean"],
        variance=arrays["moving_variance"],
        # TensorFlow uses epsilon in float32.
        epsilon=float(np.float32(layer.options.get("epsilon", 1e-3))),
        axis=axis,
    )


# -- activations --------------------------------------------------------------------------


def _activate(chain: Chain, layer: FileLayer, what: str) -> None:
    """Apply an activation, or the quantiser of an input, that is the option `what` of a layer."""
    entry = layer.options.get(what)
    steps = step_function(entry, layer, what)
    if steps is not None:
        chain.levels(layer, *steps)
        return
    name = activation_of(entry, layer, what)
    if name == "larq sign":
        chain.sign(layer, "plus")
    elif name == "sign":
        chain.sign(layer, None)
    elif name == "hard_tanh":
        chain.clip(layer, -1.0, 1.0)
    elif name == "softmax":
        chain.apply(layer, "Softmax")


# -- shapes and pooling -------------------------------------------------------------------


@contextmanager
def _channels_first(chain: Chain, layer: FileLayer) -> Iterator[None]:
    """Bring an image to the order (channels, height, width) of the operators, and back."""
    if len(chain.shape) != 3:
        raise layer.broken(f"its input has shape {chain.shape}; expected (height, width, channels)")
    chain.transpose((0, 3, 1, 2))
    yield
    chain.transpose((0, 2, 3, 1))


def _zero_padding(chain: Chain, layer: FileLayer) -> None:
    with _channels_first(chain, layer):
        (top, bottom), (left, right) = (pair(list(sides)) for sides in layer.options["padding"])
        chain.apply(layer, "Pad", np.array([0, 0, top, left, 0, 0, bottom, right]))


def _pooling(chain: Chain, layer: FileLayer) -> None:
    with _channels_first(chain, layer):
        kernel, strides = pair(layer.options["pool_size"]), layer.options.get("strides")
        geometry = {
            "strides": kernel if strides is None else pair(strides),
            "auto_pad": "SAME_UPPER" if _same(layer) else None,
        }
        if layer.kind.startswith("Max"):
            chain.max_pool(layer, kernel, **geometry)
        else:
            chain.apply(layer, "AveragePool", kernel_shape=kernel, **geometry)


def _global_pooling(chain: Chain, layer: FileLayer) -> None:
    with _channels_first(chain, layer):
        kind = "Max" if layer.kind.startswith("GlobalMax") else "Average"
        chain.apply(layer, f"Global{kind}Pool")
    if not layer.options.get("keepdims", False):
        chain.reshape(layer, (-1,))


def _same(layer: FileLayer) -> bool:
    padding = layer.options.get("padding", "valid")
    if padding not in ("valid", "same"):
        raise layer.unsupported(f"padding {padding!r}; expected valid or same")
    return bool(padding == "same")


#: The layers with kernels, which Larq also has with the prefix Quant: their arrays before the bias,
#: and the function that applies them between the quantiser of the input and the activation.
_WEIGHTED: dict[str, tuple[tuple[str, ...], LayerHandler]] = {
    "Dense": (("kernel",), _dense),
    "Conv2D": (("kernel",), _convolution),
    "DepthwiseConv2D": (("depthwise_kernel",), _depthwise),
    "SeparableConv2D": (("depthwise_kernel", "pointwise_kernel"), _separable),
}

#: The layers of QKeras that are read, and what they are without their quantisers.
_QKERAS = {"QDense": "Dense", "QConv2D": "Conv2D"}


def _weighted(kind: str) -> tuple[tuple[str, ...], LayerHandler] | None:
    """Look up a layer with weights, of Keras, Larq or QKeras."""
    return _WEIGHTED.get(_QKERAS.get(kind, kind.removeprefix("Quant")))


#: The function that applies each other class of layer.
HANDLERS: dict[str, LayerHandler] = {
    # These have an effect only in training.
    **dict.fromkeys(
        ("InputLayer", "Dropout", "SpatialDropout2D", "GaussianNoise"), lambda chain, layer: None
    ),
    "BatchNormalization": _normalisation,
    **dict.fromkeys(
        ("Activation", "QActivation"),
        lambda chain, layer: _activate(chain, layer, "activation"),
    ),
    **dict.fromkeys(SIGN_CLASSES, lambda chain, layer: chain.sign(layer, "plus")),
    "Softmax": lambda chain, layer: chain.apply(
        layer, "Softmax", axis=int(layer.options.get("axis", -1))
    ),
    "Flatten": lambda chain, layer: chain.reshape(layer, (-1,)),
    "Reshape": lambda chain, layer: chain.reshape(
        layer, tuple(int(n) for n in layer.options["target_shape"])
    ),
    "ZeroPadding2D": _zero_padding,
    **dict.fromkeys(("MaxPooling2D", "AveragePooling2D"), _pooling),
    **dict.fromkeys(("GlobalMaxPooling2D", "GlobalAveragePooling2D"), _global_pooling),
}


# -- the layers in order ------------------------------------------------------------------


def parse_model(
    config: dict[str, Any], source: str
) -> tuple[list[tuple[FileLayer, str]], tuple[int, ...]]:
    """Read the layers in the order in which they are applied, and the shape of the input.

    With each layer comes the group of a .keras file that has its weights.
    """
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
    groups = group_names([layer.kind for layer in layers])
    order = list(range(len(layers)))
    if kind != "Sequential":
        order = _chain(layers, entries, body, source)
    shape = _input_shape(layers[order[0]].options, body, config, source)
    return [(layers[k], groups[k]) for k in order], shape


def _configured(entry: Any, source: str, number: int) -> FileLayer:
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
    return layer.having(options, {})


def _check_type(dtype: Any, layer: FileLayer) -> None:
    if isinstance(dtype, dict):
        inner = dtype.get("config")
        dtype = inner.get("name") if isinstance(inner, dict) else None
    if dtype not in (None, "float32"):
        raise layer.unsupported(f"it computes in {dtype}; expected float32")


def _chain(
    layers: list[FileLayer], entries: list[dict[str, Any]], body: dict[str, Any], source: str
) -> list[int]:
    """Order the layers of a Functional model as its graph does."""
    number = {layer.name: k for k, layer in enumerate(layers)}
    follower: dict[str, int] = {}
    starts = []
    for k, layer in enumerate(layers):
        with layer.reading():
            before = _predecessor(layer, entries[k].get("inbound_nodes", []))
        if before is None:
            starts.append(k)
        elif before not in number:
            raise layer.broken(f"it reads from {before}, which is not a layer")
        elif before in follower:
            raise layer.unsupported(
                f"layer {before} feeds layer {layers[follower[before]].name} as well; branches "
                "and residual connections are not supported"
            )
        else:
            follower[before] = k
    if len(starts) != 1 or len(number) != len(layers):
        raise UnsupportedModelError(
            f"{source}: {len(starts)} layers without input; expected a chain of layers with one"
        )
    order = [starts[0]]
    while (name := layers[order[-1]].name) in follower:
        order.append(follower[name])
    ends = [end for end in _strings(body.get("output_layers")) if end in number]
    if len(order) != len(layers) or ends != [layers[order[-1]].name]:
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
    first: Mapping[str, Any], body: dict[str, Any], config: dict[str, Any], source: str
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
        layers, input_shape = parse_model(archive.config, source)
        chain = Chain(source, input_shape)
        for layer, group in layers:
            with layer.reading():
                arrays = archive.arrays(layer, group, roles_of(layer))
                apply_layer(chain, layer.having(layer.options, arrays))
        execution = keras_execution(content, config, input_shape)
        return replace(chain.description("keras"), execution=execution)
