"""Operators on constants, evaluated in numpy with the types that the file gives its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from bnncert.errors import FormatError
from bnncert.formats.description import FloatArray
from bnncert.formats.onnx_graph import LARGEST_CONSTANT, Node, tensor_array

Tensor: TypeAlias = npt.NDArray[Any]
Fold: TypeAlias = Callable[[Node, Sequence[Any], int], Any]


def exact_floats(array: Tensor, node: Node, what: str) -> FloatArray:
    """Return the numbers of a tensor as float64, where all of them are finite and fit."""
    try:
        with np.errstate(invalid="ignore"):
            floats: FloatArray = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise node.unsupported(f"{what} has type {array.dtype}; expected numbers") from error
    if not np.all(np.isfinite(floats)):
        raise node.unsupported(f"NaN or infinity in {what}")
    if array.dtype.kind in "iu" and np.any(np.abs(floats) >= 2.0**53):
        raise node.unsupported(f"integers beyond 2^53 in {what}")
    return floats


def integer_list(array: Tensor | None, node: Node, what: str) -> tuple[int, ...] | None:
    """Return a constant list of integers (axes, pads, a shape)."""
    if array is None:
        return None
    if array.dtype.kind not in "iu":
        raise FormatError(f"{node.place}: {what} has type {array.dtype}; expected integers")
    return tuple(int(n) for n in array.reshape(-1))


def bipolar(array: Tensor, scale: Tensor) -> Tensor:
    """Return +scale where `array` >= 0 and -scale elsewhere: BipolarQuant of a constant."""
    return np.where(array >= 0, scale, -scale)


def target_type(node: Node) -> Any:
    """Return the numpy type that a Cast asks for."""
    code = node.integer("to", 0)
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(code)
    except (KeyError, ValueError) as error:
        raise node.unsupported(f"unknown element type {code}") from error


def fold(node: Node, operands: Sequence[Tensor | None], opset: int) -> Tensor:
    """Evaluate a node all of whose inputs are constant."""
    operation = FOLDS.get(node.op)
    if operation is None:
        raise node.unsupported("this operator is not supported, not even on constants")
    if operation is not _constant and any(operand is None for operand in operands[:1]):
        raise FormatError(f"{node.place}: its first input is missing")
    with np.errstate(all="ignore"):
        result = np.asarray(operation(node, operands, opset))
    if result.size > LARGEST_CONSTANT:
        raise node.unsupported(f"a constant with {result.size} entries is too large")
    return result


def _constant(node: Node, operands: Sequence[Any], opset: int) -> Tensor:
    for name, kind in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in node.attributes:
            return np.array(onnx.helper.get_attribute_value(node.attributes[name]), dtype=kind)
    if "value" not in node.attributes or not node.attributes["value"].HasField("t"):
        raise node.unsupported("a constant that is not a tensor of numbers")
    return tensor_array(node.attributes["value"].t, node.place)


def _filled(node: Node, operands: Sequence[Any], opset: int) -> Tensor:
    shape = _shape(node, operands[0])
    if "value" in node.attributes:
        value = tensor_array(node.attributes["value"].t, node.place).reshape(-1)
        return np.full(shape, value[0], dtype=value.dtype)
    return np.zeros(shape, dtype=np.float32)


def _shape(node: Node, operand: Any) -> tuple[int, ...]:
    shape = integer_list(operand, node, "the shape") or ()
    size = 1
    for n in shape:
        size *= abs(n)
    if size > LARGEST_CONSTANT:
        raise node.unsupported(f"a constant with {size} entries is too large")
    return shape


def _axes(node: Node, operands: Sequence[Any], since: int, opset: int) -> tuple[int, ...] | None:
    """Return axes given as an attribute, or from opset `since` on as the second input."""
    if opset < since:
        return node.integers("axes")
    return integer_list(operands[1] if len(operands) > 1 else None, node, "axes")


def squeezed_shape(
    node: Node, operands: Sequence[Any], shape: tuple[int, ...], opset: int
) -> tuple[int, ...]:
    """Return the shape after Squeeze or Unsqueeze."""
    axes = _axes(node, operands, 13, opset)
    if node.op == "Squeeze":
        drop = (
            {axis for axis, n in enumerate(shape) if n == 1}
            if axes is None
            else {axis % max(1, len(shape)) for axis in axes}
        )
        if any(shape[axis] != 1 for axis in drop):
            raise FormatError(f"{node.place}: axes {axes} of shape {shape} are not all 1")
        return tuple(n for axis, n in enumerate(shape) if axis not in drop)
    rank = len(shape) + len(axes or ())
    new = {axis % rank for axis in axes or ()}
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(rank))


def reshaped_shape(node: Node, target: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape after Reshape to `target` (0 copies an axis, -1 is what is left)."""
    size = int(np.prod(shape, dtype=np.int64))
    keeps_zero = node.integer("allowzero", 0) != 0
    result = [
        shape[axis] if n == 0 and not keeps_zero and axis < len(shape) else n
        for axis, n in enumerate(target)
    ]
    if result.count(-1) == 1:
        rest = int(np.prod([n for n in result if n != -1], dtype=np.int64))
        if rest > 0 and size % rest == 0:
            result[result.index(-1)] = size // rest
    if any(n < 0 for n in result) or int(np.prod(result, dtype=np.int64)) != size:
        raise FormatError(f"{node.place}: cannot reshape {shape} to {target}")
    return tuple(result)


def reduction_axes(node: Node, operands: Sequence[Any], rank: int, opset: int) -> tuple[int, ...]:
    """Return the axes that a reduction runs over, from 0 to rank - 1."""
    axes = _axes(node, operands, 13 if node.op == "ReduceSum" else 18, opset)
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes}))


def _divide(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind in "iu":
        # ONNX divides integers towards zero, numpy towards minus infinity.
        return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return a / b


def _slice(node: Node, operands: Sequence[Any], opset: int) -> Tensor:
    data = operands[0]
    if opset < 10:
        starts, ends, axes = (node.integers(key) for key in ("starts", "ends", "axes"))
        steps: tuple[int, ...] | None = None
    else:
        padded = [*operands[1:5], None, None, None, None]
        starts, ends, axes, steps = (
            integer_list(padded[k], node, key)
            for k, key in enumerate(("starts", "ends", "axes", "steps"))
        )
    if starts is None or ends is None:
        raise FormatError(f"{node.place}: starts or ends are missing")
    window = [slice(None)] * data.ndim
    for k, axis in enumerate(axes if axes is not None else range(len(starts))):
        step = steps[k] if steps is not None else 1
        end: int | None = ends[k]
        if step < 0 and ends[k] < -data.shape[axis]:
            end = None
        window[axis] = slice(starts[k], end, step)
    return np.asarray(data[tuple(window)])


def _reduce(function: Any) -> Fold:
    def reduce(node: Node, operands: Sequence[Any], opset: int) -> Any:
        axes = reduction_axes(node, operands, operands[0].ndim, opset)
        kept = node.integer("keepdims", 1) != 0
        return function(operands[0], axis=axes, keepdims=kept).astype(operands[0].dtype)

    return reduce


def _transpose(node: Node, operands: Sequence[Any], opset: int) -> Any:
    return np.transpose(operands[0], node.integers("perm"))


def _flatten(node: Node, operands: Sequence[Any], opset: int) -> Any:
    return operands[0].reshape(flattened_shape(node, operands[0].shape))


def flattened_shape(node: Node, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape after Flatten."""
    axis = node.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        raise FormatError(f"{node.place}: axis {axis} of a tensor with shape {shape}")
    return (
        int(np.prod(shape[:axis], dtype=np.int64)),
        int(np.prod(shape[axis:], dtype=np.int64)),
    )


def _clip(node: Node, operands: Sequence[Any], opset: int) -> Any:
    low, high = clip_range(node, operands, opset)
    return np.clip(operands[0], low, high).astype(operands[0].dtype)


def clip_range(node: Node, operands: Sequence[Any], opset: int) -> tuple[float, float]:
    """Return the bounds of a Clip."""
    if opset < 11:
        return node.number("min", -np.inf), node.number("max", np.inf)
    bounds = [*operands[1:3], None, None]
    return (
        -np.inf if bounds[0] is None else float(bounds[0].reshape(-1)[0]),
        np.inf if bounds[1] is None else float(bounds[1].reshape(-1)[0]),
    )


def _binary(function: Any) -> Fold:
    return lambda node, operands, opset: function(operands[0], operands[1])


def _unary(function: Any) -> Fold:
    return lambda node, operands, opset: function(operands[0])


def _expand(node: Node, operands: Sequence[Any], opset: int) -> Any:
    shape = np.broadcast_shapes(operands[0].shape, _shape(node, operands[1]))
    return np.broadcast_to(operands[0], _shape(node, np.array(shape, dtype=np.int64))).copy()


#: What can be done with constants, by operator.
FOLDS: dict[str, Fold] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Identity": _unary(lambda a: a),
    "Shape": lambda node, operands, opset: shape_of(node, operands[0].shape),
    "Size": _unary(lambda a: np.array(a.size, dtype=np.int64)),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt),
    "Reciprocal": _unary(lambda a: (1 / a).astype(a.dtype)),
    "Exp": _unary(np.exp),
    "Sign": _unary(np.sign),
    "Not": _unary(np.logical_not),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_divide),
    "Pow": _binary(lambda a, b: np.power(a, b).astype(a.dtype)),
    "Max": _binary(np.maximum),
    "Min": _binary(np.minimum),
    "MatMul": _binary(np.matmul),
    "Equal": _binary(np.equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "BipolarQuant": _binary(bipolar),
    "Where": lambda node, operands, opset: np.where(*operands[:3]),
    "Cast": lambda node, operands, opset: operands[0].astype(target_type(node)),
    "Gather": lambda node, operands, opset: np.take(
        operands[0], operands[1], axis=node.integer("axis", 0)
    ),
    "Concat": lambda node, operands, opset: np.concatenate(operands, axis=node.integer("axis", 0)),
    "Slice": _slice,
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Reshape": lambda node, operands, opset: operands[0].reshape(
        reshaped_shape(node, integer_list(operands[1], node, "the shape") or (), operands[0].shape)
    ),
    "Squeeze": lambda node, operands, opset: operands[0].reshape(
        squeezed_shape(node, operands, operands[0].shape, opset)
    ),
    "Unsqueeze": lambda node, operands, opset: operands[0].reshape(
        squeezed_shape(node, operands, operands[0].shape, opset)
    ),
    "Expand": _expand,
    "Clip": _clip,
    "ReduceSum": _reduce(np.sum),
    "ReduceMean": _reduce(np.mean),
}


def shape_of(node: Node, shape: tuple[int, ...]) -> Tensor:
    """Return what Shape gives for a tensor of this shape."""
    rank = len(shape)
    start, end = node.integer("start", 0), node.integer("end", rank)
    return np.array(shape[slice(start, end)], dtype=np.int64)
