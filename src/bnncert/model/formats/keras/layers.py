"""The layers of Keras and Larq, applied to a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.model.formats.keras.quantizers import (
    SIGN_CLASSES,
    Kernel,
    activation_of,
    quantised,
    quantised_array,
    quantiser_of,
    step_function,
)
from bnncert.model.formats.layer_chain import Chain, ConvolutionGeometry, FileLayer, pair

Arrays: TypeAlias = dict[str, npt.NDArray[np.float32]]
Handler: TypeAlias = Callable[[Chain, FileLayer, dict[str, Any], Arrays], None]


def roles_of(kind: str, options: dict[str, Any]) -> list[str]:
    """List the arrays that a layer has, in the order in which Keras creates them."""
    if kind == "BatchNormalization":
        flags = {"gamma": options.get("scale", True), "beta": options.get("center", True)}
        return [*(name for name, on in flags.items() if on), "moving_mean", "moving_variance"]
    weighted = _weighted(kind)
    if weighted is None:
        return []
    return [*weighted[0], *(["bias"] if options.get("use_bias", True) else [])]


def apply_layer(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    """Apply one layer; raise if it is not part of a binary network."""
    handler = HANDLERS.get(layer.kind)
    weighted = _weighted(layer.kind)
    if handler is None and weighted is None:
        raise layer.unsupported("this kind of layer is not supported in a binary network")
    if options.get("data_format") == "channels_first":
        raise layer.unsupported("data_format channels_first; only channels_last is supported")
    if options.get("mask") is not None:
        # QKeras multiplies the kernel of a QConv2D with it.
        raise layer.unsupported("a mask of its kernel is not supported")
    if handler is not None:
        handler(chain, layer, options, arrays)
    elif weighted is not None:
        _activate(chain, layer, options.get("input_quantizer"), "input_quantizer")
        weighted[1](chain, layer, options, arrays)
        _activate(chain, layer, options.get("activation"), "activation")


# -- layers with weights ------------------------------------------------------------------


def _kernel(layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> Kernel:
    """Quantise the kernel of a layer of Keras, Larq or QKeras."""
    what = "kernel_quantizer"
    quantiser = quantiser_of(options.get(what), layer, what)
    if quantiser is not None:
        return quantised_array(arrays["kernel"], quantiser, is_kernel=True)
    return quantised(arrays["kernel"], options.get(what), layer, what)


def _bias(layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> Any:
    """Take the bias of a layer, quantised if it is one of QKeras; None without a bias."""
    what = "bias_quantizer"
    if "bias" not in arrays or options.get(what) is None:
        return arrays.get("bias")
    quantiser = quantiser_of(options[what], layer, what)
    if quantiser is None:
        return quantised(arrays["bias"], options[what], layer, what)
    return quantised_array(arrays["bias"], quantiser, is_kernel=False)


def _dense(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    kernel = _kernel(layer, options, arrays)
    units = options.get("units")
    if kernel.ndim != 2 or kernel.shape != (chain.shape[-1], units):
        raise layer.broken(
            f"kernel of shape {kernel.shape}; expected ({chain.shape[-1]}, {units}), inputs x units"
        )
    chain.dense(layer, kernel, _bias(layer, options, arrays))


def _convolution(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    kernel = _kernel(layer, options, arrays)
    _check_kernel(layer, kernel, options, options.get("filters"))
    groups = int(options.get("groups", 1))
    _convolve(
        chain, layer, options, kernel.transpose(3, 2, 0, 1), _bias(layer, options, arrays), groups
    )


def _depthwise(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    what = "depthwise_quantizer"
    kernel = quantised(arrays["depthwise_kernel"], options.get(what), layer, what)
    multiplier = options.get("depth_multiplier", 1)
    _check_kernel(layer, kernel, options, multiplier)
    channels = kernel.shape[2]
    # Channel i yields the outputs i * multiplier and following.
    stacked = kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, *kernel.shape[:2])
    _convolve(chain, layer, options, stacked, arrays.get("bias"), channels)


def _separable(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    bias = arrays.pop("bias", None)
    _depthwise(chain, layer, options, arrays)
    what = "pointwise_quantizer"
    kernel = quantised(arrays["pointwise_kernel"], options.get(what), layer, what)
    _check_kernel(layer, kernel, {"kernel_size": [1, 1]}, options.get("filters"))
    _convolve(chain, layer, {}, kernel.transpose(3, 2, 0, 1), bias)


def _check_kernel(
    layer: FileLayer, kernel: npt.NDArray[Any], options: dict[str, Any], last: Any
) -> None:
    size = tuple(options["kernel_size"])
    if kernel.ndim != 4 or kernel.shape[:2] != size or kernel.shape[3] != last:
        raise layer.broken(
            f"kernel of shape {kernel.shape}; expected {size} with {last} in the last axis"
        )


def _convolve(
    chain: Chain,
    layer: FileLayer,
    options: dict[str, Any],
    kernel: npt.NDArray[Any],
    bias: Any,
    groups: int = 1,
) -> None:
    with _channels_first(chain, layer):
        same = _same(layer, options)
        fill = options.get("pad_values", 0.0)
        if isinstance(fill, bool) or not isinstance(fill, (int, float)):
            raise layer.unsupported(f"pad_values {fill!r}; expected one number")
        geometry = ConvolutionGeometry(
            strides=pair(options.get("strides", [1, 1])),
            same=same,
            dilations=pair(options.get("dilation_rate", [1, 1])),
            groups=groups,
            fill=float(np.float32(fill)) if same else 0.0,
        )
        chain.convolution(layer, kernel, bias, geometry)


def _normalisation(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    axis = options.get("axis", -1)
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
        epsilon=float(np.float32(options.get("epsilon", 1e-3))),
        axis=axis,
    )


# -- activations --------------------------------------------------------------------------


def _activate(chain: Chain, layer: FileLayer, entry: Any, what: str) -> None:
    """Apply an activation, or the quantiser of an input, that the file names `what`."""
    steps = step_function(entry, layer, what)
    if steps is not None:
        chain.levels(layer, steps.thresholds, steps.strict, steps.low, steps.step)
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


def _zero_padding(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    with _channels_first(chain, layer):
        (top, bottom), (left, right) = (pair(list(sides)) for sides in options["padding"])
        chain.apply(layer, "Pad", np.array([0, 0, top, left, 0, 0, bottom, right]))


def _pooling(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    with _channels_first(chain, layer):
        kernel = pair(options["pool_size"])
        strides = options.get("strides")
        geometry = {
            "strides": kernel if strides is None else pair(strides),
            "auto_pad": "SAME_UPPER" if _same(layer, options) else None,
        }
        if layer.kind.startswith("Max"):
            chain.max_pool(layer, kernel, **geometry)
        else:
            chain.apply(layer, "AveragePool", kernel_shape=kernel, **geometry)


def _global_pooling(
    chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays
) -> None:
    with _channels_first(chain, layer):
        kind = "Max" if layer.kind.startswith("GlobalMax") else "Average"
        chain.apply(layer, f"Global{kind}Pool")
    if not options.get("keepdims", False):
        chain.reshape(layer, (-1,))


def _same(layer: FileLayer, options: dict[str, Any]) -> bool:
    padding = options.get("padding", "valid")
    if padding not in ("valid", "same"):
        raise layer.unsupported(f"padding {padding!r}; expected valid or same")
    return bool(padding == "same")


#: The layers with kernels, which Larq also has with the prefix Quant: their arrays before the bias,
#: and the function that applies them between the quantiser of the input and the activation.
_WEIGHTED: dict[str, tuple[tuple[str, ...], Handler]] = {
    "Dense": (("kernel",), _dense),
    "Conv2D": (("kernel",), _convolution),
    "DepthwiseConv2D": (("depthwise_kernel",), _depthwise),
    "SeparableConv2D": (("depthwise_kernel", "pointwise_kernel"), _separable),
}

#: The layers of QKeras that are read, and what they are without their quantisers.
_QKERAS = {"QDense": "Dense", "QConv2D": "Conv2D"}


def _weighted(kind: str) -> tuple[tuple[str, ...], Handler] | None:
    """Look up a layer with weights, of Keras, Larq or QKeras."""
    return _WEIGHTED.get(_QKERAS.get(kind, kind.removeprefix("Quant")))


#: The function that applies each other class of layer.
HANDLERS: dict[str, Handler] = {
    # These have an effect only in training.
    **dict.fromkeys(
        ("InputLayer", "Dropout", "SpatialDropout2D", "GaussianNoise"),
        lambda chain, layer, options, arrays: None,
    ),
    "BatchNormalization": _normalisation,
    **dict.fromkeys(
        ("Activation", "QActivation"),
        lambda chain, layer, options, arrays: _activate(
            chain, layer, options.get("activation"), "activation"
        ),
    ),
    **dict.fromkeys(SIGN_CLASSES, lambda chain, layer, options, arrays: chain.sign(layer, "plus")),
    "Softmax": lambda chain, layer, options, arrays: chain.apply(
        layer, "Softmax", axis=int(options.get("axis", -1))
    ),
    "Flatten": lambda chain, layer, options, arrays: chain.reshape(layer, (-1,)),
    "Reshape": lambda chain, layer, options, arrays: chain.reshape(
        layer, tuple(int(n) for n in options["target_shape"])
    ),
    "ZeroPadding2D": _zero_padding,
    **dict.fromkeys(("MaxPooling2D", "AveragePooling2D"), _pooling),
    **dict.fromkeys(("GlobalMaxPooling2D", "GlobalAveragePooling2D"), _global_pooling),
}
