"""Distances from the centre as whole numbers.

With the places k_i of a grid (x_i = origin_i + step k_i) and those h_i of the centre, the count of
a point is

    L-inf  max_i |k_i - h_i|,     L1  sum_i |k_i - h_i|,     L2  sum_i (k_i - h_i)^2,

and the radius of a count m is step m, or step sqrt(m) for L2.  For L0 the count is the number of
inputs that differ from the centre, which needs no grid.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions import Ball, L0Ball

#: The largest count; the radii of larger consecutive counts may be equal as floats.
LARGEST_COUNT = 2**28


class Counts:
    """The whole-number distances from the centre of a ball.

    Raises
    ------
    InputError
        If the distances are not whole numbers of one step.
    """

    def __init__(self, ball: Ball | L0Ball) -> None:
        self.ball = ball
        self.norm = str(ball.norm)
        self._values = ball.values
        self.step = 1.0
        if self.norm == "l0":
            return
        if self._values is None:
            raise InputError(
                "the exact smallest perturbation needs a grid (--grid 1px) or norm l0: real inputs "
                "may come as near to it as they like without attaining it"
            )
        steps = self._values.step
        self.step = float(steps[0])
        if np.any(steps != self.step):
            raise InputError("the smallest perturbation needs one grid step for all inputs")
        off = np.flatnonzero(~self._values.has(ball.middle))
        if off.size:
            i = int(off[0])
            raise InputError(
                "the smallest perturbation needs a centre on the grid: input "
                f"{i} = {ball.middle[i]:.9g} is not on it"
            )

    @cached_property
    def home(self) -> FloatArray:
        """The places of the centre."""
        return self.places(self.ball.middle)

    def places(self, point: FloatArray) -> FloatArray:
        """Return the places of grid points; without a grid (L0 needs none), the points."""
        return point if self._values is None else self._values.nearest(point)

    def points(self, places: FloatArray) -> FloatArray:
        """Return the points of places."""
        return places if self._values is None else self._values.at(places)

    def of(self, places: FloatArray) -> FloatArray:
        """Return the counts of places, of one point or of one in each row."""
        away = np.abs(places - self.home)
        if self.norm == "l0":
            return np.asarray(np.sum(away > 0, axis=-1, dtype=np.float64))
        if self.norm == "linf":
            return np.asarray(away.max(axis=-1, initial=0.0))
        return np.asarray((away if self.norm == "l1" else away * away).sum(axis=-1))

    def count(self, point: FloatArray) -> int:
        """Return the count of a point."""
        return int(self.of(self.places(point)))

    def radius(self, count: float) -> float:
        """Return the radius of the ball of the points up to a count."""
        return self.step * (math.sqrt(count) if self.norm == "l2" else count)

    def ball_of(self, count: float) -> Ball | L0Ball:
        """Return the ball of the points up to a count."""
        return self.ball.with_radius(self.radius(count))

    def within(self, radius: float) -> int:
        """Return the largest count of a radius."""
        share = radius / self.step
        return math.floor((share * share if self.norm == "l2" else share) * (1 + 1e-9) + 1e-9)

    @property
    def farthest(self) -> float:
        """The largest count in the data box; infinite without one."""
        ball = self.ball
        if self.norm == "l0":
            return float(self.home.size)
        if ball.clip_lo is None or ball.clip_hi is None:
            return math.inf
        assert self._values is not None
        low, high = self._values.first_from(ball.clip_lo), self._values.last_until(ball.clip_hi)
        return float(self.of(np.where(high - self.home > self.home - low, high, low)))

    def text(self, count: float | None) -> str:
        """Return a count with its unit."""
        if count is None or not math.isfinite(count):
            return "-"
        number = f"sqrt({int(count)})" if self.norm == "l2" else f"{int(count)}"
        unit = "input" if self.norm == "l0" else "step"
        return f"{number} {unit}" + ("" if count == 1 and self.norm != "l2" else "s")
