"""Axes and shapes: the results of Reshape, Squeeze, Transpose, Flatten and the reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bnncert.errors import FormatError
from bnncert.model.formats.onnx.constants import Tensor, integer_list
from bnncert.model.formats.onnx.graph import OnnxNode


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """Return an axis, which may count from the end, as a number from 0 to rank - 1."""
    if not -rank <= axis < rank:
        raise FormatError(f"{node.place}: axis {axis} of a tensor with {rank} axes")
    return axis % rank


def axes_of(node: OnnxNode, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return different axes as numbers from 0 to rank - 1."""
    numbers = tuple(axis_of(node, axis, rank) for axis in axes)
    if len(set(numbers)) != len(numbers):
        raise FormatError(f"{node.place}: an axis occurs twice in {tuple(axes)}")
    return numbers


def _axes(
    node: OnnxNode, operands: Sequence[Any], since: int, opset: int
) -> tuple[int, ...] | None:
    """Return axes given as an attribute, or from opset `since` on as the second input."""
    if opset < since:
        return node.integers("axes")
    return integer_list(operands[1] if len(operands) > 1 else None, node, "axes")


def new_shape(
    node: OnnxNode, operands: Sequence[Any], shape: tuple[int, ...], opset: int
) -> tuple[int, ...]:
    """Return the shape after Reshape, Flatten, Squeeze or Unsqueeze."""
    if node.op == "Reshape":
        target = integer_list(operands[1], node, "the new shape")
        return _reshaped(node, target or (), shape)
    if node.op == "Flatten":
        return _flattened(node, shape, opset)
    return _squeezed(node, operands, shape, opset)


def _refuse_negative(node: OnnxNode, axis: int, opset: int) -> None:
    """Raise for an axis from the end in operator sets that do not define it."""
    if axis < 0 and opset < 11:
        raise node.unsupported(f"axis {axis}; operator set {opset} has no negative axes here")


def _squeezed(
    node: OnnxNode, operands: Sequence[Any], shape: tuple[int, ...], opset: int
) -> tuple[int, ...]:
    """Return the shape after Squeeze or Unsqueeze."""
    axes = _axes(node, operands, 13, opset)
    if axes is not None and not axes:
        # Runtimes take an empty list for no axes or for all of them.
        raise node.unsupported("its list of axes is empty")
    if axes is not None:
        _refuse_negative(node, min(axes), opset)
    if node.op == "Squeeze":
        drop = (
            [axis for axis, n in enumerate(shape) if n == 1]
            if axes is None
            else axes_of(node, axes, len(shape))
        )
        if any(shape[axis] != 1 for axis in drop):
            raise FormatError(f"{node.place}: axes {axes} of shape {shape} are not all 1")
        return tuple(n for axis, n in enumerate(shape) if axis not in drop)
    if axes is None:
        raise FormatError(f"{node.place}: its list of axes is missing")
    new = axes_of(node, axes, len(shape) + len(axes))
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(len(shape) + len(axes)))


def _reshaped(node: OnnxNode, target: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape after Reshape to `target` (0 copies an axis, -1 is computed)."""
    size = math.prod(shape)
    keeps_zero = node.integer("allowzero", 0) != 0
    result = [
        shape[axis] if n == 0 and not keeps_zero and axis < len(shape) else n
        for axis, n in enumerate(target)
    ]
    if result.count(-1) == 1:
        rest = math.prod([n for n in result if n != -1])
        if rest > 0 and size % rest == 0:
            result[result.index(-1)] = size // rest
    if any(n < 0 for n in result) or math.prod(result) != size:
        raise FormatError(f"{node.place}: cannot reshape {shape} to {target}")
    return tuple(result)


def reduction_axes(
    node: OnnxNode, operands: Sequence[Any], rank: int, opset: int
) -> tuple[int, ...]:
    """Return the axes that a reduction runs over, from 0 to rank - 1."""
    axes = _axes(node, operands, 13 if node.op == "ReduceSum" else 18, opset)
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axes_of(node, axes, rank)))


def permutation(node: OnnxNode, rank: int) -> tuple[int, ...]:
    """Return the order of the axes after Transpose."""
    order = node.integers("perm")
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise FormatError(f"{node.place}: {order} is not an order of {rank} axes")
    return order


def _flattened(node: OnnxNode, shape: tuple[int, ...], opset: int) -> tuple[int, int]:
    """Return the shape after Flatten."""
    axis = node.integer("axis", 1)
    _refuse_negative(node, axis, opset)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):  # The rank itself is allowed here.
        raise FormatError(f"{node.place}: axis {axis} of a tensor with shape {shape}")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def shape_of(node: OnnxNode, shape: tuple[int, ...]) -> Tensor:
    """Return the result of Shape for a tensor of this shape."""
    rank = len(shape)
    start, end = node.integer("start", 0), node.integer("end", rank)
    return np.array(shape[slice(start, end)], dtype=np.int64)
