"""Quantisers on the network's values: those of QONNX, and Round, Floor and Ceil.

Quant of QONNX (which Brevitas and FINN write) divides by a scale, adds a zero point, rounds to an
integer of a few bits, and goes back:

    q(x) = s (clip(round(x / s + z), low, high) - z).

MultiThreshold counts the thresholds that its input reaches.  A rounded value with known bounds has
finitely many levels, too: round(v) >= k if and only if v > k - 1/2, or v = k - 1/2 and k is even.
The bounds are those of a Clip before it or after it; a sum of signs that is always an integer is
its own rounded value.  All of these are sums of signs (module `levels`), in exact arithmetic; on
constants Quant is computed in the element type of the file, as QONNX and Brevitas do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.model.description import Divide, Scale, Shift
from bnncert.model.formats.onnx.graph import STANDARD_DOMAINS, OnnxNode
from bnncert.model.formats.onnx.levels import Bound, check_levels, clipped_ranges, count_steps
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Tensor,
    Value,
    arithmetic_value,
    constant,
    depending,
    exact_floats,
    rows_of,
    scalar,
    spread,
)
from bnncert.model.thresholds import affine_coefficients

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


@dataclass(frozen=True, eq=False)
class _Format:
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
    scale, zero, bits = (
        constant(o, node, name) for o, name in zip(operands[1:], names, strict=True)
    )
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


def quantised_constant(node: OnnxNode, operands: Sequence[Any], opset: int) -> Tensor:
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
    table = exact_floats(
        constant(operands[1], node, "its list of thresholds"), node, "its list of thresholds"
    )
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
    ranges = [(-math.inf, math.inf)] if found is None else found.different
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
