"""Constant tensors, as the numbers and lists of integers that operators take from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError
from bnncert.model.formats.onnx.element_types import PLAIN_TYPES
from bnncert.model.formats.onnx.graph import OnnxNode, type_name

Tensor: TypeAlias = npt.NDArray[Any]


def exact_floats(array: Tensor, node: OnnxNode, what: str) -> FloatArray:
    """Return the numbers of a tensor as float64, where all of them are finite and fit."""
    try:
        with np.errstate(invalid="ignore"):
            floats: FloatArray = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise node.unsupported(f"{what} has type {array.dtype}; expected numbers") from error
    if not np.all(np.isfinite(floats)):
        raise node.unsupported(f"NaN or infinity in {what}")
    if array.dtype.kind in "iu" and np.any(np.abs(floats) >= 2.0**53):
        raise node.unsupported(f"integers larger than 2^53 in {what}")
    return floats


def integer_list(array: Tensor | None, node: OnnxNode, what: str) -> tuple[int, ...] | None:
    """Return a constant list of integers (axes, pads, a shape)."""
    if array is None:
        return None
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise FormatError(
            f"{node.place}: {what} has type {array.dtype} and shape {array.shape}; expected a list "
            "of integers"
        )
    return tuple(int(n) for n in array.reshape(-1))


def scalar(tensor: Tensor, node: OnnxNode, what: str, axes: int = 0) -> Any:
    """Return the only entry of a tensor with at most `axes` axes."""
    if tensor.size != 1 or tensor.ndim > axes:
        raise node.unsupported(f"{what} has shape {tensor.shape}; expected a single number")
    return tensor.reshape(-1)[0]


def target_type(node: OnnxNode) -> np.dtype[Any]:
    """Return the NumPy type to which a Cast converts."""
    code = node.integer("to", 0)
    if code not in PLAIN_TYPES:
        raise node.unsupported(f"a conversion to element type {type_name(code)}")
    target: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(code)
    return target


def clip_range(node: OnnxNode, operands: Sequence[Any], opset: int) -> tuple[Any, Any]:
    """Return the bounds of a Clip, None where there is no bound."""
    if opset < 11:
        largest = float(np.finfo(np.float32).max)
        return node.number("min", -largest), node.number("max", largest)
    low, high = (
        None if bound is None else scalar(bound, node, "a bound")
        for bound in [*operands[1:3], None, None][:2]
    )
    if any(bound is not None and np.isnan(bound) for bound in (low, high)):
        raise node.unsupported("a bound is not a number")
    return low, high
