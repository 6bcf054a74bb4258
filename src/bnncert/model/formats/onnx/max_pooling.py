"""Maxima over windows, of signs and of real numbers that a sign follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.model.description import Convolution, ElementwiseStep, Scale, Shift, Stage, step_arrays
from bnncert.model.formats.onnx.exact import relabelled, row_values, tidy
from bnncert.model.formats.onnx.graph import OnnxNode
from bnncert.model.formats.onnx.levels import pooled_levels, sum_of_signs
from bnncert.model.formats.onnx.shapes import image_of, incidence, windows_of
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Value,
    add_stage,
    plain,
    positions,
    rows_of,
)
from bnncert.model.matrices import incidence_matrix, scale_rows


@dataclass(frozen=True, eq=False)
class _Pooling:
    """The windows of one pooling node."""

    node: OnnxNode
    #: The shape of the result.
    shape: tuple[int, ...]
    #: Sparse 0/1 incidence of windows and positions of the value.
    windows: Any
    #: The steps of the value, with one entry for each window.
    steps: tuple[ElementwiseStep, ...]
    #: For each position whether the steps increase (1), decrease (-1) or are constant (0).
    direction: FloatArray


def max_pool(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """MaxPool and GlobalMaxPool, before a sign or after it."""
    value = plain(operands[0], node)
    channels, spatial = image_of(value.shape, node)
    if node.op == "GlobalMaxPool":
        windows = incidence_matrix(np.repeat(positions(channels), math.prod(spatial)), channels)
        out: tuple[int, ...] = (1,) * len(spatial)
    else:
        geometry = windows_of(node, spatial, node.integers("kernel_shape") or ())
        windows = incidence(geometry, channels, node)
        out = geometry.out_shape(len(spatial))
    if value.factor is not None:
        value = replace(value, factor=None, steps=(Scale(value.factor[value.index]), *value.steps))
    pooling = _Pooling(
        node,
        (1, channels, *out),
        windows,
        tuple(_shared_step(step, windows, node) for step in value.steps),
        _direction(value.steps, value.size),
    )
    if not (value.levels or value.is_signs):
        return _pooled_reals(value, pooling)
    pooled = (_pooled_levels if value.levels else _pooled_signs)(walk, value, pooling)
    for step in pooling.steps:
        pooled = pooled.then(step)
    return pooled


def _direction(steps: Sequence[ElementwiseStep], count: int) -> FloatArray:
    """Tell whether the steps increase (+1), decrease (-1) or are constant (0)."""
    direction = np.ones(count)
    for step in steps:
        if not isinstance(step, Shift):
            # The factor comes first among the parameters of all other steps.
            direction = direction * np.sign(step_arrays(step)[0])
    return direction


def _shared_step(step: ElementwiseStep, pool: Any, node: OnnxNode) -> ElementwiseStep:
    """Take one entry per window of a step, which all cells of the window must share."""
    shared = []
    for array in step_arrays(step):
        values = row_values(pool, array)
        if values is None:
            raise node.unsupported("cells of one window are scaled or shifted differently")
        shared.append(values)
    return type(step)(*shared)


def _any_stage(pooling: _Pooling, weights: Any, count: int) -> Stage:
    """Make the stage of `count` ORs over each window (or ANDs of decreasing functions)."""
    rising = row_values(pooling.windows, pooling.direction)
    assert rising is not None
    spare = np.diff(pooling.windows.indptr).astype(np.float64) - 1
    return Stage(
        weights=weights,
        steps=(Shift(np.repeat(np.where(rising >= 0, spare, -spare), count)),),
        name=pooling.node.name,
        sign_zero="plus",
        structural=True,
        bits="shared",
    )


def _pooled_signs(walk: GraphWalk, value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of signs, one more stage, without the steps after it."""
    stage = _any_stage(pooling, relabelled(pooling.windows, value.index, value.width), 1)
    pooled = replace(value, shape=pooling.shape, index=positions(pooling.windows.shape[0]))
    return add_stage(walk, pooled, stage, value.open_stages)


def _pooled_levels(walk: GraphWalk, value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of levels, the maximum of each of their signs, without the steps."""
    count, windows = value.levels, pooling.windows.shape[0]
    stage = _any_stage(pooling, pooled_levels(pooling.windows, value), count)
    signs = replace(value, shape=(windows * count,), index=positions(windows * count))
    turn = np.ones((windows, count), dtype=np.int8)
    return sum_of_signs(add_stage(walk, signs, stage, ()), pooling.shape, turn)


def _pooled_reals(value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of real numbers, with the steps moved behind the maximum."""
    falling = pooling.direction < 0
    steps = pooling.steps
    if value.matrix is None:
        rows = rows_of(replace(value, index=positions(value.width)))
        value = replace(value, matrix=rows, name=pooling.node.name)
    if value.pool is not None:
        if np.any(falling):
            raise pooling.node.unsupported(
                "the maximum of a decreasing function of another maximum"
            )
        inner = relabelled(pooling.windows, value.index, value.pool.shape[0])
        windows = inner.astype(np.int64) @ value.pool
        windows.data = np.minimum(windows.data, 1)
    else:
        windows = relabelled(pooling.windows, value.index, value.matrix.shape[0])
        if np.any(falling):
            # max F(u) with F decreasing is F(-max(-u)): negate the rows, then the maximum.
            flip = np.ones(value.matrix.shape[0])
            flip[value.index[falling]] = -1.0
            value = _flipped(value, flip)
            back = row_values(pooling.windows, np.where(falling, -1.0, 1.0))
            assert back is not None
            steps = (Scale(back), *steps)
    return replace(
        value,
        shape=pooling.shape,
        index=positions(pooling.windows.shape[0]),
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
