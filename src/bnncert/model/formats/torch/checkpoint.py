"""Layers as PyTorch defines them, and checkpoints of them (.pt, .pth, .safetensors).

Tensors are (channels, height, width); a layer's options have the names that PyTorch gives them.

A checkpoint contains only weights.  A JSON file next to it lists the layers::

    {"input_shape": [784],
     "layers": [{"type": "linear", "weights": "fc1", "quantizer": "sign"},
                {"type": "batchnorm", "weights": "bn1", "eps": 1e-5},
                {"type": "sign", "zero": "plus"},
                {"type": "linear", "weights": "fc2"}]}

Checkpoints are read with ``weights_only=True``, so that no code in them is executed.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError, MissingExtraError, reason
from bnncert.model.description import ModelDescription, SignZero
from bnncert.model.formats.file_content import DEFAULT_LIMITS, parse_json, too_many
from bnncert.model.formats.layer_chain import Chain, FileLayer, LayerHandler, pair
from bnncert.model.formats.weight_arrays import bound_array

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


def _weight(layer: FileLayer) -> npt.NDArray[Any]:
    return quantised(layer.arrays["weight"], layer.options.get("quantizer", AS_STORED), layer)


def _linear(chain: Chain, layer: FileLayer) -> None:
    weights = _weight(layer)
    if weights.ndim != 2 or weights.shape[1] != chain.shape[-1]:
        raise layer.broken(
            f"weight of shape {weights.shape} on {chain.shape[-1]} inputs (is a flatten missing?)"
        )
    chain.dense(layer, weights.T, layer.arrays.get("bias"))


def _conv2d(chain: Chain, layer: FileLayer) -> None:
    kernel, options = _weight(layer), layer.options
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
        layer.arrays.get("bias"),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=_integer(options.get("groups", 1)),
    )


def _batchnorm(chain: Chain, layer: FileLayer) -> None:
    arrays, epsilon = layer.arrays, layer.options.get("eps", 1e-5)
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


def _sign(chain: Chain, layer: FileLayer) -> None:
    zero: SignZero | None = layer.options.get("zero")
    if zero not in (None, "plus", "minus", "either"):
        raise layer.broken(f"zero {zero!r}; expected plus, minus or either")
    chain.sign(layer, zero)


def _hardtanh(chain: Chain, layer: FileLayer) -> None:
    low, high = (layer.options.get(key, end) for key, end in (("min_val", -1.0), ("max_val", 1.0)))
    chain.clip(layer, float(low), float(high))


def _maxpool2d(chain: Chain, layer: FileLayer) -> None:
    options = layer.options
    kernel, stride = pair(options["kernel_size"]), options.get("stride")
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


#: The function that applies each type of layer.
HANDLERS: dict[str, LayerHandler] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "batchnorm": _batchnorm,
    "sign": _sign,
    "hardtanh": _hardtanh,
    "maxpool2d": _maxpool2d,
    "flatten": lambda chain, layer: chain.reshape(layer, (-1,)),
    # Dropout has an effect only in training.
    **dict.fromkeys(("identity", "dropout"), lambda chain, layer: None),
    "softmax": lambda chain, layer: chain.apply(layer, "Softmax"),
}


# -- .safetensors files -------------------------------------------------------------------

#: Types of numbers that bnncert can use, by the names in the header.
_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}


def read_safetensors(content: bytes, source: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of a file by name."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise FormatError(f"{source}: not a .safetensors file, or truncated")
    header = parse_json(content[8 : 8 + length], f"{source}: the header")
    if not isinstance(header, dict):
        raise FormatError(f"{source}: the header is not a JSON object")
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    body = memoryview(content)[8 + length :]
    arrays = {}
    used = 0
    for name, entry in entries:
        try:
            kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in _TYPES:
                raise ValueError(f"type {kind}; expected {', '.join(_TYPES)}")
            if not 0 <= begin <= end <= len(body):
                raise ValueError("its data lie outside the file")
            used += end - begin
            if used > len(body):
                # Otherwise many tensors with the same bytes could exhaust the memory.
                raise ValueError("its data overlap with those of another tensor")
            arrays[name] = np.frombuffer(body[begin:end], dtype=_TYPES[kind]).reshape(shape).copy()
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{source}: tensor {name}: malformed ({error})") from error
    return arrays


# -- checkpoints and their layers ---------------------------------------------------------

#: Entries of a checkpoint under which trainers keep the state of the model.
_STATE_KEYS = ("state_dict", "model_state_dict", "model")

#: An entry of batch normalisation that inference does not use.
_UNUSED = "num_batches_tracked"


def read_checkpoint(
    content: bytes, source: str, layers: bytes, layers_source: str
) -> ModelDescription:
    """Read a network from a checkpoint and the description of its layers."""
    tree = _parsed(layers, layers_source)
    if source.endswith(".safetensors"):
        arrays: Mapping[str, Any] = read_safetensors(content, source)
    else:
        arrays = _state(content, source)
    used: set[str] = set()
    described = [
        _layer(entry, number, arrays, used, source, layers_source)
        for number, entry in enumerate(_list(tree, "layers", layers_source))
    ]
    spare = sorted(key for key in set(arrays) - used if not key.endswith(_UNUSED))
    if spare:
        raise FormatError(
            f"{layers_source}: no layer uses {spare[0]} of {source} "
            f"({len(spare)} such arrays); every weight must belong to a layer"
        )
    lo, hi = (
        bound_array(tree[key], f"{layers_source}: {key}") if key in tree else None
        for key in ("input_lo", "input_hi")
    )
    chain = Chain(source, _input_shape(tree, layers_source))
    for layer in described:
        with layer.reading():
            HANDLERS[layer.kind](chain, layer)
    return chain.description("torch", lo, hi)


def _parsed(content: bytes, source: str) -> dict[str, Any]:
    tree = parse_json(content, source)
    if not isinstance(tree, dict):
        raise FormatError(f"{source}: expected a JSON object with input_shape and layers")
    known = ("input_shape", "layers", "input_lo", "input_hi")
    for key in tree:
        if key not in known:
            raise FormatError(f"{source}: unknown key {key}; expected {', '.join(known)}")
    return tree


def _list(tree: dict[str, Any], key: str, source: str) -> list[Any]:
    value = tree.get(key)
    if not isinstance(value, list) or not value:
        raise FormatError(f"{source}: {key} is missing or not a list")
    return value


def _input_shape(tree: dict[str, Any], source: str) -> tuple[int, ...]:
    shape = _list(tree, "input_shape", source)
    if not all(type(n) is int and n > 0 for n in shape):
        raise FormatError(f"{source}: input_shape {shape}; expected positive integers, no batch")
    return tuple(shape)


def _layer(
    entry: Any,
    number: int,
    arrays: Mapping[str, Any],
    used: set[str],
    source: str,
    layers_source: str,
) -> FileLayer:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in LAYER_TYPES:
        raise FormatError(
            f"{layers_source}: layer {number} has type {kind!r}; expected {', '.join(LAYER_TYPES)}"
        )
    options, needed, optional = LAYER_TYPES[kind]
    prefix = entry.get("weights")
    if (prefix is not None) != bool(needed) or not isinstance(prefix, str | None):
        wanted = '"weights", a name in the checkpoint' if needed else "no weights"
        raise FormatError(f"{layers_source}: layer {number} ({kind}): expected {wanted}")
    name = str(number) if prefix is None else prefix
    for key in entry:
        # A misspelt option "quantizer" must not be ignored: the weights would stay latent.
        if key not in ("type", "weights", *options):
            raise FormatError(
                f"{layers_source}: layer {number} ({kind}): unknown option {key}; "
                f"expected {', '.join(options) or 'none'}"
            )
    layer = FileLayer(source, name, kind)
    found = {}
    for role in (*needed, *optional):
        key = f"{prefix}.{role}"
        if key in arrays:
            used.add(key)
            value = arrays[key]
            is_array = isinstance(value, np.ndarray)
            found[role] = value if is_array else tensor_array(value, layer, role)
        elif role in needed:
            raise layer.broken(f"the checkpoint has no {key}")
    return layer.having({key: entry[key] for key in options if key in entry}, found)


def _state(content: bytes, source: str) -> dict[str, Any]:
    torch = import_torch("checkpoints")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FormatError(
            f"{source}: has objects other than tensors, or is broken; save model.state_dict()"
        ) from error
    except Exception as error:  # torch raises many types on broken files
        raise FormatError(f"{source}: not a readable checkpoint ({reason(error)})") from error
    for key in _STATE_KEYS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
            break
    if not isinstance(state, dict):
        raise FormatError(f"{source}: expected a state dict, tensors by name; save state_dict()")
    tensors = {str(key): value for key, value in state.items() if torch.is_tensor(value)}
    if len(tensors) != len(state):
        other = next(key for key, value in state.items() if not torch.is_tensor(value))
        raise FormatError(f"{source}: {other} is not a tensor; save model.state_dict()")
    return tensors
