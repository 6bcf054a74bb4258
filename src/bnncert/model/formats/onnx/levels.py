r"""Activations with several levels, as sums of signs.

A non-decreasing step function with K steps of height 1 is

    f(v) = #{k : v >= t_k} + #{k : v > t_k} = K / 2 + sum_k s_k / 2,

where the first count is over thresholds at which the step is taken and the second over those at
which it is not (`strict`), and s_k = sign(v - t_k) with the value +1 or -1 at zero.  So a neuron
with K + 1 levels is K sign neurons with the same weights.  Since sign(-v) with +1 at zero is the
negative of sign(v) with -1 at zero, strict steps are negated neurons, and all signs of one stage
have the same value at zero.  The signs of one position are in the order of their thresholds:
s_1 >= s_2 >= .. >= s_K.

Steps g that follow a Clip are affine and monotone.  A sign or a level compares g(clip(v)) with a
threshold t that lies inside the range of g over [low, high], and there

    g(clip(v)) >= t   if and only if   g(v) >= t,

so the Clip is left out.  A comparison with a threshold outside of the range is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import Divide, Scale, Shift, step_arrays, take_step
from bnncert.model.formats.onnx.exact import unsorted_rows
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.model.formats.onnx.shapes import MOST_CONNECTIONS
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Value,
    add_stage,
    arithmetic_value,
    positions,
    stage_of,
)
from bnncert.model.matrices import csr_matrix

# -- ranges of clipped values -------------------------------------------------------------

#: A rational, or an infinity.
Bound: TypeAlias = Fraction | float


@dataclass(frozen=True, eq=False)
class ClippedRanges:
    """The different ranges [low, high] of the positions of a value, and which one each has."""

    different: list[tuple[Bound, Bound]]
    which: IntArray


def clipped_ranges(value: Value) -> ClippedRanges | None:
    """Find the ranges of the positions of a clipped value; None if it is not clipped."""
    clip = value.clip
    if clip is None:
        return None
    after = value.steps[clip.after :]
    if not after:
        start = _bound(clip.low), _bound(clip.high)
        return ClippedRanges([start], np.zeros(value.size, dtype=np.int64))
    table = np.column_stack([step_arrays(step)[0] for step in after])
    rows, which = np.unique(table, axis=0, return_inverse=True)
    kinds = [type(step) for step in after]
    found = [_moved((_bound(clip.low), _bound(clip.high)), kinds, row) for row in rows.tolist()]
    return ClippedRanges(found, which.reshape(-1).astype(np.int64))


def _bound(number: float) -> Bound:
    return number if np.isinf(number) else Fraction(number)


def _moved(
    bounds: tuple[Bound, Bound], kinds: Sequence[type], numbers: Sequence[float]
) -> tuple[Bound, Bound]:
    """Move a range through steps, each with its one number."""
    low, high = bounds
    for kind, number in zip(kinds, map(Fraction, numbers), strict=True):
        if kind is Shift:
            low, high = low + number, high + number
        elif kind is Scale and number == 0:
            low, high = Fraction(0), Fraction(0)
        elif kind is Scale:
            low, high = low * number, high * number
        else:
            assert kind is Divide, "only arithmetic with constants may follow a Clip"
            low, high = low / number, high / number
        if kind is not Shift and number < 0:
            low, high = high, low
    return low, high


# -- levels -------------------------------------------------------------------------------


def count_steps(
    walk: GraphWalk, value: Value, node: OnnxNode, thresholds: FloatArray, strict: Sequence[bool]
) -> Value:
    """Count the steps that each entry of a value has taken, as a sum of signs.

    `thresholds` has one row for each position, or one row for all, in ascending order; a value
    equal to one that is `strict` is below the step.
    """
    value = arithmetic_value(value, node)
    check_levels(value.size, len(strict), node)
    always, never = _constant_steps(thresholds, strict, value)
    value = replace(value, clip=None)
    used = ~(np.all(always, axis=0) | np.all(never, axis=0))
    base = int(np.count_nonzero(np.all(always, axis=0)))
    count = int(np.count_nonzero(used))
    if count == 0:
        raise node.unsupported("its result does not depend on its input")
    grid = (value.size, count)
    fixed = (always | never)[:, used].reshape(-1)
    turn = np.broadcast_to(np.where(np.array(strict)[used], -1.0, 1.0), grid).reshape(-1)
    turn = np.where(fixed, 1.0, turn)
    thresholds = np.broadcast_to(thresholds[:, used], grid).reshape(-1)
    every = np.repeat(positions(value.size), count)
    copies = replace(
        value,
        shape=(every.size,),
        index=value.index[every],
        steps=tuple(take_step(step, every) for step in value.steps),
    ).then(Shift(-thresholds))
    # A step that is always or never taken is a constant neuron: 0 v + 1 or 0 v - 1.
    copies = copies.then(Scale(np.where(fixed, 0.0, turn)))
    copies = copies.then(
        Shift(np.where(fixed, np.where(always[:, used].reshape(-1), 1.0, -1.0), 0))
    )
    stage = stage_of(copies, value.name or node.name, "plus", walk.as_written)
    signs = add_stage(walk, copies, stage, ())
    if count == 1:
        taken = signs.reshaped(value.shape).then(Scale(turn))
    else:
        taken = sum_of_signs(signs, value.shape, turn.astype(np.int8).reshape(grid))
    return taken.times(0.5).plus(count / 2 + base)


def check_levels(size: int, steps: int, node: OnnxNode) -> None:
    """Raise if so many positions with so many steps are too many neurons."""
    if size * steps > LARGEST_VALUE:
        raise node.unsupported(f"{size} values with {steps + 1} levels are too many neurons")


def sum_of_signs(signs: Value, shape: tuple[int, ...], turn: npt.NDArray[np.int8]) -> Value:
    """Sum up the signs of each position, whose directions are the rows of `turn`."""
    size, count = turn.shape
    matrix = csr_matrix(
        turn.reshape(-1).copy(),
        positions(size * count).astype(np.int32),
        (positions(size + 1) * count).astype(np.int32),
        (size, size * count),
    )
    return replace(signs, shape=shape, index=positions(size), matrix=matrix, levels=count)


def _constant_steps(
    thresholds: FloatArray, strict: Sequence[bool], value: Value
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Find the steps that a clipped value always takes, and those that it never takes."""
    grid = (value.size, len(strict))
    always, never = np.zeros(grid, dtype=bool), np.zeros(grid, dtype=bool)
    ranges = clipped_ranges(value)
    if ranges is None:
        return always, never
    table = np.column_stack([np.broadcast_to(thresholds, grid), ranges.which])
    different, which = np.unique(table, axis=0, return_inverse=True)
    for number, row in enumerate(different):
        low, high = ranges.different[int(row[-1])]
        at = which.reshape(-1) == number
        pairs = list(zip(map(Fraction, row[:-1].tolist()), strict, strict=True))
        always[at] = [low > t or (low == t and not below) for t, below in pairs]
        never[at] = [high < t or (high == t and below) for t, below in pairs]
    return always, never


def sign_columns(value: Value) -> tuple[IntArray, npt.NDArray[np.int8]]:
    """Find the signs that each position of a value with levels sums up, and their directions."""
    matrix = value.matrix
    columns = matrix.indices.reshape(-1, value.levels)[value.index]
    return columns.astype(np.int64), matrix.data.reshape(-1, value.levels)[value.index]


def expanded(matrix: Any, value: Value, node: OnnxNode) -> Any:
    """Multiply a matrix with the sums of signs that the positions of a value are."""
    if matrix.nnz * value.levels > MOST_CONNECTIONS:
        raise node.unsupported(
            f"{matrix.nnz * value.levels} connections are too many, because the quantiser before "
            f"it has {value.levels + 1} levels; one that only quantises the input can be left out "
            "for inputs that are quantised already"
        )
    columns, direction = sign_columns(value)
    return unsorted_rows(
        (matrix.data[:, None] * direction[matrix.indices]).reshape(-1),
        columns[matrix.indices].reshape(-1),
        matrix.indptr * np.asarray(value.levels, dtype=matrix.indptr.dtype),
        (matrix.shape[0], value.width),
    )


def pooled_levels(windows: Any, value: Value) -> Any:
    """Make the rows of the K sums of signs over each window, window by window.

    The maximum of the levels of a window is the number of steps that some position has taken,
    because the steps are in the order of their thresholds.
    """
    count = value.levels
    columns, direction = sign_columns(value)
    owner = np.repeat(positions(windows.shape[0]), np.diff(windows.indptr))
    rows = owner[:, None] * count + positions(count)
    order = np.argsort(rows.reshape(-1), kind="stable")
    lengths = np.repeat(np.diff(windows.indptr), count)
    return unsorted_rows(
        direction[windows.indices].reshape(-1)[order],
        columns[windows.indices].reshape(-1)[order],
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        (windows.shape[0] * count, value.width),
    )
