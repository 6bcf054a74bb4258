"""Operators on constants, evaluated in NumPy with the types that the file gives its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from bnncert.arrays import FloatArray
from bnncert.model.formats.onnx.graph import LARGEST_CONSTANT, OnnxNode, tensor_array
from bnncert.model.formats.onnx.quantisers import CONSTANT_QUANTISERS
from bnncert.model.formats.onnx.shapes import (
    axes_of,
    axis_of,
    new_shape,
    permutation,
    reduction_axes,
    shape_of,
)
from bnncert.model.formats.onnx.value import Tensor, clip_range, integer_list, scalar, target_type

Fold: TypeAlias = Callable[[OnnxNode, Sequence[Any]], Any]


def bipolar(array: Tensor, scale: Tensor) -> Tensor:
    """Quantise a constant as BipolarQuant: +scale where it is >= 0, else -scale."""
    return np.where(array >= 0, scale, -scale)


def fold(node: OnnxNode, operands: Sequence[Tensor | None]) -> Tensor:
    """Evaluate a node all of whose inputs are constant."""
    operation = FOLDS.get(node.op) or CONSTANT_QUANTISERS.get(node.op)
    if operation is None:
        raise node.unsupported("this operator is not supported, not even on constants")
    with np.errstate(all="ignore"):
        result = np.asarray(operation(node, operands))
    if result.size > LARGEST_CONSTANT:
        raise node.unsupported(f"a constant with {result.size} entries is too large")
    if result.dtype.kind == "f" and np.any(np.isnan(result)):
        # Runtimes give different results for a maximum, a sign or an integer of NaN.
        raise node.unsupported("its result has an entry that is not a number")
    return result


def _constant(node: OnnxNode, operands: Sequence[Any]) -> Tensor:
    if len(node.attributes) != 1:
        raise node.broken(f"{len(node.attributes)} values; expected one")
    for name, kind in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in node.attributes:
            return np.array(onnx.helper.get_attribute_value(node.attributes[name]), dtype=kind)
    if "value" not in node.attributes:
        raise node.unsupported("a constant that is not a tensor of numbers")
    return tensor_array(node.attributes["value"].t, node.place)


def _filled(node: OnnxNode, operands: Sequence[Any]) -> Tensor:
    shape = _shape(node, operands[0])
    if "value" in node.attributes:
        value = tensor_array(node.attributes["value"].t, node.place)
        return np.full(shape, scalar(value, node, "its value", 1), dtype=value.dtype)
    return np.zeros(shape, dtype=np.float32)


def _shape(node: OnnxNode, operand: Any) -> tuple[int, ...]:
    return _room(node, integer_list(operand, node, "the shape") or ())


def _room(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse a shape of which a constant is too large."""
    size = math.prod(abs(n) for n in shape)
    if size > LARGEST_CONSTANT:
        raise node.unsupported(f"a constant with {size} entries is too large")
    return shape


def _computed(node: OnnxNode, function: Any, *arrays: Tensor) -> Any:
    """Apply a function; integers are computed in float64, and the result must fit their type."""
    if arrays[0].dtype.kind == "f":
        return function(*arrays)
    exact = function(*(array.astype(np.float64) for array in arrays))
    return _fitting(node, exact, arrays[0].dtype)


def _divide(node: OnnxNode, a: Tensor, b: Tensor) -> Any:
    if a.dtype.kind == "f":
        return a / b
    if np.any(b == 0):
        raise node.unsupported("an integer is divided by zero")
    # ONNX divides integers towards zero, numpy towards minus infinity.
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _power(node: OnnxNode, base: Tensor, exponent: Tensor) -> Any:
    if base.dtype.kind != "f" and (exponent.dtype.kind == "f" or np.any(exponent < 0)):
        raise node.unsupported("an integer to the power of a negative or real number")
    power = np.power(base.astype(np.float64), exponent.astype(np.float64))
    return _fitting(node, power, base.dtype)


def _fitting(node: OnnxNode, exact: FloatArray, kind: np.dtype[Any]) -> Tensor:
    """Convert to a type; raise for integers outside of its range or of the exact float64 range."""
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        low, high = max(limits.min, -(2**53) + 1), min(limits.max, 2**53 - 1)
        if not np.all((exact >= low) & (exact <= high)):
            raise node.unsupported(f"a result does not fit {kind}")
    return exact.astype(kind)


def _cast(node: OnnxNode, operands: Sequence[Any]) -> Tensor:
    data, target = operands[0], target_type(node)
    if target.kind in "iu" and data.dtype != target:
        # A conversion out of the range of the type is undefined; 64-bit limits are not floats.
        limits = np.iinfo(target)
        if data.dtype.kind == "f":
            fits = (data >= float(limits.min)) & (data < float(limits.max // 2 + 1) * 2)
        else:
            fits = np.array(
                data.size == 0 or (int(data.min()) >= limits.min and int(data.max()) <= limits.max)
            )
        if not np.all(fits):
            raise node.unsupported(f"an entry does not fit {target}")
    return np.asarray(data.astype(target))


def _slice(node: OnnxNode, operands: Sequence[Any]) -> Tensor:
    data = operands[0]
    if node.opset < 10:
        starts, ends, axes = (node.integers(key) for key in ("starts", "ends", "axes"))
        steps: tuple[int, ...] | None = None
    else:
        padded = [*operands[1:5], None, None]
        starts, ends, axes, steps = (
            integer_list(padded[k], node, key)
            for k, key in enumerate(("starts", "ends", "axes", "steps"))
        )
    if starts is None or ends is None:
        raise node.broken("starts or ends are missing")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.broken("starts, ends, axes and steps do not fit each other")
    for k, axis in enumerate(axes_of(node, axes, data.ndim)):
        data = np.take(data, _range(data.shape[axis], starts[k], ends[k], steps[k]), axis=axis)
    return np.asarray(data)


def _range(size: int, start: int, end: int, step: int) -> npt.NDArray[np.int64]:
    """Select the entries of an axis as Slice does.

    Starts and ends outside of the axis are clamped, as ONNX defines it and Python does not.
    """
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return np.array(range(start, end, step), dtype=np.int64)


def _reduce(function: Any) -> Fold:
    def combine(node: OnnxNode, operands: Sequence[Any]) -> Any:
        data = operands[0]
        axes = reduction_axes(node, operands, data.ndim)
        kept = node.integer("keepdims", 1) != 0
        if function in (np.mean, _length) and data.dtype.kind != "f":
            raise node.unsupported("a mean or a length of integers")
        return _computed(node, partial(function, axis=axes, keepdims=kept), data)

    return combine


def _length(array: Tensor, **where: Any) -> Any:
    return np.sqrt(np.sum(np.square(array), **where))


def _clip(node: OnnxNode, operands: Sequence[Any]) -> Any:
    result = operands[0]
    low, high = clip_range(node, operands)
    # The order matters: if low > high, the result is high.
    if low is not None:
        result = np.maximum(result, np.asarray(low, dtype=result.dtype))
    if high is not None:
        result = np.minimum(result, np.asarray(high, dtype=result.dtype))
    return result


def _broadcast(function: Callable[..., Any]) -> Fold:
    """Fold inputs that are broadcast to one shape; the function takes the node, too."""

    def combine(node: OnnxNode, operands: Sequence[Any]) -> Any:
        _room(node, np.broadcast_shapes(*(operand.shape for operand in operands)))
        return function(node, *operands)

    return combine


def _logical(function: Any) -> Fold:
    """Fold inputs of one shape by a function whose result cannot overflow."""
    return _broadcast(lambda node, *operands: function(*operands))


def _arithmetic(function: Any) -> Fold:
    return _broadcast(lambda node, *operands: _computed(node, function, *operands))


def _variadic(function: Any) -> Fold:

    def combine(node: OnnxNode, operands: Sequence[Any]) -> Any:
        shapes = [operand.shape for operand in operands]
        if node.opset < 8 and len(set(shapes)) > 1:
            raise node.unsupported("operator set 7 has no broadcasting for this operator")
        _room(node, np.broadcast_shapes(*shapes))
        if any(operand.dtype.kind == "f" and np.any(np.isnan(operand)) for operand in operands):
            raise node.unsupported("an input has an entry that is not a number")
        return reduce(function, operands)

    return combine


def _matmul(node: OnnxNode, operands: Sequence[Any]) -> Any:
    left, right = operands
    if not left.ndim or not right.ndim:
        raise node.broken("a factor is a single number")
    rows, columns = (left.shape[-2:-1] or (1,)), (right.shape[-1:] if right.ndim > 1 else (1,))
    _room(node, (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), *rows, *columns))
    return _computed(node, np.matmul, left, right)


def _unary(function: Any) -> Fold:
    return lambda node, operands: function(operands[0])


def _in_double(function: Any) -> Fold:
    """Fold in float64, and round to the type of the input."""
    return _unary(lambda a: function(a.astype(np.float64)).astype(a.dtype))


def _leaky(node: OnnxNode, array: Tensor) -> Tensor:
    return np.where(array < 0, array.dtype.type(node.number("alpha", 0.01)) * array, array)


def _hard_sigmoid(node: OnnxNode, array: Tensor) -> Tensor:
    one = array.dtype.type
    scaled = one(node.number("alpha", 0.2)) * array + one(node.number("beta", 0.5))
    return np.asarray(np.clip(scaled, one(0), one(1)))


def _signed(function: Any) -> Fold:
    """Fold one input by a function whose result may not fit its type: -(-128) in int8."""
    return lambda node, operands: _computed(node, function, operands[0])


def _gather(node: OnnxNode, operands: Sequence[Any]) -> Any:
    data, indices = operands
    axis = axis_of(node, node.integer("axis", 0), data.ndim)
    _room(node, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    return np.take(data, indices, axis=axis)


def _expand(node: OnnxNode, operands: Sequence[Any]) -> Any:
    shape = np.broadcast_shapes(operands[0].shape, _shape(node, operands[1]))
    return np.broadcast_to(operands[0], _shape(node, np.array(shape, dtype=np.int64))).copy()


#: The operators that are supported on constants.
FOLDS: dict[str, Fold] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Identity": _unary(lambda a: a),
    "Shape": lambda node, operands: shape_of(node, operands[0].shape),
    "Size": _unary(lambda a: np.array(a.size, dtype=np.int64)),
    "Neg": _signed(np.negative),
    "Abs": _signed(np.abs),
    "Relu": _unary(lambda a: np.maximum(a, a.dtype.type(0))),
    "LeakyRelu": lambda node, operands: _leaky(node, operands[0]),
    "Sqrt": _unary(np.sqrt),
    "Reciprocal": _unary(lambda a: (1 / a).astype(a.dtype)),
    "Exp": _in_double(np.exp),
    "Log": _in_double(np.log),
    "Tanh": _in_double(np.tanh),
    "Sigmoid": _in_double(lambda a: 1 / (1 + np.exp(-a))),
    "HardSigmoid": lambda node, operands: _hard_sigmoid(node, operands[0]),
    "Sign": _unary(np.sign),
    "Not": _unary(np.logical_not),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _broadcast(_divide),
    "Pow": _broadcast(_power),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "MatMul": _matmul,
    "Equal": _logical(np.equal),
    "Greater": _logical(np.greater),
    "GreaterOrEqual": _logical(np.greater_equal),
    "Less": _logical(np.less),
    "LessOrEqual": _logical(np.less_equal),
    "And": _logical(np.logical_and),
    "Or": _logical(np.logical_or),
    "Xor": _logical(np.logical_xor),
    "BipolarQuant": _logical(bipolar),
    "Where": _logical(np.where),
    "Cast": _cast,
    "Gather": _gather,
    "Concat": lambda node, operands: np.concatenate(
        operands, axis=axis_of(node, node.integer("axis", 0), operands[0].ndim)
    ),
    "Slice": _slice,
    "Transpose": lambda node, operands: np.transpose(
        operands[0], permutation(node, operands[0].ndim)
    ),
    **dict.fromkeys(
        ("Reshape", "Flatten", "Squeeze", "Unsqueeze"),
        lambda node, operands: operands[0].reshape(new_shape(node, operands, operands[0].shape)),
    ),
    "Expand": _expand,
    "Clip": _clip,
    "ReduceSum": _reduce(np.sum),
    "ReduceMean": _reduce(np.mean),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceL1": _reduce(lambda array, **where: np.sum(np.abs(array), **where)),
    "ReduceL2": _reduce(_length),
}
