"""From a value to signs: the ways in which ONNX files write a sign.

A sign of real numbers ends a stage.  A sign of signs does not: it only defines sign(0) of the stage
(Sign -> Add 0.1 -> Sign), or negates the signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bnncert.model.description import Scale, Shift, SignZero
from bnncert.model.formats.onnx.constants import clip_range, exact_floats
from bnncert.model.formats.onnx.exact import InexactError, add
from bnncert.model.formats.onnx.graph import OnnxNode
from bnncert.model.formats.onnx.operands import constant, depending, plain, spread
from bnncert.model.formats.onnx.ranges import clipped_ranges
from bnncert.model.formats.onnx.rounded_inputs import limited
from bnncert.model.formats.onnx.stages import add_stage, stage_of
from bnncert.model.formats.onnx.value import (
    INTEGERS,
    LARGEST_INTEGER,
    Clip,
    GraphWalk,
    Operand,
    Value,
)
from bnncert.model.rationals import Interval
from bnncert.model.thresholds import affine_coefficients

_OPPOSITE = {
    "Greater": "Less",
    "Less": "Greater",
    "GreaterOrEqual": "LessOrEqual",
    "LessOrEqual": "GreaterOrEqual",
}


def binarise(walk: GraphWalk, value: Value, node: OnnxNode, at_zero: SignZero | None) -> Value:
    """Return the signs of a value; at zero they are `at_zero`, None if that is undefined."""
    clip, ranges = value.clip, clipped_ranges(value)
    value = plain(replace(value, clip=None), node, ("real", "integer"))
    if clip and ranges and not all(low < 0 < high for low, high in ranges.different):
        raise node.unsupported(
            f"{clip.node} clips to [{clip.low:g}, {clip.high:g}], which changes the sign"
        )
    if value.is_signs:
        return _settled(walk, value, node, at_zero)
    stage = stage_of(value, value.name or node.name, at_zero, walk.as_written)
    still_open = (len(walk.stages),) if at_zero is None else ()
    return add_stage(walk, value, stage, still_open)


def _sign_of(number: Interval, at_zero: int) -> int | None:
    if number.lo > 0:
        return 1
    if number.hi < 0:
        return -1
    return at_zero if number.is_exact else None


def _settled(walk: GraphWalk, value: Value, node: OnnxNode, at_zero: SignZero | None) -> Value:
    """Return the signs of a function of signs, and set sign(0) of the stages it defines."""
    affine = affine_coefficients(value.steps, value.size, node.place)
    zero = {"plus": 1, "minus": -1}.get(at_zero or "", 0)
    groups, first = np.unique(affine.group, return_index=True)
    orientation = np.zeros(int(groups.max(initial=0)) + 1)
    middles = set()
    for group, k in zip(groups, first, strict=True):
        gain, offset = affine.gain[k], affine.offset[k]
        plus, minus, middle = (
            _sign_of(number, zero) for number in (offset + gain, offset - gain, offset)
        )
        if plus is None or minus is None or middle is None:
            raise node.unsupported("the sign of a shifted sign cannot be decided")
        if plus == 0 or minus == 0:
            raise node.unsupported("the sign of a shifted sign is taken at exactly zero")
        if plus == minus:
            raise node.unsupported(f"the sign of a shifted sign is always {plus:+d}")
        orientation[group] = plus
        middles.add(middle * plus)
    still_open = value.open_stages
    if still_open and middles != {0}:
        if len(middles) > 1:
            raise node.unsupported("sign(0) is different for different neurons of one layer")
        settled: SignZero = "plus" if middles.pop() > 0 else "minus"
        for number in still_open:
            walk.stages[number] = replace(walk.stages[number], sign_zero=settled)
        still_open = ()
    signs = replace(value, steps=(), open_stages=still_open)
    return signs.then(Scale(orientation[affine.group]))


def sign(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Sign, whose value at zero is 0: the file does not define sign(0)."""
    return binarise(walk, depending(operands[0], node), node, None)


def bipolar_quant(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """BipolarQuant of QONNX: +scale for x >= 0, else -scale."""
    scale = constant(operands[1] if len(operands) > 1 else None, node, "its scale")
    signs = binarise(walk, depending(operands[0], node), node, "plus")
    shape, factor = spread(signs, scale, node, "its scale")
    if np.any(factor <= 0):
        raise node.unsupported("its scale is not positive")
    return signs.reshaped(shape).then(Scale(factor))


def compare(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Greater, GreaterOrEqual, Less and LessOrEqual with a constant on either side."""
    op, first, second = node.op, operands[0], operands[1]
    if not isinstance(first, Value):
        op, first, second = _OPPOSITE[op], second, first
    value = depending(first, node)
    shape, threshold = spread(value, constant(second, node, "the other side"), node)
    value = value.reshaped(shape).then(Shift(-threshold))
    if op.startswith("Less"):
        value = value.then(Scale(value.uniformly(-1.0)))
    at_zero: SignZero = "plus" if op.endswith("OrEqual") else "minus"
    return replace(binarise(walk, value, node, at_zero), dtype=np.dtype(bool))


def negate(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Not, of a comparison."""
    value = plain(operands[0], node, ("bool",))
    return value.then(Scale(value.uniformly(-1.0)))


def choose(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Where(condition, a, b) with constants a and b: (a - b)/2 times the sign, plus (a + b)/2."""
    if not isinstance(operands[0], Value):
        raise node.unsupported("its condition is constant, but what it selects is not")
    value = plain(operands[0], node, ("bool",))
    tensors = [constant(side, node, "what it selects") for side in (operands[1], operands[2])]
    kind = tensors[0].dtype
    sides = [exact_floats(tensor, node, "what it selects") for tensor in tensors]
    if kind.kind != "f" and (
        kind not in INTEGERS or any(np.any(np.abs(side) > LARGEST_INTEGER) for side in sides)
    ):
        raise node.unsupported(
            f"selects constants of type {kind}; expected floats, or small numbers of int32, int64"
        )
    (shape, yes), (_, no) = (
        spread(value, side, node, "what it selects") for side in np.broadcast_arrays(*sides)
    )
    try:
        half_gap, middle = add(yes, -no) / 2, add(yes, no) / 2
    except InexactError as error:
        raise node.unsupported(f"its two constants are too far apart ({error})") from error
    value = replace(value, dtype=kind).reshaped(shape)
    return value.then(Scale(half_gap)).then(Shift(middle))


def clip(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Clip and Relu: a sign or levels must follow, which compare with thresholds in the range."""
    value = depending(operands[0], node)
    bounds = [None if o is None else constant(o, node, "a bound") for o in operands[1:]]
    low, high = (0.0, None) if node.op == "Relu" else clip_range(node, [None, *bounds], walk.opset)
    low = -np.inf if low is None else float(low)
    high = np.inf if high is None else float(high)
    if not low < high:
        raise node.unsupported(f"clips to [{low:g}, {high:g}], which is constant or empty")
    if value.rounding is not None:
        return limited(walk, value, low, high)
    value = plain(value, node)
    return replace(value, clip=Clip(low, high, f"{node.name} ({node.op})", len(value.steps)))
