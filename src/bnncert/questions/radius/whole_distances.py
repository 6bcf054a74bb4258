"""Distances from the centre as whole numbers.

With the places k_i of a grid (x_i = origin_i + step k_i) and those h_i of the centre, the count of
a point is

    L-inf  max_i |k_i - h_i|,     L1  sum_i |k_i - h_i|,     L2  sum_i (k_i - h_i)^2,

and the radius of a count m is step m, or step sqrt(m) for L2.  For L0 the count is the number of
inputs that differ from the centre, which needs no grid.

The count of a counterexample becomes smaller when changes are undone while the class stays wrong.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.errors import InputError
from bnncert.problem import Problem
from bnncert.regions import Ball, L0Ball

#: Candidates of one round of undoing changes, and the number of rounds.
MOST_SETS, MOST_ROUNDS = 64, 48

#: The largest count; the radii of larger consecutive counts may be equal as floats.
LARGEST_COUNT = 2**28


class WholeDistances:
    """The distances from the centre of a ball; raises InputError unless they are whole numbers."""

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


class Shrinking:
    """Moves a counterexample of a problem towards the centre."""

    def __init__(self, problem: Problem, counts: WholeDistances, deadline: Deadline) -> None:
        self._problem, self._counts, self._deadline = problem, counts, deadline
        self._rivals = np.array([t.rival for t in problem.targets], dtype=np.int64)

    def __call__(self, replayer: Replayer, found: Counterexample) -> Counterexample:
        """Return a nearer counterexample that is confirmed exactly, or the given one."""
        counts = self._counts
        places = start = counts.places(found.point)
        places = self._scaled(places) if counts.norm == "linf" else self._taken_back(places)
        if counts.of(places) >= counts.of(start):
            return found
        point = counts.points(places)
        margins = self._margins(places[None, :])[0]
        target = self._problem.targets[int(np.argmin(margins))]
        nearer = replayer.confirm(target, point)
        if nearer is None or counts.count(nearer.point) >= counts.of(start):
            return found
        return nearer

    def _margins(self, places: FloatArray) -> FloatArray:
        scores = self._problem.network.evaluate(self._counts.points(places))
        label = self._problem.label
        return np.asarray(scores[:, label, None] - scores[:, self._rivals])

    def _nearest(self, candidates: FloatArray) -> FloatArray | None:
        """Return the candidate with the least count whose class is wrong; ties by the margin."""
        if not len(candidates):
            return None
        margins = self._margins(candidates).min(axis=1)
        order = np.lexsort((margins, self._counts.of(candidates)))
        wrong = order[margins[order] <= 0]
        return candidates[wrong[0]] if wrong.size else None

    def _scaled(self, places: FloatArray) -> FloatArray:
        """Return the places with all changes clipped to the least possible count."""
        home = self._counts.home
        change = places - home
        most = int(np.abs(change).max(initial=0.0))
        cuts = np.unique(np.linspace(1, max(most - 1, 1), MOST_SETS).astype(np.int64))[:, None]
        nearer = self._nearest(home + np.clip(change, -cuts, cuts))
        return places if nearer is None else nearer

    def _taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places after unnecessary changes are undone, one by one."""
        places = self._many_taken_back(places)
        for _ in range(MOST_ROUNDS):
            if self._deadline.passed():
                break
            nearer = self._nearest(self._one_taken_back(places))
            if nearer is None:
                break
            places = nearer
        return places

    def _many_taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places after the changes with the least effect are undone together."""
        home = self._counts.home
        changed = np.flatnonzero(places != home)
        single = np.repeat(places[None, :], changed.size, axis=0)
        single[np.arange(changed.size), changed] = home[changed]
        if not changed.size:
            return places
        order = changed[np.argsort(self._margins(single).min(axis=1), kind="stable")]
        sizes = np.unique(np.linspace(1, order.size, MOST_SETS).astype(np.int64))
        sets = np.repeat(places[None, :], sizes.size, axis=0)
        for row, size in zip(sets, sizes.tolist(), strict=True):
            row[order[:size]] = home[order[:size]]
        nearer = self._nearest(sets)
        return places if nearer is None else nearer

    def _one_taken_back(self, places: FloatArray) -> FloatArray:
        """Return the places with one change undone: completely, by half, or by one step."""
        home = self._counts.home
        changed = np.flatnonzero(places != home)
        change = places[changed] - home[changed]
        kept = [np.zeros_like(change)]
        if self._counts.norm != "l0":
            kept += [np.trunc(change / 2), change - np.sign(change)]
        rows = np.repeat(places[None, :], changed.size * len(kept), axis=0)
        columns = np.tile(changed, len(kept))
        rows[np.arange(columns.size), columns] = home[columns] + np.concatenate(kept)
        return rows
