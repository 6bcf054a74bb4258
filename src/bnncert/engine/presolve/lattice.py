r"""Thresholds of first-layer neurons on a grid: sums of grid values take few values.

With inputs origin_i + step k_i, up to rounding errors, and weights that are multiples of some unit,
w.x is base + g m for an integer m, where g is the greatest common divisor of the w_i times the
step.  So w.x >= p means w.x >= base + g ceil((p - base) / g), and w.x <= q likewise.  With E the
rounding errors of the values and of the sums here,

    w.x >= p   implies   w.x >= base + g ceil((p - base - E) / g) - E.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.regions import Region

#: Weights are multiples of one over these units, if of any.
UNITS = (1, 2, 4, 8, 16)


def first_layer_thresholds(
    layer: ThresholdLayer, region: Region, neurons: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return p and q of all or some neurons: +1 needs w.x >= p, and -1 needs w.x <= q.

    On a grid, both are thresholds of the points of the region only.
    """
    plus, minus = layer.plus_from, layer.minus_upto
    if neurons is not None:
        plus, minus = plus[neurons], minus[neurons]
    values = region.values
    if values is None:
        return plus, minus
    open_ = region.lo < region.hi
    steps = np.unique(values.step[open_])
    if steps.size != 1:
        return plus, minus
    rows = (layer.weights if neurons is None else layer.weights[neurons]).astype(np.float64)
    divisor = float(steps[0]) * _divisors(rows, open_)
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi)) + np.abs(values.origin)
    size = np.asarray(abs(rows) @ reach) + np.maximum(np.abs(plus), np.abs(minus))
    error = np.asarray(abs(rows) @ np.where(open_, values.rounding, 0.0))
    error += 16 * (np.diff(rows.indptr) + 8) * ROUNDOFF * size + 1e-300
    base = np.asarray(rows @ np.where(open_, values.origin, region.lo))
    usable = (divisor > 4 * error) & (size < 2.0**40 * divisor)
    divisor = np.where(usable, divisor, 1.0)
    # Counts are rounded by less than `error`, of which half would be enough.
    first = np.ceil((plus - base - 2 * error) / divisor)
    last = np.floor((minus - base + 2 * error) / divisor)
    higher = np.maximum(plus, base + divisor * first - 2 * error)
    lower = np.minimum(minus, base + divisor * last + 2 * error)
    return np.where(usable, higher, plus), np.where(usable, lower, minus)


def _divisors(rows: Any, open_: Any) -> FloatArray:
    """Return the greatest common divisor of the weights of open inputs; 0 if there is none."""
    data = np.where(open_[rows.indices], np.abs(rows.data), 0.0)
    for unit in UNITS:
        whole = data * unit
        if np.array_equal(whole, np.rint(whole)) and float(whole.max(initial=0.0)) < 2**40:
            integers, found = whole.astype(np.int64), np.zeros(rows.shape[0], dtype=np.int64)
            filled = np.flatnonzero(np.diff(rows.indptr))
            if filled.size:
                found[filled] = np.gcd.reduceat(integers, rows.indptr[filled])
            return np.asarray(found / unit)
    return np.zeros(rows.shape[0])
