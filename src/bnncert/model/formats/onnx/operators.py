"""The operators that a binary network may apply to its values, and the table of all of them.

A sign of real numbers ends a stage.  A sign of signs does not: it only defines sign(0) of the stage
(Sign -> Add 0.1 -> Sign), or negates the signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from bnncert.model.description import Divide, Normalise, Scale, Shift, SignZero
from bnncert.model.formats.onnx.exact import InexactError, add
from bnncert.model.formats.onnx.graph import OnnxNode
from bnncert.model.formats.onnx.linear import (
    average_pool,
    convolution,
    gemm,
    matmul,
    max_pool,
    pad,
    reduction,
)
from bnncert.model.formats.onnx.quantisers import (
    OPERATORS,
    QUANTISERS,
    clipped_ranges,
    limited,
    round_off,
)
from bnncert.model.formats.onnx.shapes import axis_of, new_shape, permutation
from bnncert.model.formats.onnx.value import (
    INTEGERS,
    LARGEST_INTEGER,
    MOST_INTEGER_STEPS,
    Clip,
    GraphWalk,
    Operand,
    Value,
    add_stage,
    arithmetic_value,
    clip_range,
    constant,
    constant_floats,
    depending,
    exact_floats,
    plain,
    scalar,
    spread,
    stage_of,
    target_type,
)
from bnncert.model.rationals import Interval
from bnncert.model.thresholds import affine_coefficients

# -- signs --------------------------------------------------------------------------------

_OPPOSITE = {
    "Greater": "Less",
    "Less": "Greater",
    "GreaterOrEqual": "LessOrEqual",
    "LessOrEqual": "GreaterOrEqual",
}


def binarise(walk: GraphWalk, value: Value, node: OnnxNode, at_zero: SignZero | None) -> Value:
    """Take the signs of a value; at zero they are `at_zero`, None if that is undefined."""
    clip, ranges = value.clip, clipped_ranges(value)
    value = plain(replace(value, clip=None), node, ("real", "integer"))
    if clip and ranges and not all(low < 0 < high for low, high in ranges[0]):
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
    """Take the signs of a function of signs, and set sign(0) of the stages it defines."""
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
        value = value.times(-1.0)
    at_zero: SignZero = "plus" if op.endswith("OrEqual") else "minus"
    return replace(binarise(walk, value, node, at_zero), dtype=np.dtype(bool))


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
    low, high = (0.0, None) if node.op == "Relu" else clip_range(node, [None, *bounds])
    low = -np.inf if low is None else float(low)
    high = np.inf if high is None else float(high)
    if not low < high:
        raise node.unsupported(f"clips to [{low:g}, {high:g}], which is constant or empty")
    if value.rounding is not None:
        return limited(walk, value, low, high)
    value = plain(value, node)
    return replace(value, clip=Clip(low, high, f"{node.name} ({node.op})", len(value.steps)))


Handler: TypeAlias = Callable[[GraphWalk, OnnxNode, Sequence[Operand]], Value]


# -- operators that only move entries -----------------------------------------------------


def _mover(operand: Operand, node: OnnxNode) -> Value:
    value = depending(operand, node)
    if value.transform == "argmax":
        raise node.unsupported("ArgMax must be the last operation of the network")
    return value


def _same(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    if node.op == "Dropout":
        ratio, training = ([*operands[1:], None, None])[:2]
        if ratio is not None:
            scalar(constant(ratio, node, "its ratio"), node, "its ratio")
        if training is not None and scalar(constant(training, node, "its mode"), node, "its mode"):
            raise node.unsupported("dropout in training mode")
    return _mover(operands[0], node)


def _cast(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    target = np.dtype(target_type(node))
    if value.kind == "bool":
        if target.name not in ("float16", "float32", "float64") and target not in INTEGERS:
            # 2 x - 1 of an unsigned 0 is not -1.
            raise node.unsupported(f"a truth value as {target}; expected a float or int32, int64")
        return replace(value, dtype=target).times(0.5).plus(0.5)
    signs = value.is_signs and not value.steps
    exact = value.kind == "integer" or signs or target.itemsize >= value.dtype.itemsize
    if target.name not in ("float32", "float64") or not exact:
        raise node.unsupported(f"a conversion from {value.dtype} to {target} may round")
    return replace(value, dtype=target)


def _reshape(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Reshape, Flatten, Squeeze and Unsqueeze."""
    value = _mover(operands[0], node)
    what = "the new shape" if node.op == "Reshape" else "its list of axes"
    for operand in operands[1:]:
        constant(operand, node, what)
    return value.reshaped(new_shape(node, operands, value.shape))


def _transpose(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    return value.transposed(permutation(node, len(value.shape)))


# -- elementwise arithmetic ---------------------------------------------------------------


def _arithmetic(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    left, right = operands[0], operands[1]
    value = arithmetic_value(left if isinstance(left, Value) else right, node, ("real", "integer"))
    other = constant(right if isinstance(left, Value) else left, node, "its other input")
    shape, numbers = spread(value, other, node)
    value = value.reshaped(shape)
    reverse = not isinstance(left, Value)
    if value.kind == "integer" and (
        len(value.steps) > MOST_INTEGER_STEPS or np.any(np.abs(numbers) > LARGEST_INTEGER)
    ):
        raise node.unsupported("arithmetic on integers that may overflow")
    if node.op == "Mul":
        return value.then(Scale(numbers))
    if node.op == "Add":
        return value.then(Shift(numbers))
    if node.op == "Sub" and reverse:
        return value.times(-1.0).then(Shift(numbers))
    if node.op == "Sub":
        return value.then(Shift(-numbers))
    if reverse:
        raise node.unsupported("divides by something that depends on the network's input")
    if value.kind == "integer":
        raise node.unsupported("a division of integers")
    if np.any(numbers == 0):
        raise node.unsupported("division by zero")
    return value.then(Divide(numbers))


def _batch_normalisation(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = plain(operands[0], node)
    if len(operands) != 5:
        raise node.broken(f"{len(operands)} inputs; expected 5")
    # Before operator set 14, several outputs mean training mode.
    if node.integer("training_mode", 0) or any(node.outputs[1:]):
        raise node.unsupported("training mode (more outputs than one)")
    if node.integer("spatial", 1) != 1:
        raise node.unsupported("statistics for single positions")
    if len(value.shape) < 2:
        raise node.unsupported(f"its input has shape {value.shape}; expected (1, C, ...)")
    channels = value.shape[1]
    arrays = []
    for operand, what in zip(operands[1:], ("scale", "bias", "mean", "variance"), strict=True):
        array = constant_floats(operand, node, f"its {what}")
        if array.shape != (channels,):
            raise node.broken(f"{what} of shape {array.shape} for {channels} channels")
        arrays.append(value.along(array, 1))
    gamma, beta, mean, variance = arrays
    epsilon = np.full(value.size, node.number("epsilon", 1e-5))
    if np.any(variance + epsilon <= 0):
        raise node.unsupported("variance + epsilon is not positive")
    return value.then(Normalise(gamma, beta, mean, variance, epsilon))


# -- the end of a network -----------------------------------------------------------------


def _softmax(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = plain(operands[0], node)
    rank = len(value.shape)
    axis = axis_of(node, node.integer("axis", 1 if node.opset < 13 else -1), rank)
    # Before opset 13 softmax runs over all axes from `axis` on.
    over = value.shape[axis:] if node.opset < 13 else value.shape[axis : axis + 1]
    if math.prod(over) != value.size:
        raise node.unsupported(f"axis {axis} of shape {value.shape} does not hold all scores")
    return replace(value, transform="softmax")


def _argmax(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    value = _mover(operands[0], node)
    # Softmax keeps the order of the scores.
    value = plain(replace(value, transform="scores"), node)
    axis = axis_of(node, node.integer("axis", 0), len(value.shape))
    if value.shape[axis] != value.size:
        raise node.unsupported(f"axis {axis} of shape {value.shape} does not hold all scores")
    if node.integer("select_last_index", 0):
        raise node.unsupported("select_last_index decides ties for the last class")
    return replace(value, transform="argmax")


#: The operators that are supported on values that depend on the input.
HANDLERS: dict[str, Handler] = {
    "Identity": _same,
    "Dropout": _same,
    "Cast": _cast,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "Neg": lambda walk, node, operands: arithmetic_value(operands[0], node).times(-1.0),
    "BatchNormalization": _batch_normalisation,
    "MatMul": matmul,
    "Gemm": gemm,
    "Conv": convolution,
    "AveragePool": average_pool,
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), reduction),
    "Pad": pad,
    "MaxPool": max_pool,
    "GlobalMaxPool": max_pool,
    # Its value at zero is 0: the file does not define sign(0).
    "Sign": lambda walk, node, operands: binarise(walk, depending(operands[0], node), node, None),
    "BipolarQuant": bipolar_quant,
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), compare),
    "Not": lambda walk, node, operands: plain(operands[0], node, ("bool",)).times(-1.0),
    "Where": choose,
    "Clip": clip,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "ArgMax": _argmax,
}

#: Further ones: activations with several levels, and what comes before them.
LEVEL_HANDLERS: dict[str, Handler] = {
    "Relu": clip,
    **dict.fromkeys(OPERATORS, round_off),
    **QUANTISERS,
}
