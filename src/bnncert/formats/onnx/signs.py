"""From a value to signs: the ways in which ONNX files write a sign, and max-pooling around it.

A sign of real numbers ends a stage.  A sign of signs does not: it only says what the stage's
sign(0) is (Sign -> Add 0.1 -> Sign), or negates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.description.matrices import csr_matrix, factor_sparse, incidence_matrix, scale_rows
from bnncert.description.model import (
    Convolution,
    ElementwiseStep,
    Scale,
    Shift,
    SignZero,
    Stage,
    step_arrays,
)
from bnncert.description.rationals import Interval
from bnncert.description.thresholds import affine_coefficients
from bnncert.formats.onnx.constants import clip_range, exact_floats
from bnncert.formats.onnx.exact import InexactError, add, relabelled, row_values, tidy
from bnncert.formats.onnx.graph import OnnxNode
from bnncert.formats.onnx.operands import constant, depending, plain, spread
from bnncert.formats.onnx.value import (
    INTEGERS,
    LARGEST_INTEGER,
    GraphWalk,
    Operand,
    Value,
    positions,
)
from bnncert.formats.onnx.windows import image_of, incidence, windows_of

_OPPOSITE = {
    "Greater": "Less",
    "Less": "Greater",
    "GreaterOrEqual": "LessOrEqual",
    "LessOrEqual": "GreaterOrEqual",
}


# -- stages -------------------------------------------------------------------------------


def _rows(value: Value) -> Any:
    """Return the rows that `index` picks, where there are no windows."""
    if value.matrix is None:
        one = np.ones(value.size, dtype=np.int8)
        return csr_matrix(one, value.index, positions(value.size + 1), (value.size,) * 2)
    if np.array_equal(value.index, positions(value.matrix.shape[0])):
        return value.matrix
    return value.matrix[value.index]


def _stage(value: Value, name: str, sign_zero: SignZero | None, as_written: bool) -> Stage:
    """Return the stage that a sign of this value ends."""
    steps, pool, convolution = value.steps, None, value.convolution
    if value.pool is None:
        weights = _rows(value)
        if value.factor is not None:
            steps = (Scale(value.factor[value.index]), *steps)
        used = value.index
    else:
        windows = value.pool[value.index]
        # Edges that no window covers are not computed at all.
        used, column = np.unique(windows.indices, return_inverse=True)
        pool = tidy(
            csr_matrix(
                windows.data,
                column.astype(np.int32),
                windows.indptr,
                (windows.shape[0], used.size),
            )
        )
        weights = value.matrix
        if used.size != weights.shape[0]:
            weights = weights[used]
    if not as_written and not np.all(np.abs(weights.data) == 1):
        split = factor_sparse(weights)
        if split is not None:
            factor: FloatArray | None = split[1]
            if pool is not None:
                factor = row_values(pool, split[1])
            if factor is not None:
                # A kernel that is described beside its matrix was factored with it.
                weights, convolution = split[0], None
                steps = (Scale(factor), *steps)
    if convolution is not None:
        convolution = replace(convolution, rows=used.astype(np.int64))
    return Stage(
        weights=weights,
        steps=steps,
        name=name,
        sign_zero=sign_zero,
        pool=pool,
        structural=value.structural or as_written,
        convolution=convolution,
    )


def output_stage(value: Value) -> Stage:
    """Return the stage of the scores: no sign, and factors multiplied back into the rows."""
    weights = _rows(value).astype(np.float64)
    if value.factor is not None:
        # A row was split into a factor and -1, 0, 1: multiplying them again is exact.
        weights = scale_rows(weights, value.factor[value.index])
    return Stage(weights=weights, steps=value.steps, name=value.name or "output", structural=True)


def _after(walk: GraphWalk, value: Value, stage: Stage, open_stages: tuple[int, ...]) -> Value:
    """Add a stage and return its signs in the shape of `value`."""
    walk.stages.append(stage)
    return Value(
        shape=value.shape,
        index=positions(value.size),
        width=value.size,
        signs=True,
        dtype=value.dtype,
        open_stages=open_stages,
    )


# -- signs --------------------------------------------------------------------------------


def binarise(walk: GraphWalk, value: Value, node: OnnxNode, at_zero: SignZero | None) -> Value:
    """Return the signs of a value; at zero they are `at_zero`, None if that is undefined."""
    value = plain(replace(value, clipped=False), node, ("real", "integer"))
    if value.is_signs:
        return _settled(walk, value, node, at_zero)
    stage = _stage(value, value.name or node.name, at_zero, walk.as_written)
    still_open = (len(walk.stages),) if at_zero is None else ()
    return _after(walk, value, stage, still_open)


def _sign_of(number: Interval, at_zero: int) -> int | None:
    if number.lo > 0:
        return 1
    if number.hi < 0:
        return -1
    return at_zero if number.is_exact else None


def _settled(walk: GraphWalk, value: Value, node: OnnxNode, at_zero: SignZero | None) -> Value:
    """Return the signs of a function of signs, noting what it does where the sign was zero."""
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
    """Sign, whose value at zero is 0: the file does not say which sign that is."""
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
    if value.clipped and np.any(threshold):
        raise node.unsupported("a clipped value is compared with something other than zero")
    value = replace(value, clipped=False).reshaped(shape).then(Shift(-threshold))
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
    shape, yes = spread(value, np.broadcast_arrays(*sides)[0], node, "what it selects")
    _, no = spread(value, np.broadcast_arrays(*sides)[1], node, "what it selects")
    try:
        half_gap, middle = add(yes, -no) / 2, add(yes, no) / 2
    except InexactError as error:
        raise node.unsupported(f"its two constants are too far apart ({error})") from error
    value = replace(value, dtype=kind).reshaped(shape)
    return value.then(Scale(half_gap)).then(Shift(middle))


def clip(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Clip to a range around zero, which a sign does not see."""
    value = plain(operands[0], node)
    bounds = [None if o is None else constant(o, node, "a bound") for o in operands[1:]]
    low, high = clip_range(node, [None, *bounds], walk.opset)
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    if not low < 0 < high:
        raise node.unsupported(f"clips to [{low:g}, {high:g}], which changes the sign")
    return replace(value, clipped=True)


# -- max-pooling --------------------------------------------------------------------------


def _direction(steps: Sequence[ElementwiseStep], count: int) -> npt.NDArray[np.float64]:
    """Return whether the steps increase (+1), decrease (-1) or are constant (0)."""
    direction = np.ones(count)
    for step in steps:
        if not isinstance(step, Shift):
            # The factor comes first among the parameters of all other steps.
            direction = direction * np.sign(step_arrays(step)[0])
    return direction


def max_pool(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """MaxPool and GlobalMaxPool, before a sign or after it."""
    value = plain(operands[0], node)
    channels, spatial = image_of(value.shape, node)
    if node.op == "GlobalMaxPool":
        area = math.prod(spatial)
        pool = incidence_matrix(np.repeat(positions(channels), area), channels)
        out: tuple[int, ...] = (1,) * len(spatial)
    else:
        windows = windows_of(node, spatial, node.integers("kernel_shape") or ())
        pool = incidence(windows, channels, node)
        out = windows.out if len(spatial) == 2 else windows.out[1:]
    shape = (1, channels, *out)
    if value.factor is not None:
        value = replace(value, factor=None, steps=(Scale(value.factor[value.index]), *value.steps))
    steps = tuple(_shared_step(step, pool, node) for step in value.steps)
    direction = _direction(value.steps, value.size)
    if value.is_signs:
        return _pooled_signs(walk, value, node, shape, pool, steps, direction)
    return _pooled_reals(value, node, shape, pool, steps, direction)


def _shared_step(step: ElementwiseStep, pool: Any, node: OnnxNode) -> ElementwiseStep:
    """Return a step with one entry per window, which all cells of the window must share."""
    shared = []
    for array in step_arrays(step):
        values = row_values(pool, array)
        if values is None:
            raise node.unsupported("cells of one window are scaled or shifted differently")
        shared.append(values)
    return type(step)(*shared)


def _pooled_signs(
    walk: GraphWalk,
    value: Value,
    node: OnnxNode,
    shape: tuple[int, ...],
    pool: Any,
    steps: tuple[ElementwiseStep, ...],
    direction: FloatArray,
) -> Value:
    """Return the maximum of signs: one more stage, an OR (or an AND of decreasing functions)."""
    rising = row_values(pool, direction)
    assert rising is not None
    spare = np.diff(pool.indptr).astype(np.float64) - 1
    stage = Stage(
        weights=relabelled(pool, value.index, value.width),
        steps=(Shift(np.where(rising >= 0, spare, -spare)),),
        name=node.name,
        sign_zero="plus",
        structural=True,
    )
    pooled = replace(value, shape=shape, index=positions(pool.shape[0]))
    result = _after(walk, pooled, stage, value.open_stages)
    for step in steps:
        result = result.then(step)
    return result


def _pooled_reals(
    value: Value,
    node: OnnxNode,
    shape: tuple[int, ...],
    pool: Any,
    steps: tuple[ElementwiseStep, ...],
    direction: FloatArray,
) -> Value:
    """Return the maximum of real numbers, with the steps moved behind the maximum."""
    falling = direction < 0
    if value.matrix is None:
        value = replace(
            value, matrix=_rows(replace(value, index=positions(value.width))), name=node.name
        )
    if value.pool is not None:
        if np.any(falling):
            raise node.unsupported("the maximum of a decreasing function of another maximum")
        windows = relabelled(pool, value.index, value.pool.shape[0]).astype(np.int64) @ value.pool
        windows.data = np.minimum(windows.data, 1)
    else:
        windows = relabelled(pool, value.index, value.matrix.shape[0])
        if np.any(falling):
            # max F(u) with F decreasing is F(-max(-u)): negate the rows, then the maximum.
            flip = np.ones(value.matrix.shape[0])
            flip[value.index[falling]] = -1.0
            value = _flipped(value, flip)
            back = row_values(pool, np.where(falling, -1.0, 1.0))
            assert back is not None
            steps = (Scale(back), *steps)
    return replace(
        value,
        shape=shape,
        index=positions(pool.shape[0]),
        pool=tidy(windows.tocsr()),
        steps=steps,
    )


def _flipped(value: Value, flip: FloatArray) -> Value:
    described: Convolution | None = value.convolution
    if described is not None:
        channel = flip.reshape(described.kernel.shape[0], -1)
        if bool(np.all(channel == channel[:, :1])):
            kernel = described.kernel * channel[:, 0].reshape(-1, 1, 1, 1)
            described = replace(described, kernel=kernel)
        else:
            described = None
    return replace(value, matrix=scale_rows(value.matrix, flip), convolution=described)
