r"""Support functions h_B(v) = max {v.x : x in B}, as rigorous upper bounds.

Every function takes the vectors v as rows of a CSR matrix and returns floats that are *at least*
the true value: every Lagrangian multiplier gives an upper bound, and the rounding error of its
evaluation is added.  With the optimal multiplier the result is the support function up to about
1e-14 relative to sum |v_i x_i|.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.model.layers import ROUNDOFF
from bnncert.model.matrices import csr_matrix


def _row_ids(v: Any) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(v.shape[0]), np.diff(v.indptr))


def _row_sums(values: npt.NDArray[Any], rows: npt.NDArray[np.int64], count: int) -> FloatArray:
    return np.asarray(np.bincount(rows, weights=values, minlength=count), dtype=np.float64)


def rounding_error(v: Any, magnitude: FloatArray) -> FloatArray:
    """Bound the error of a float sum of products whose absolute values sum to `magnitude`."""
    terms = np.diff(v.indptr)
    # 1e-300 covers underflow: a product of denormals has no relative error bound.  The sum of an
    # empty row is exactly 0.
    return np.where(terms > 0, 1.02 * (terms + 8) * ROUNDOFF * magnitude + 1e-300, 0.0)


def same_places(v: Any, data: npt.NDArray[Any]) -> Any:
    """Make a CSR matrix with other entries that shares the index arrays of `v`."""
    return csr_matrix(data, v.indices, v.indptr, v.shape)


def box_support(v: Any, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Bound max v.x over lo <= x <= hi:  sum_i max(v_i lo_i, v_i hi_i)."""
    # One array serves all three products: allocating it costs more than the arithmetic.
    part = np.maximum(v.data, 0, dtype=np.float64)
    rows = same_places(v, part)
    value = np.asarray(rows @ hi, dtype=np.float64)
    np.minimum(v.data, 0, out=part, dtype=np.float64)
    value += rows @ lo
    np.abs(v.data, out=part, dtype=np.float64)
    reach = np.asarray(rows @ np.maximum(np.abs(lo), np.abs(hi)), dtype=np.float64)
    return value + rounding_error(v, reach)


def _offsets(
    v: Any, center: FloatArray, lo: FloatArray, hi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute lo - center and hi - center for every entry of v, rounded outwards."""
    low = np.nextafter((lo - center)[v.indices], -np.inf)
    return low, np.nextafter((hi - center)[v.indices], np.inf)


def l2_support(
    v: Any, center: FloatArray, radius: float, lo: FloatArray, hi: FloatArray
) -> FloatArray:
    r"""Bound max v.x over |x - c|_2 <= r and lo <= x <= hi (c inside the box).

    For any m >= 0, with z = x - c,

        h(v) <= v.c + m r^2 / 2 + sum_i max_{lo <= z + c <= hi} (v_i z_i - m z_i^2 / 2),

    and the inner maximum is at z_i = clip(v_i / m).  The best m solves sum z_i(m)^2 = r^2.  For a
    given set of clipped coordinates it is m = sqrt(sum_free v^2 / (r^2 - sum_clipped z^2)); the
    set grows with every iteration, so that the iteration ends.
    """
    count = v.shape[0]
    rows = _row_ids(v)
    data = v.data.astype(np.float64)
    # h is homogeneous: a power of two brings each row to size 1, so that squares stay in range.
    largest = np.zeros(count)
    np.maximum.at(largest, rows, np.abs(data))
    exponent = np.frexp(largest)[1]
    data = np.ldexp(data, -exponent[rows])
    low, high = _offsets(v, center, lo, hi)
    cap = np.where(data > 0, high, low)
    square = data * data
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        m = np.full(count, np.inf)
        if radius > 0:
            m = np.sqrt(_row_sums(square, rows, count)) / radius
        for _ in range(200):
            clipped = np.abs(data) >= np.abs(cap) * m[rows]
            free = _row_sums(np.where(clipped, 0.0, square), rows, count)
            used = _row_sums(np.where(clipped, cap * cap, 0.0), rows, count)
            left = radius * radius - used
            # The radius does not limit the free coordinates: only the box does, and m = 0.
            updated = np.where((free > 0) & (left > 0), np.sqrt(free / left), 0.0)
            updated = np.where((free > 0) & (left <= 0), m, updated)
            updated = np.minimum(m, updated)
            if np.all(updated >= m * (1 - 1e-15)):
                break
            m = updated
        z = np.where(m[rows] > 0, data / m[rows], cap)
    z = np.where(np.abs(z) >= np.abs(cap), cap, z)
    m = np.where(np.isfinite(m), m, 0.0)
    if radius == 0:
        z = np.zeros_like(z)
    gain = data * z - 0.5 * m[rows] * z * z
    shift = data * center[v.indices]
    ball = 0.5 * m * radius * radius
    value = _row_sums(gain + shift, rows, count) + ball
    # z is the maximiser up to rounding: where it is not clipped, the true inner maximum exceeds
    # the value at z by at most (v_i - m z_i)^2 / (2 m), far below the rounding bound added here.
    reach = (
        _row_sums(np.abs(shift) + 2 * np.abs(data * z) + m[rows] * z * z, rows, count) + 2 * ball
    )
    return np.asarray(np.ldexp(value + rounding_error(v, reach), exponent))


def l1_support(
    v: Any, center: FloatArray, radius: float, lo: FloatArray, hi: FloatArray
) -> FloatArray:
    r"""Bound max v.x over |x - c|_1 <= r and lo <= x <= hi (c inside the box).

    For any m >= 0:  h(v) <= v.c + m r + sum_i max(0, |v_i| - m) cap_i, where cap_i is the room
    towards the sign of v_i.  The best m is the |v_i| at which the sum of the caps, sorted by |v_i|,
    reaches r.
    """
    count = v.shape[0]
    rows = _row_ids(v)
    data = v.data.astype(np.float64)
    low, high = _offsets(v, center, lo, hi)
    room = np.where(data > 0, high, -low)
    order = np.lexsort((-np.abs(data), rows))
    sorted_room, sorted_size = room[order], np.abs(data)[order]
    total = np.cumsum(sorted_room)
    before = np.concatenate([[0.0], total])[v.indptr[:-1]]
    reached = total - before[rows] >= radius
    m = np.zeros(count)
    first = np.flatnonzero(reached)
    # The assignment runs backwards, so that the first index of each row remains.
    m[rows[first[::-1]]] = sorted_size[first[::-1]]
    excess = np.maximum(0.0, np.abs(data) - m[rows]) * room
    shift = data * center[v.indices]
    value = _row_sums(excess + shift, rows, count) + m * radius
    reach = _row_sums(np.abs(shift) + np.abs(data) * room, rows, count) + m * radius
    return value + rounding_error(v, reach)


def l0_support(
    v: Any, center: FloatArray, changes: int, lo: FloatArray, hi: FloatArray
) -> FloatArray:
    r"""Bound max v.x over lo <= x <= hi where at most k inputs differ from c (c inside the box).

    h(v) = v.c + the sum of the k largest max(v_i (hi_i - c_i), v_i (lo_i - c_i)).
    """
    count, rows = v.shape[0], _row_ids(v)
    data = v.data.astype(np.float64)
    low, high = _offsets(v, center, lo, hi)
    gain = np.maximum(data * high, data * low)
    order = np.lexsort((-gain, rows))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    kept = np.where(rank - v.indptr[:-1][rows] < changes, gain, 0.0)
    shift = data * center[v.indices]
    value = _row_sums(kept + shift, rows, count)
    return value + rounding_error(v, _row_sums(np.abs(shift) + kept, rows, count))
