"""Norm balls on a grid: the radius in steps, and rounding of points into the ball."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.regions.grid import GridValues

#: Relative error of a radius that is meant as a number of steps.
RADIUS_ERROR = 1e-9


def radius_on_grid(norm: str, radius: float, values: GridValues, center: FloatArray) -> float:
    """Return the largest distance of grid points that the stated radius includes.

    Around a centre on the grid, distances are m steps (L1 and L-inf) or sqrt(m) steps (L2) for
    integers m, up to the rounding of the values.  The result is the largest one within the radius,
    increased by that rounding: in L1, a radius of 1.7 steps becomes 1 step.
    """
    step = float(values.step.min())
    error = 2 * float(values.rounding.max(initial=0.0))
    power = 2 if norm == "l2" else 1
    if not (np.all(values.has(center)) and np.all(values.step == step)):
        moved = 1.0 if norm == "linf" else float(center.size)
        return float(np.nextafter(radius * (1 + RADIUS_ERROR) + moved * error, np.inf))
    count = np.floor((radius / step) ** power * (1 + RADIUS_ERROR) + RADIUS_ERROR)
    base = step * float(count ** (1 / power))
    if error == 0 and Fraction(base) ** power == Fraction(step) ** power * int(count):
        return base
    # At most `count` inputs move, so their errors have an L2 norm of at most sqrt(count) errors.
    moved = 1.0 if norm == "linf" else float(count ** (1 / power))
    return float(np.nextafter(base * (1 + 4e-16), np.inf)) + moved * error if count else 0.0


def nearest_distances(
    values: GridValues, point: FloatArray, lo: FloatArray, hi: FloatArray
) -> list[Fraction]:
    """Return the exact distances of inputs from their grid values between grid values lo and hi."""
    places = values.nearest(point)
    near = np.array([np.clip(values.at(places + k), lo, hi) for k in (-2.0, -1.0, 0.0, 1.0, 2.0)])
    return [
        min(abs(Fraction(v) - Fraction(x)) for v in set(column))
        for column, x in zip(near.T.tolist(), point.tolist(), strict=True)
    ]


class BallRounding:
    """Rounds points to grid points of an L1 or L2 ball inside a box of places."""

    def __init__(
        self, norm: str, values: GridValues, center: FloatArray, radius: float, box: FloatArray
    ) -> None:
        self._values, self._center = values, center
        self._power = 2 if norm == "l2" else 1
        self._budget = radius**self._power * (1 + 1e-14)
        self._low, self._high = box
        self._central = np.clip(values.nearest(center), self._low, self._high)

    def _cost(self, places: FloatArray) -> FloatArray:
        return np.asarray(np.abs(self._values.at(places) - self._center) ** self._power)

    def __call__(self, points: FloatArray) -> FloatArray:
        """Return a grid point for each row; nearly all of them lie in the ball.

        It is the nearest grid point if that lies in the ball.  Otherwise the inputs that differ
        most from the centre move first, by at least a step, while the result stays in the ball.
        """
        places = np.clip(self._values.nearest(points), self._low, self._high)
        outside = self._cost(places).sum(axis=1) > self._budget
        lost = np.all(places == self._central, axis=1) & np.any(points != self._center, axis=1)
        for row in np.flatnonzero(outside | lost).tolist():
            places[row] = self._largest_first(points[row], places[row])
        return self._values.at(places)

    def _largest_first(self, point: FloatArray, nearest: FloatArray) -> FloatArray:
        away = point - self._center
        one = np.clip(self._central + np.sign(away), self._low, self._high)
        places: FloatArray = self._central.copy()
        left = self._budget - float(self._cost(places).sum())
        order = np.argsort(-np.abs(away), kind="stable")
        for wanted in (np.where(nearest == self._central, one, nearest), one):
            extra = (self._cost(wanted) - self._cost(places))[order]
            # Only inputs that have not moved yet may move.
            extra = np.where((places != self._central)[order] | (extra <= 0), 0.0, extra)
            total = np.cumsum(extra)
            fits = (total <= left) & (extra > 0)
            left -= float(extra[fits].sum())
            places[order[fits]] = wanted[order[fits]]
        return places
