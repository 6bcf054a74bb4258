"""Layers as PyTorch defines them, with their arrays, from models and from checkpoints.

Tensors are (channels, height, width); a layer's options have the names that PyTorch gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.errors import MissingExtraError
from bnncert.model.description import SignZero
from bnncert.model.formats.file_content import DEFAULT_LIMITS, too_many
from bnncert.model.formats.layer_chain import Chain, ConvolutionGeometry, FileLayer, pair

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Handler: TypeAlias = Callable[[Chain, FileLayer, Mapping[str, Any], Arrays], None]

#: The quantiser that does not change the weights.
AS_STORED = "as stored"


#: For each type of layer its options, the arrays it must have and those it may have.
LAYER_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("quantizer",), ("weight",), ("bias",)),
    "conv2d": (("quantizer", "stride", "padding", "dilation", "groups"), ("weight",), ("bias",)),
    "batchnorm": (("eps",), ("running_mean", "running_var"), ("weight", "bias")),
    "sign": (("zero",), (), ()),
    "hardtanh": (("min_val", "max_val"), (), ()),
    "maxpool2d": (("kernel_size", "stride", "padding", "dilation", "ceil_mode"), (), ()),
    "flatten": ((), (), ()),
    "identity": ((), (), ()),
    "dropout": ((), (), ()),
    "softmax": ((), (), ()),
}


def apply_layer(
    chain: Chain, layer: FileLayer, kind: str, options: Mapping[str, Any], arrays: Arrays
) -> None:
    """Apply a layer of one of the types above."""
    _HANDLERS[kind](chain, layer, options, arrays)


def tensor_array(tensor: Any, layer: FileLayer, what: str) -> npt.NDArray[Any]:
    """Convert a tensor to an array of its own type, which must be exact in float64."""
    try:
        array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError, AttributeError) as error:
        raise layer.unsupported(f"its {what} is not a plain tensor of numbers") from error
    # With strides of 0 a few bytes can represent any number of entries.
    if array.size > DEFAULT_LIMITS.matrix:
        limit = DEFAULT_LIMITS.matrix
        raise too_many(layer.place, f"its {what} has {array.size} entries", limit, "matrix")
    if array.dtype not in (np.float32, np.float64) and array.dtype.kind not in "iu":
        raise layer.unsupported(f"its {what} has type {array.dtype}; expected float32 or float64")
    return array


def import_torch(what: str) -> Any:
    """Import torch, which is an optional dependency."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            f"reading PyTorch {what} needs torch: pip install bnncert[train]"
        ) from error
    return torch


# -- quantisers ---------------------------------------------------------------------------


def quantised(weights: npt.NDArray[Any], quantizer: Any, layer: FileLayer) -> npt.NDArray[Any]:
    """Quantise the weights of a layer; `quantizer` is "sign", "ternary:T" or "as stored".

    Trainers quantise the weight zero, or a weight of exactly T, differently, so such weights raise
    an error.
    """
    if not isinstance(quantizer, str):
        raise layer.broken(
            f'quantizer {quantizer!r}; expected "sign", "ternary:T" or "{AS_STORED}"'
        )
    if quantizer == AS_STORED:
        return weights
    if not np.all(np.isfinite(weights)):
        raise layer.unsupported("NaN or infinity in its weights")
    name, _, threshold = quantizer.partition(":")
    magnitude = np.abs(weights.astype(np.float64))
    if name == "sign" and not threshold:
        _refuse(weights, magnitude < np.finfo(np.float32).tiny, "sign(0) is", layer)
        return np.where(weights > 0, 1, -1).astype(np.int8)
    limit = _threshold(threshold) if name == "ternary" else None
    if limit is None:
        raise layer.broken(
            f'quantizer {quantizer!r}; expected "sign", "ternary:T" with a number T > 0, or '
            f'"{AS_STORED}"'
        )
    # A trainer compares with T as a float32 or as a double.
    ends = sorted((float(np.float32(limit)), limit))
    near = (magnitude >= ends[0]) & (magnitude <= ends[1])
    _refuse(weights, near, f"weights of exactly {threshold} are", layer)
    return np.where(magnitude > limit, np.sign(weights), 0).astype(np.int8)


def _threshold(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 2.0**-100 < value < 2.0**100 else None


def _refuse(
    weights: npt.NDArray[Any], doubtful: npt.NDArray[np.bool_], what: str, layer: FileLayer
) -> None:
    places = np.argwhere(doubtful)
    if places.size:
        place = tuple(int(n) for n in places[0])
        raise layer.unsupported(
            f"weight {weights[place]:.9g} at {place}: {what} not the same in all trainers; store "
            f'the quantised weights and use "{AS_STORED}"'
        )


# -- layers -------------------------------------------------------------------------------


def _linear(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    weights = quantised(arrays["weight"], options.get("quantizer", AS_STORED), layer)
    if weights.ndim != 2 or weights.shape[1] != chain.shape[-1]:
        raise layer.broken(
            f"weight of shape {weights.shape} on {chain.shape[-1]} inputs (is a flatten missing?)"
        )
    chain.dense(layer, weights.T, arrays.get("bias"))


def _conv2d(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    kernel = quantised(arrays["weight"], options.get("quantizer", AS_STORED), layer)
    if kernel.ndim != 4:
        raise layer.broken(f"weight of shape {kernel.shape}; expected four axes")
    dilations = pair(options.get("dilation", 1))
    strides = pair(options.get("stride", 1))
    padding = options.get("padding", 0)
    if padding == "same" and strides != (1, 1):
        raise layer.broken("padding same with strides, which PyTorch refuses")
    pads = (0, 0, 0, 0)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, kernel.shape[2:], strict=True)]
        top, left = (n // 2 for n in total)
        pads = (top, left, total[0] - top, total[1] - left)
    elif padding != "valid":
        pads = pair(padding) * 2
    chain.convolution(
        layer,
        kernel,
        arrays.get("bias"),
        ConvolutionGeometry(
            strides=strides,
            pads=pads,
            dilations=dilations,
            groups=_integer(options.get("groups", 1)),
        ),
    )


def _batchnorm(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    epsilon = options.get("eps", 1e-5)
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise layer.broken(f"eps {epsilon!r}; expected a number")
    variance = arrays["running_var"]
    chain.normalise(
        layer,
        gamma=arrays.get("weight"),
        beta=arrays.get("bias"),
        mean=arrays["running_mean"],
        variance=variance,
        # PyTorch adds epsilon in the type of the variance.
        epsilon=float(variance.dtype.type(epsilon)) if variance.dtype.kind == "f" else epsilon,
        axis=1,
    )


def _sign(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    zero: SignZero | None = options.get("zero")
    if zero not in (None, "plus", "minus", "either"):
        raise layer.broken(f"zero {zero!r}; expected plus, minus or either")
    chain.sign(layer, zero)


def _hardtanh(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    low, high = options.get("min_val", -1.0), options.get("max_val", 1.0)
    chain.clip(layer, float(low), float(high))


def _maxpool2d(chain: Chain, layer: FileLayer, options: Mapping[str, Any], arrays: Arrays) -> None:
    kernel = pair(options["kernel_size"])
    stride = options.get("stride")
    chain.max_pool(
        layer,
        kernel,
        strides=kernel if stride is None else pair(stride),
        pads=pair(options.get("padding", 0)) * 2,
        dilations=pair(options.get("dilation", 1)),
        ceil_mode=int(bool(options.get("ceil_mode", False))),
    )


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not an integer")
    return value


_HANDLERS: dict[str, Handler] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "batchnorm": _batchnorm,
    "sign": _sign,
    "hardtanh": _hardtanh,
    "maxpool2d": _maxpool2d,
    "flatten": lambda chain, layer, options, arrays: chain.reshape(layer, (-1,)),
    # Dropout has an effect only in training.
    **dict.fromkeys(("identity", "dropout"), lambda chain, layer, options, arrays: None),
    "softmax": lambda chain, layer, options, arrays: chain.apply(layer, "Softmax"),
}
