"""Round, Floor and Ceil of values that depend on the network's input.

A rounded value with known bounds has finitely many levels, and is a sum of signs as a quantiser
(module `levels`): round(v) >= k if and only if v > k - 1/2, or v = k - 1/2 and k is even.  The
bounds are those of a Clip before it or after it.  A sum of signs that is always an integer is its
own rounded value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.model.description import Shift
from bnncert.model.formats.onnx.graph import OnnxNode
from bnncert.model.formats.onnx.levels import Steps, check_levels, count_steps
from bnncert.model.formats.onnx.operands import arithmetic_value
from bnncert.model.formats.onnx.qonnx import ROUNDINGS
from bnncert.model.formats.onnx.ranges import Bound, clipped_ranges
from bnncert.model.formats.onnx.stages import rows_of
from bnncert.model.formats.onnx.value import GraphWalk, Operand, Value
from bnncert.model.thresholds import affine_coefficients

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
    """Return the levels of a rounded value in [low, high].

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
    steps = [ROUNDINGS[mode][1](k) for k in range(first + 1, last + 1)]
    thresholds, strict = ([step[part] for step in steps] for part in (0, 1))
    taken = count_steps(
        walk,
        replace(value, rounding=None),
        node,
        Steps(
            np.array([thresholds]),
            np.array(strict, dtype=bool),
            value.uniformly(1.0),
            value.uniformly(0.0),
        ),
    )
    return taken.then(Shift(taken.uniformly(float(first))))


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
