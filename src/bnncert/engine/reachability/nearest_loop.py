"""The point of a box that is nearest to its origin and has wanted signs, compiled by numba.

Over t with low <= t <= high, the half-spaces are a_j.t + beta_j >= margin.  The dual problem of
least squares has multipliers theta >= 0, v = sum theta_j a_j, and t = v cut to the box.  Sweeps
change one multiplier at a time (Hildreth's method), with the curvature of the part of the row where
t is not cut.
"""

from __future__ import annotations

import numba
import numpy as np

#: The least share of a row's length that counts as its curvature, where nearly all of it is cut.
LEAST_CURVATURE = 0.1


@numba.njit(cache=True, nogil=True, fastmath=True)
def _change(row, low, high, sums, point, length):
    """Move v by a multiple of a row, and t with it."""
    for i in range(row.size):
        total = sums[i] + length * row[i]
        sums[i] = total
        point[i] = min(max(total, low[i]), high[i])


@numba.njit(cache=True, nogil=True, fastmath=True)
def _look(row, low, high, sums, point):
    """Return a_j.t and the curvature along a row."""
    value, curvature = 0.0, 0.0
    for i in range(row.size):
        a = row[i]
        value += a * point[i]
        curvature += a * a if low[i] < sums[i] < high[i] else 0.0
    return value, curvature


@numba.njit(cache=True, nogil=True)
def nearest(rows, beta, low, high, margin, reach, sweeps, theta):
    """Return t and 1 if it has all signs, -1 if none within |t| <= reach has, 0 if unknown.

    The rows have length 1; theta is changed.  The answer -1 is a guess from the dual value: the
    caller checks theta.
    """
    count, size = rows.shape
    sums, point = np.zeros(size), np.zeros(size)
    for i in range(size):
        point[i] = min(max(0.0, low[i]), high[i])
    for j in range(count):
        if theta[j] > 0:
            _change(rows[j], low, high, sums, point, theta[j])
    for _ in range(sweeps):
        worst = 0.0
        for j in range(count):
            value, curvature = _look(rows[j], low, high, sums, point)
            short = margin - value - beta[j]
            worst = max(worst, short)
            if short <= 0 and theta[j] == 0:
                continue
            new = max(0.0, theta[j] + short / max(curvature, LEAST_CURVATURE))
            if new != theta[j]:
                _change(rows[j], low, high, sums, point, new - theta[j])
                theta[j] = new
        gain, square, support = 0.0, 0.0, 0.0
        for j in range(count):
            gain -= theta[j] * beta[j]
        for i in range(size):
            square += point[i] * point[i]
            support += sums[i] * point[i]
        if gain - support + square / 2 > reach * reach / 2:
            return point, -1
        if worst <= margin / 2 and square <= reach * reach:
            least = margin
            for j in range(count):
                value, _ = _look(rows[j], low, high, sums, point)
                least = min(least, value + beta[j])
            if least >= margin / 2:
                return point, 1
    return point, 0
