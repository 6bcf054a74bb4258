r"""Activations with several levels as sums of signs: quantisers of QONNX, Round, Floor and Ceil.

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

Quant of QONNX (which Brevitas and FINN write) divides by a scale, adds a zero point, rounds to an
integer of a few bits, and goes back:

    q(x) = s (clip(round(x / s + z), low, high) - z).

MultiThreshold counts the thresholds that its input reaches.  A rounded value with known bounds has
finitely many levels, too: round(v) >= k if and only if v > k - 1/2, or v = k - 1/2 and k is even.
The bounds are those of a Clip before it or after it; a sum of signs that is always an integer is
its own rounded value.  All of these are sums of signs, in exact arithmetic; on constants Quant is
computed in the element type of the file, as QONNX and Brevitas do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import Divide, Scale, Shift, step_arrays, take_step
from bnncert.model.formats.onnx.exact import unsorted_rows
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, STANDARD_DOMAINS, OnnxNode
from bnncert.model.formats.onnx.shapes import MOST_CONNECTIONS
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Tensor,
    Value,
    add_stage,
    arithmetic_value,
    constant,
    constant_floats,
    depending,
    exact_floats,
    positions,
    rows_of,
    scalar,
    spread,
    stage_of,
)
from bnncert.model.matrices import csr_matrix
from bnncert.model.thresholds import affine_coefficients

# -- ranges of clipped values -------------------------------------------------------------

#: A rational, or an infinity.
Bound: TypeAlias = Fraction | float


def clipped_ranges(value: Value) -> tuple[list[tuple[Bound, Bound]], IntArray] | None:
    """Find the different ranges [low, high] of the positions of a value, and which one each has.

    None if the value is not clipped.
    """
    clip = value.clip
    if clip is None:
        return None
    start = _bound(clip.low), _bound(clip.high)
    after = value.steps[clip.after :]
    if not after:
        return [start], np.zeros(value.size, dtype=np.int64)
    table = np.column_stack([step_arrays(step)[0] for step in after])
    rows, which = np.unique(table, axis=0, return_inverse=True)
    kinds = [type(step) for step in after]
    found = [_moved(start, kinds, row) for row in rows.tolist()]
    return found, which.reshape(-1).astype(np.int64)


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
    bounds, of_each = ranges
    table = np.column_stack([np.broadcast_to(thresholds, grid), of_each])
    different, which = np.unique(table, axis=0, return_inverse=True)
    for number, row in enumerate(different):
        low, high = bounds[int(row[-1])]
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


#: Where these operators are defined: QONNX, FINN and earlier versions of Brevitas (as QONNX).
QONNX_DOMAINS = (
    *("qonnx.custom_op.general", "qonnx.custom_ops.general", "finn.custom_op.general"),
    "onnx.brevitas",
)

#: The most bits of a quantised value: 255 signs for each position.
MOST_BITS = 8

Rounding: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
#: The least number that is rounded to k or more, and whether it is itself rounded down.
FirstOf: TypeAlias = Callable[[int], tuple[float, bool]]


def _half(k: int, is_strict: bool) -> tuple[float, bool]:
    return k - 0.5, is_strict


def _whole(k: int, is_up: bool) -> tuple[float, bool]:
    """Find the least number of level k, or the open end k - 1 of those that are rounded up to k."""
    return (k - 1.0, True) if is_up else (float(k), False)


#: The rounding modes: on arrays, and as the smallest number of each level.
ROUNDINGS: dict[str, tuple[Rounding, FirstOf]] = {
    **dict.fromkeys(("ROUND", "HALF_EVEN"), (np.rint, lambda k: _half(k, k % 2 != 0))),
    "CEIL": (np.ceil, lambda k: _whole(k, True)),
    "FLOOR": (np.floor, lambda k: _whole(k, False)),
    "UP": (lambda x: np.sign(x) * np.ceil(np.abs(x)), lambda k: _whole(k, k > 0)),
    **dict.fromkeys(("DOWN", "ROUND_TO_ZERO"), (np.trunc, lambda k: _whole(k, k <= 0))),
    "HALF_UP": (
        lambda x: np.sign(x) * np.floor(np.abs(x) + x.dtype.type(0.5)),
        lambda k: _half(k, k <= 0),
    ),
    "HALF_DOWN": (
        lambda x: np.sign(x) * np.ceil(np.abs(x) - x.dtype.type(0.5)),
        lambda k: _half(k, k > 0),
    ),
}


def _level_starts(mode: str, low: int, high: int) -> tuple[FloatArray, list[bool]]:
    """Find the thresholds of the levels low + 1, .., high, and which of them are strict."""
    pairs = [ROUNDINGS[mode][1](k) for k in range(low + 1, high + 1)]
    return np.array([[start for start, _ in pairs]]), [is_strict for _, is_strict in pairs]


class _Format(NamedTuple):
    """The integers low, .., high and how numbers are rounded to them."""

    low: int
    high: int
    rounding: str
    #: One bit with a sign: -1 and 1, and no rounding.
    is_bipolar: bool


def quant(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Quant of a value that depends on the network's input."""
    value = depending(operands[0], node)
    names = ("its scale", "its zero point", "its bit width")
    scale, zero, bits = (constant(o, node, w) for o, w in zip(operands[1:], names, strict=True))
    kind = _format(node, bits)
    shape, divisor = spread(value, scale, node, names[0])
    value = value.reshaped(shape)
    shape, shift = spread(value, zero, node, names[1])
    value = value.reshaped(shape)
    if np.any(divisor <= 0):
        raise node.unsupported("its scale is not positive")
    thresholds, strict = np.zeros((1, 1)), [False]
    if not kind.is_bipolar:
        thresholds, strict = _level_starts(kind.rounding, kind.low, kind.high)
    scaled = arithmetic_value(value, node).then(Divide(divisor)).then(Shift(shift))
    taken = count_steps(walk, scaled, node, thresholds, strict)
    if kind.is_bipolar:
        taken = taken.times(2.0)
    # Two shifts, because their sum need not be a float.
    return taken.plus(kind.low).then(Shift(-shift)).then(Scale(divisor))


def quantised_constant(node: OnnxNode, operands: Sequence[Any]) -> Tensor:
    """Quant of a constant, in its own element type."""
    data = operands[0]
    kind = _format(node, operands[3])
    scale, zero = (operand.astype(data.dtype) for operand in operands[1:3])
    if np.any(scale <= 0):
        raise node.unsupported("its scale is not positive")
    scaled = np.asarray(data / scale + zero)
    if kind.is_bipolar:
        whole = np.where(scaled >= 0, 1, -1).astype(data.dtype)
    else:
        whole = ROUNDINGS[kind.rounding][0](np.clip(scaled, kind.low, kind.high))
    return np.asarray((whole - zero) * scale, dtype=data.dtype)


def _format(node: OnnxNode, width: Tensor) -> _Format:
    number = float(scalar(exact_floats(width, node, "its bit width"), node, "its bit width", 8))
    if number != int(number) or not 1 <= number <= MOST_BITS:
        raise node.unsupported(f"{number:g} bits; supported are 1 to {MOST_BITS} whole bits")
    bits = int(number)
    signed, narrow = node.integer("signed", 1) != 0, node.integer("narrow", 1) != 0
    rounding = node.text("rounding_mode", "ROUND").upper()
    if rounding not in ROUNDINGS:
        raise node.unsupported(
            f"rounding_mode {rounding}; supported are {', '.join(sorted(ROUNDINGS))}"
        )
    if signed and bits == 1:
        return _Format(-1, 1, rounding, is_bipolar=True)
    if signed:
        half = 2 ** (bits - 1)
        return _Format(1 - half if narrow else -half, half - 1, rounding, is_bipolar=False)
    return _Format(0, 2**bits - (2 if narrow else 1), rounding, is_bipolar=False)


def multi_threshold(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """MultiThreshold of FINN: out_scale times the number of thresholds reached, plus out_bias."""
    value = depending(operands[0], node)
    table = constant_floats(operands[1], node, "its list of thresholds")
    rank = len(value.shape)
    layout = node.text("data_layout", "")
    if rank not in (2, 4) or layout not in ("", "NC", "NCHW", "NHWC"):
        raise node.unsupported(
            f"its input has shape {value.shape} and layout {layout!r}; expected (1, C), NCHW or "
            "NHWC"
        )
    axis = 3 if layout == "NHWC" and rank == 4 else 1
    channels = value.shape[axis]
    if table.ndim != 2 or table.shape[0] not in (1, channels):
        raise node.unsupported(f"thresholds of shape {table.shape} for {channels} channels")
    scale, bias = node.number("out_scale", 1.0), node.number("out_bias", 0.0)
    if not (np.isfinite(scale) and scale != 0 and np.isfinite(bias)):
        raise node.unsupported(f"out_scale {scale:g} and out_bias {bias:g}")
    check_levels(value.size, table.shape[1], node)
    thresholds = np.sort(table, axis=1)
    if table.shape[0] > 1:
        thresholds = thresholds[value.along(np.arange(channels), axis)]
    taken = count_steps(walk, value, node, thresholds, [False] * table.shape[1])
    return taken.times(scale).plus(bias)


#: The operators of QONNX on values, apart from BipolarQuant, and on constants.
QUANTISERS: dict[str, Callable[[GraphWalk, OnnxNode, Sequence[Operand]], Value]] = {
    **dict.fromkeys(("Quant", "IntQuant"), quant),
    "MultiThreshold": multi_threshold,
}
CONSTANT_QUANTISERS = dict.fromkeys(("Quant", "IntQuant"), quantised_constant)


def check_domain(node: OnnxNode) -> None:
    """Raise for operators that are neither of ONNX nor supported ones of QONNX."""
    known = node.op in QUANTISERS
    if node.op == "BipolarQuant" or (node.domain in STANDARD_DOMAINS and not known):
        return
    if known and node.domain in (*STANDARD_DOMAINS, *QONNX_DOMAINS):
        return
    if node.domain.startswith(("finn.", "qonnx.", "onnx.brevitas")):
        hint = (
            "this operator of QONNX or FINN is not supported; supported are BipolarQuant, Quant, "
            "IntQuant and MultiThreshold: export with brevitas.export.export_qonnx, and give "
            "FINN's model before its conversion to hardware layers"
        )
    else:
        hint = "export the model with the operators of ONNX, or as QONNX"
    raise node.unsupported(f"operators of domain {node.domain} are not supported; {hint}")


# -- Round, Floor and Ceil ----------------------------------------------------------------

#: For each operator the rounding of rationals (Python's own is half to even), and the name of the
#: mode in QONNX.
OPERATORS: dict[str, tuple[Callable[[Fraction], int], str]] = {
    "Round": (round, "HALF_EVEN"),
    "Floor": (math.floor, "FLOOR"),
    "Ceil": (math.ceil, "CEIL"),
}


def round_off(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Round, Floor or Ceil; without bounds, a Clip has to follow."""
    value = arithmetic_value(operands[0], node)
    if value.clip is None and _is_integer(value, node):
        return value
    return limited(walk, replace(value, rounding=node), -math.inf, math.inf)


def limited(walk: GraphWalk, value: Value, low: float, high: float) -> Value:
    """Write a rounded value in [low, high] as levels.

    If there are still infinitely many, the value is returned as it is, with its `rounding`.
    """
    node = value.rounding
    assert node is not None
    rounded, mode = OPERATORS[node.op]
    found = clipped_ranges(value)
    ranges = [(-math.inf, math.inf)] if found is None else found[0]
    ends: list[Bound] = [
        max(min(_apply(rounded, low) for low, _ in ranges), low),
        min(max(_apply(rounded, high) for _, high in ranges), high),
    ]
    if any(math.isinf(end) for end in ends):
        return value
    first, last = (int(end) for end in ends)
    if not first < last or first != ends[0] or last != ends[1]:
        raise node.unsupported(
            "its result is constant, or is clipped to something other than integers"
        )
    check_levels(value.size, last - first, node)
    bounded = replace(value, rounding=None)
    taken = count_steps(walk, bounded, node, *_level_starts(mode, first, last))
    return taken.plus(first)


def _apply(rounded: Callable[[Fraction], int], bound: Bound) -> Bound:
    return bound if isinstance(bound, float) else Fraction(rounded(bound))


def _is_integer(value: Value, node: OnnxNode) -> bool:
    """Whether every entry is an integer for all signs.

    An entry is a <w, s> + c with integers w and signs s.  It is a <w, 1> + c if all signs are +1,
    and each sign that is not changes it by 2 a w_i.
    """
    if not value.signs or value.pool is not None:
        return False
    rows = rows_of(value)
    if not np.array_equal(rows.data, np.rint(rows.data)) or np.any(np.abs(rows.data) > 2**20):
        return False
    sums = np.asarray(rows.astype(np.int64).sum(axis=1)).reshape(-1)
    factors = np.ones(value.size) if value.factor is None else value.factor[value.index]
    affine = affine_coefficients(value.steps, value.size, node.place)
    kinds = set(zip(affine.group.tolist(), factors.tolist(), sums.tolist(), strict=True))
    first = dict(zip(affine.group.tolist(), range(value.size), strict=True))
    for group, factor, total in kinds:
        gain, offset = affine.gain[first[group]], affine.offset[first[group]]
        if not (gain.is_exact and offset.is_exact):
            return False
        a = gain.lo * Fraction(factor)
        if (2 * a).denominator != 1 or (a * total + offset.lo).denominator != 1:
            return False
    return True
