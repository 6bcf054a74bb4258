"""The layers of Keras and Larq, applied to a chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.formats.keras.model import ConfiguredLayer
from bnncert.formats.keras.quantizers import SIGN_CLASSES, Activation, activation_of, quantised
from bnncert.formats.layer_chain import Chain, ConvolutionGeometry, FileLayer

Arrays: TypeAlias = dict[str, npt.NDArray[np.float32]]
Handler: TypeAlias = Callable[[Chain, FileLayer, dict[str, Any], Arrays], None]

#: Keras has channels last, the operators have them first.
TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def roles_of(configured: ConfiguredLayer) -> list[str]:
    """Return the arrays that a layer has, in the order in which Keras creates them."""
    kind, options = configured.layer.kind, configured.options
    if kind == "BatchNormalization":
        flags = {"gamma": options.get("scale", True), "beta": options.get("center", True)}
        return [*(name for name, on in flags.items() if on), "moving_mean", "moving_variance"]
    kernels = _KERNELS.get(kind)
    if kernels is None:
        return []
    return [*kernels, *(["bias"] if options.get("use_bias", True) else [])]


def apply_layer(chain: Chain, configured: ConfiguredLayer, arrays: Arrays) -> None:
    """Apply one layer; raise if it is not part of a binary network."""
    layer, options = configured.layer, configured.options
    handler = HANDLERS.get(layer.kind)
    if handler is None:
        raise layer.unsupported("this kind of layer is not supported in a binary network")
    if options.get("data_format") == "channels_first":
        raise layer.unsupported("data_format channels_first; only channels_last is supported")
    handler(chain, layer, options, arrays)


# -- layers with weights ------------------------------------------------------------------


def _dense(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _activate(chain, layer, activation_of(options.get("input_quantizer"), layer, "input_quantizer"))
    kernel = quantised(arrays["kernel"], options.get("kernel_quantizer"), layer, "kernel_quantizer")
    units = options.get("units")
    if kernel.ndim != 2 or kernel.shape != (chain.shape[-1], units):
        raise layer.broken(
            f"kernel of shape {kernel.shape}; expected ({chain.shape[-1]}, {units}), inputs x units"
        )
    chain.dense(layer, kernel, arrays.get("bias"))
    _activate(chain, layer, activation_of(options.get("activation"), layer))


def _convolution(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _activate(chain, layer, activation_of(options.get("input_quantizer"), layer, "input_quantizer"))
    kernel = quantised(arrays["kernel"], options.get("kernel_quantizer"), layer, "kernel_quantizer")
    _check_kernel(layer, kernel, options, options.get("filters"))
    _convolve(
        chain,
        layer,
        options,
        kernel.transpose(3, 2, 0, 1),
        arrays.get("bias"),
        groups=int(options.get("groups", 1)),
    )
    _activate(chain, layer, activation_of(options.get("activation"), layer))


def _depthwise(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _activate(chain, layer, activation_of(options.get("input_quantizer"), layer, "input_quantizer"))
    _depthwise_part(chain, layer, options, arrays, arrays.get("bias"))
    _activate(chain, layer, activation_of(options.get("activation"), layer))


def _separable(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _activate(chain, layer, activation_of(options.get("input_quantizer"), layer, "input_quantizer"))
    _depthwise_part(chain, layer, options, arrays, None)
    what = "pointwise_quantizer"
    kernel = quantised(arrays["pointwise_kernel"], options.get(what), layer, what)
    _check_kernel(layer, kernel, {"kernel_size": [1, 1]}, options.get("filters"))
    _convolve(chain, layer, {}, kernel.transpose(3, 2, 0, 1), arrays.get("bias"))
    _activate(chain, layer, activation_of(options.get("activation"), layer))


def _depthwise_part(
    chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays, bias: Any
) -> None:
    what = "depthwise_quantizer"
    kernel = quantised(arrays["depthwise_kernel"], options.get(what), layer, what)
    multiplier = options.get("depth_multiplier", 1)
    _check_kernel(layer, kernel, options, multiplier)
    channels = kernel.shape[2]
    # Channel i yields the outputs i * multiplier and following.
    stacked = kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, *kernel.shape[:2])
    _convolve(chain, layer, options, stacked, bias, groups=channels)


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
    _check_image(chain, layer)
    same = _same(layer, options)
    fill = options.get("pad_values", 0.0)
    if isinstance(fill, bool) or not isinstance(fill, (int, float)):
        raise layer.unsupported(f"pad_values {fill!r}; expected one number")
    chain.transpose(TO_FIRST)
    chain.convolution(
        layer,
        kernel,
        bias,
        ConvolutionGeometry(
            strides=_pair(options.get("strides", [1, 1])),
            same=same,
            dilations=_pair(options.get("dilation_rate", [1, 1])),
            groups=groups,
            fill=float(np.float32(fill)) if same else 0.0,
        ),
    )
    chain.transpose(TO_LAST)


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


def _activate(chain: Chain, layer: FileLayer, what: Activation) -> None:
    if what == "larq sign":
        chain.sign(layer, "plus")
    elif what == "sign":
        chain.sign(layer, None)
    elif what == "hard_tanh":
        chain.clip(layer, -1.0, 1.0)
    elif what == "softmax":
        chain.softmax(layer)


def _activation(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _activate(chain, layer, activation_of(options.get("activation"), layer))


def _quantiser(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    chain.sign(layer, "plus")


def _softmax(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    chain.softmax(layer, int(options.get("axis", -1)))


def _nothing(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    """Do nothing: the layer has an effect only in training."""


# -- shapes and pooling -------------------------------------------------------------------


def _flatten(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    chain.reshape(layer, (-1,))


def _reshape(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    chain.reshape(layer, tuple(int(n) for n in options["target_shape"]))


def _zero_padding(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _check_image(chain, layer)
    (top, bottom), (left, right) = (_pair(sides) for sides in options["padding"])
    chain.transpose(TO_FIRST)
    chain.pad(layer, (top, left, bottom, right))
    chain.transpose(TO_LAST)


def _pooling(chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays) -> None:
    _check_image(chain, layer)
    kernel = _pair(options["pool_size"])
    strides = options.get("strides")
    geometry = {
        "strides": kernel if strides is None else _pair(strides),
        "auto_pad": "SAME_UPPER" if _same(layer, options) else None,
    }
    chain.transpose(TO_FIRST)
    if layer.kind.startswith("Max"):
        chain.max_pool(layer, kernel, **geometry)
    else:
        chain.average_pool(layer, kernel, **geometry)
    chain.transpose(TO_LAST)


def _global_pooling(
    chain: Chain, layer: FileLayer, options: dict[str, Any], arrays: Arrays
) -> None:
    _check_image(chain, layer)
    chain.transpose(TO_FIRST)
    if layer.kind.startswith("GlobalMax"):
        chain.global_max(layer)
    else:
        chain.global_average(layer)
    chain.transpose(TO_LAST)
    if not options.get("keepdims", False):
        chain.reshape(layer, (-1,))


def _check_image(chain: Chain, layer: FileLayer) -> None:
    if len(chain.shape) != 3:
        raise layer.broken(f"its input has shape {chain.shape}; expected (height, width, channels)")


def _same(layer: FileLayer, options: dict[str, Any]) -> bool:
    padding = options.get("padding", "valid")
    if padding not in ("valid", "same"):
        raise layer.unsupported(f"padding {padding!r}; expected valid or same")
    return bool(padding == "same")


def _pair(numbers: Sequence[Any]) -> tuple[int, int]:
    first, second = numbers
    if type(first) is not int or type(second) is not int:
        raise ValueError(f"{numbers!r} are not two integers")
    return first, second


#: The arrays of layers with kernels, before their bias.
_KERNELS = {
    "Dense": ("kernel",),
    "QuantDense": ("kernel",),
    "Conv2D": ("kernel",),
    "QuantConv2D": ("kernel",),
    "DepthwiseConv2D": ("depthwise_kernel",),
    "QuantDepthwiseConv2D": ("depthwise_kernel",),
    "SeparableConv2D": ("depthwise_kernel", "pointwise_kernel"),
    "QuantSeparableConv2D": ("depthwise_kernel", "pointwise_kernel"),
}

#: The function that applies each class of layer.
HANDLERS: dict[str, Handler] = {
    "InputLayer": _nothing,
    "Dropout": _nothing,
    "SpatialDropout2D": _nothing,
    "GaussianNoise": _nothing,
    "Dense": _dense,
    "QuantDense": _dense,
    "Conv2D": _convolution,
    "QuantConv2D": _convolution,
    "DepthwiseConv2D": _depthwise,
    "QuantDepthwiseConv2D": _depthwise,
    "SeparableConv2D": _separable,
    "QuantSeparableConv2D": _separable,
    "BatchNormalization": _normalisation,
    "Activation": _activation,
    **dict.fromkeys(SIGN_CLASSES, _quantiser),
    "Softmax": _softmax,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "ZeroPadding2D": _zero_padding,
    "MaxPooling2D": _pooling,
    "AveragePooling2D": _pooling,
    "GlobalMaxPooling2D": _global_pooling,
    "GlobalAveragePooling2D": _global_pooling,
}
