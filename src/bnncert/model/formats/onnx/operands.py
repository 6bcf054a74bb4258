"""The operands of a node: values that depend on the network's input, and constants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.model.formats.onnx.constants import Tensor, exact_floats
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.model.formats.onnx.value import Operand, Value


def depending(operand: Operand, node: OnnxNode) -> Value:
    """Return an operand that must depend on the network's input."""
    if not isinstance(operand, Value):
        raise node.unsupported("expected its first input to depend on the network's input")
    return operand


def refuse_unbounded(value: Value) -> None:
    """Raise for a rounded value with infinitely many levels."""
    if value.rounding is not None:
        raise value.rounding.unsupported(
            "it rounds values without bounds, which are not always integers; clip them before "
            "or after it (torch.clamp), or, if they are the network's inputs, with bnncert convert "
            "MODEL.onnx CLIPPED.onnx --clip LOW HIGH"
        )


def plain(operand: Operand, node: OnnxNode, kinds: tuple[str, ...] = ("real",)) -> Value:
    """Return an operand as a value that arithmetic is defined for; raise if it is not one."""
    value = depending(operand, node)
    refuse_unbounded(value)
    if value.transform != "scores":
        raise node.unsupported(f"{value.transform} must be the last operation of the network")
    if value.clip is not None:
        raise node.unsupported(
            f"after {value.clip.node} only a sign or a quantiser is supported (a binary network "
            "has no other activations)"
        )
    if value.kind not in kinds:
        raise node.unsupported(f"its input has type {value.kind}; expected {' or '.join(kinds)}")
    if value.dtype == np.float16:
        raise node.unsupported("float16 rounds even sums of signs; convert the model to float32")
    return value


def arithmetic_value(operand: Operand, node: OnnxNode, kinds: tuple[str, ...] = ("real",)) -> Value:
    """Return an operand as `plain` does, but it may be clipped."""
    value = depending(operand, node)
    plain(replace(value, clip=None), node, kinds)
    return value


def constant(operand: Operand, node: OnnxNode, what: str) -> Tensor:
    """Return an operand that must be constant."""
    if isinstance(operand, Value):
        raise node.unsupported(
            f"{what} depends on the network's input; two such inputs of one node (a residual "
            "connection or a branch) are not supported"
        )
    if operand is None:
        raise node.unsupported(f"{what} is missing")
    return operand


def spread(
    value: Value, tensor: Tensor, node: OnnxNode, what: str = "its constant"
) -> tuple[tuple[int, ...], FloatArray]:
    """Broadcast a constant against a value; return the shape and one number per position."""
    floats = exact_floats(tensor, node, what)
    try:
        shape = np.broadcast_shapes(value.shape, floats.shape)
    except ValueError as error:
        raise node.unsupported(
            f"{what} of shape {floats.shape} does not fit shape {value.shape}"
        ) from error
    if math.prod(shape) != value.size or value.size > LARGEST_VALUE:
        raise node.unsupported(
            f"{what} of shape {floats.shape} would repeat a tensor of shape {value.shape}"
        )
    return shape, np.broadcast_to(floats, shape).reshape(-1).copy()
