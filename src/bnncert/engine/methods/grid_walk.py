"""Local search for counterexamples among points that few steps separate.

A ball of the L1, L2 or L0 norm that contains few grid points gives gradients little room: rounding
takes back most of what a gradient step changed.  This search changes one input at a time.  Of some
inputs, drawn with more chance for large derivatives of the surrogate, each is moved by one step
against its derivative (in an L0 ball: to the end of its range).  If the result is outside the
ball, other inputs are moved back towards the centre, those first whose derivatives allow it at the
least loss.  The best of these points is the next one, even if it is worse than the point before,
and inputs that have just changed stay as they are for some steps (tabu search).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray
from bnncert.regions import Region

#: How many points walk at once, and among how many neighbours each chooses.
WALKERS, NEIGHBOURS = 12, 10

#: The largest number of steps from the centre to a point of the ball, by norm.
MOST_STEPS = {"l0": 200, "l1": 200, "l2": 50}

#: For how many steps an input stays as it is after a change, at least and at most.
TABU = (3, 12)

#: How often the inputs of a neighbour are moved back to the ball before it is given up.
RETURNS = 12

#: Share of the moves in an L0 ball that end inside the range of an input rather than at its end.
INSIDE = 0.25


class Surrogate(Protocol):
    """Values and surrogate gradients of all targets at a batch of points."""

    def values(self, points: FloatArray) -> FloatArray:
        """Return F of every target, for each point."""

    def gradient(
        self, points: FloatArray, targets: npt.NDArray[np.int64], scale: FloatArray
    ) -> FloatArray:
        """Return the derivatives of F of one target for each point."""


def has_few_points(region: Region) -> bool:
    """Whether few steps lead to every point: a small L0 ball, or L1 or L2 ball on a grid."""
    if region.norm == "l0":
        return 0 < region.radius <= MOST_STEPS["l0"]
    if region.norm not in ("l1", "l2") or region.values is None:
        return False
    steps = region.radius / float(region.values.step.min())
    return (steps**2 if region.norm == "l2" else steps) <= MOST_STEPS[region.norm]


class GridWalk:
    """Points that walk through a ball, each towards a counterexample for its own target."""

    def __init__(
        self,
        region: Region,
        surrogate: Surrogate,
        generator: np.random.Generator,
        points: FloatArray,
        targets: npt.NDArray[np.int64],
    ) -> None:
        self._region, self._surrogate, self._generator = region, surrogate, generator
        self._points, self._targets = points, targets
        self._tabu = np.zeros(points.shape, dtype=np.int64)
        self._power = {"l1": 1, "l2": 2}.get(region.norm or "", 0)
        self._budget = region.radius ** max(self._power, 1) * (1 + 1e-14)

    def step(self) -> tuple[FloatArray, FloatArray]:
        """Make one step of all points; return the neighbours and the values of all targets."""
        count = self._points.shape[0]
        # Wide and narrow windows see different neurons.
        scale = np.exp(self._generator.uniform(-2.5, 0.7, size=(count, 1)))
        gradient = self._surrogate.gradient(self._points, self._targets, scale)
        walker = np.repeat(np.arange(count), NEIGHBOURS)
        start, slope = self._points[walker], gradient[walker]
        is_free = self._tabu[walker] == 0
        moved = self._moved(start, slope)
        gain = np.where(is_free & (moved != start), slope * (start - moved), -np.inf)
        chosen = self._draw(gain)
        rows = np.arange(chosen.size)
        neighbours = start.copy()
        neighbours[rows, chosen] = moved[rows, chosen]
        self._return_to_ball(neighbours, slope, chosen)
        values = self._surrogate.values(neighbours)
        values[self._costs(neighbours).sum(axis=1) > self._budget] = np.inf
        own = values[rows, self._targets[walker]]
        best = own.reshape(count, NEIGHBOURS).argmin(axis=1) + NEIGHBOURS * np.arange(count)
        keeps = np.isinf(own[best])
        following = np.where(keeps[:, None], self._points, neighbours[best])
        rest = self._generator.integers(TABU[0], TABU[1] + 1, size=self._points.shape)
        changed = following != self._points
        self._tabu = np.where(changed, rest, np.maximum(self._tabu - 1, 0))
        self._points = following
        return neighbours, values

    def _moved(self, points: FloatArray, slope: FloatArray) -> FloatArray:
        """Return for each input its value after a move against the derivative."""
        region, values = self._region, self._region.values
        direction = np.where(slope == 0, self._generator.choice([-1.0, 1.0], slope.shape), slope)
        if self._power and values is not None:
            places = values.nearest(points) - np.sign(direction)
            low, high = values.nearest(region.lo), values.nearest(region.hi)
            return values.at(np.clip(places, low, high))
        end = np.where(direction > 0, region.lo, region.hi)
        share = self._generator.uniform(size=points.shape)
        inside = region.middle + share * (end - region.middle)
        if values is not None:
            inside = values.at(values.nearest(inside))
        is_inside = self._generator.uniform(size=points.shape) < INSIDE
        return np.where(is_inside, inside, end)

    def _draw(self, gain: FloatArray) -> npt.NDArray[np.int64]:
        """Return an input for each row, with chances that grow with the gain."""
        largest = np.max(np.where(np.isfinite(gain), gain, 0.0), axis=1, keepdims=True)
        share = np.maximum(gain, 0.0) / np.maximum(largest, 1e-300)
        noise = self._generator.gumbel(size=gain.shape)
        # Also inputs without a derivative get a chance, since the surrogate does not see all.
        score = np.where(np.isfinite(gain), np.log(share + 1e-3) + noise, -np.inf)
        return np.asarray(score.argmax(axis=1))

    def _costs(self, points: FloatArray) -> FloatArray:
        away = np.abs(points - self._region.middle)
        return away**self._power if self._power else (away != 0).astype(np.float64)

    def _return_to_ball(
        self, points: FloatArray, slope: FloatArray, kept: npt.NDArray[np.int64]
    ) -> None:
        """Move inputs back towards the centre until the points are in the ball, in place."""
        for _ in range(RETURNS):
            costs = self._costs(points)
            outside: BoolArray = costs.sum(axis=1) > self._budget
            rows = np.flatnonzero(outside)
            if not rows.size:
                return
            back = self._towards_centre(points[rows])
            freed = costs[rows] - self._costs(back)
            freed[np.arange(rows.size), kept[rows]] = 0.0
            # The loss per unit of the budget that the input gives back.
            loss = slope[rows] * (back - points[rows]) / np.where(freed > 0, freed, np.inf)
            scale = np.maximum(np.abs(loss).max(axis=1, keepdims=True), 1e-300)
            noise = self._generator.gumbel(size=loss.shape)
            released = np.where(freed > 0, loss / scale - 0.05 * noise, np.inf).argmin(axis=1)
            points[rows, released] = back[np.arange(rows.size), released]

    def _towards_centre(self, points: FloatArray) -> FloatArray:
        region, values = self._region, self._region.values
        if not self._power or values is None:
            return np.broadcast_to(region.middle, points.shape)
        places, central = values.nearest(points), values.nearest(region.center)
        return values.at(places + np.sign(central - places))
