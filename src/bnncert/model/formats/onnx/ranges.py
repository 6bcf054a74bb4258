"""The range of a clipped value, after the arithmetic that follows the Clip.

Steps g that follow a Clip are affine and monotone.  A sign or a level compares g(clip(v)) with a
threshold t that lies inside the range of g over [low, high], and there

    g(clip(v)) >= t   if and only if   g(v) >= t,

so the Clip is left out.  A comparison with a threshold outside of the range is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from bnncert.arrays import IntArray
from bnncert.model.description import Divide, Scale, Shift, step_arrays
from bnncert.model.formats.onnx.value import Value

#: A rational, or an infinity.
Bound: TypeAlias = Fraction | float


@dataclass(frozen=True, eq=False)
class ClippedRanges:
    """The different ranges [low, high] of the positions of a value, and which one each has."""

    different: list[tuple[Bound, Bound]]
    which: IntArray


def clipped_ranges(value: Value) -> ClippedRanges | None:
    """Return the ranges of the positions of a clipped value; None if it is not clipped."""
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
    """Return the range after steps, each with its one number."""
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
