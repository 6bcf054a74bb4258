"""Balls of the L-inf, L2, L1 and L0 norm inside a data box, and their rounding to a grid."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import ROUNDOFF
from bnncert.regions.grid import Grid, GridLike, GridValues, as_grid
from bnncert.regions.region import (
    LARGEST_VALUE,
    EmptyRegionError,
    Point,
    Region,
    checked_vector,
    tightened,
)
from bnncert.regions.support import box_support, l0_support, l1_support, l2_support

Norm: TypeAlias = Literal["linf", "l2", "l1"]

#: The norms of balls: those of :class:`Ball`, and the number of inputs that change.
BallNorm: TypeAlias = Literal["linf", "l2", "l1", "l0"]

#: Relative error of a radius that is meant as a number of steps.
RADIUS_ERROR = 1e-9


class Ball(Region):
    """``|x - center|_norm <= radius``, intersected with a data box clip_lo <= x <= clip_hi.

    On a grid, `radius` includes the rounding errors of the grid's values (`radius_on_grid`);
    `stated_radius` is the radius that the caller gave.

    Parameters
    ----------
    norm
        "linf", "l2" or "l1".
    center
        The centre; an array of any shape is flattened in C order.
    radius
        The radius in input units.
    clip_lo, clip_hi
        The data box: one number for all inputs, or one for each; None for no limit.
    grid
        The :class:`Grid` of the inputs that count, or its step; None for real inputs.

    Raises
    ------
    InputError
        If a number is not finite, the radius is negative, sizes differ, or the centre of an L2 or
        L1 ball lies outside the data box.
    EmptyRegionError
        If the ball has no point in the data box.

    Examples
    --------
    >>> import bnncert
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2, clip_lo=-1, clip_hi=1)
    >>> ball
    Ball(linf, radius 0.2, data box [-1, 1], 2 inputs)
    >>> ball.contains([0.375, -0.125]), ball.contains([0.25, 0])
    (True, False)
    """

    #: Unlike an L0 ball, this one has no limit of its own for single inputs.
    within: float | None = None

    def __init__(
        self,
        norm: Norm,
        center: npt.ArrayLike,
        radius: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        grid: GridLike = None,
    ) -> None:
        if norm not in ("linf", "l2", "l1"):
            raise InputError(f"norm is {norm!r}; expected linf, l2 or l1")
        self.norm: Norm = norm
        self.middle = checked_vector(center, None, "input")
        self.radius = float(radius)
        if not np.isfinite(self.radius) or self.radius < 0:
            raise InputError(f"radius is {radius}; expected a finite number >= 0")
        if self.radius > LARGEST_VALUE:
            raise InputError(f"radius is {radius:.3g}; expected at most {LARGEST_VALUE:g}")
        self._set_data_box(clip_lo, clip_hi)
        self.stated_radius = self.radius
        self.grid = as_grid(grid)
        if self.grid is not None:
            self.values = self._values(self.grid)
            self.radius = radius_on_grid(norm, self.radius, self.values, self.middle)
        self.reach = self.radius
        # c - r is rounded outwards unless the subtraction is exact.
        self.lo = _outward(self.middle, -self.radius, -np.inf)
        self.hi = _outward(self.middle, self.radius, np.inf)
        if self.clip_lo is not None:
            self.lo = np.maximum(self.lo, self.clip_lo)
        if self.clip_hi is not None:
            self.hi = np.minimum(self.hi, self.clip_hi)
        if np.any(self.lo > self.hi):
            i = int(np.flatnonzero(self.lo > self.hi)[0])
            raise EmptyRegionError(
                f"the region is empty: the ball around input {i} = {self.middle[i]:.9g} has no "
                "point in the data box"
            )
        self.center = np.clip(self.middle, self.lo, self.hi)
        if norm != "linf" and np.any(self.center != self.middle):
            i = int(np.flatnonzero(self.center != self.middle)[0])
            raise InputError(
                f"input {i} = {self.middle[i]:.9g} lies outside the data box; an {norm} ball "
                "needs its centre inside"
            )
        if self.values is not None:
            self._restrict_to_grid(self.values)

    @staticmethod
    def of_data_box(
        center: FloatArray, lo: Any | None, hi: Any | None, grid: GridLike = None
    ) -> Ball:
        """Take a whole data box as the L-inf ball around a centre in it."""
        if lo is None or hi is None:
            raise InputError("the network states no data box; give a radius or a data box")
        return Ball("linf", center, box_reach(center, lo, hi), lo, hi, grid)

    def _words(self) -> list[str]:
        return [f"{self.norm}, radius {self.stated_radius:.6g}", *self._clip_words()]

    def _values(self, grid: Grid) -> GridValues:
        """Make the values of the grid; raise if a step is wider than the data box."""
        is_bounded = self.clip_lo is not None and self.clip_hi is not None
        room = 0.0 if is_bounded else self.radius
        values = GridValues(grid, self.middle.size, self._known_values, room)
        if self.clip_lo is not None and self.clip_hi is not None:
            width = self.clip_hi - self.clip_lo
            wide = np.flatnonzero((values.step > width * (1 + 1e-9)) & (width > 0))
            if wide.size:
                i = int(wide[0])
                raise InputError(
                    f"grid step {values.step[i]:.9g} is larger than the data box "
                    f"[{self.clip_lo[i]:.9g}, {self.clip_hi[i]:.9g}] of input {i}"
                )
        return values

    def _restrict_to_grid(self, values: GridValues) -> None:
        """Tighten the bounding box to grid values, and move the centre to the grid."""
        self.lo, self.hi = tightened(values, self.lo, self.hi)
        low, high = values.nearest(self.lo), values.nearest(self.hi)
        self._rounding: BallRounding | None = None
        if self.norm != "linf":
            box = np.stack([low, high])
            self._rounding = BallRounding(self.norm, values, self.middle, self.radius, box)
        self.center = values.at(np.clip(values.nearest(self.middle), low, high))
        # Decided exactly: the nearest grid point lies outside the ball.
        if not self._contains(self.center) and not self._is_within(
            nearest_distances(values, self.middle, self.lo, self.hi)
        ):
            raise EmptyRegionError("the region is empty: the grid has no point in the ball")
        if self.norm != "linf":
            # The support functions need the centre of the ball inside the box.
            self.lo, self.hi = np.minimum(self.lo, self.middle), np.maximum(self.hi, self.middle)

    @property
    def notes(self) -> tuple[str, ...]:
        """A remark if the centre is not on the grid."""
        if self.values is None:
            return ()
        off = np.flatnonzero(~self.values.has(self.middle))
        if not off.size:
            return ()
        i = int(off[0])
        place = np.floor((self.middle - self.values.origin) / self.values.step)
        below, above = self.values.at(place)[i], self.values.at(place + 1)[i]
        return (
            f"{off.size} inputs of the centre are not on the grid, the first is input {i} = "
            f"{self.middle[i]:.9g} between {below:.9g} and {above:.9g}; the ball stays around it",
        )

    def on_grid(self, points: FloatArray) -> FloatArray:
        """Round points to grid points of the ball."""
        if self._rounding is None:
            return super().on_grid(points)
        return self._rounding(points)

    @property
    def is_box(self) -> bool:
        """Whether the region is the box from `lo` to `hi`, up to their rounding."""
        return self.norm == "linf"

    def _support(self, rows: Any) -> FloatArray:
        box = box_support(rows, self.lo, self.hi)
        if self.norm == "linf":
            return box
        function = l2_support if self.norm == "l2" else l1_support
        return np.minimum(box, function(rows, self.middle, self.radius, self.lo, self.hi))

    def _contains(self, point: Point) -> bool:
        # Python compares rationals with floats exactly.
        place = np.asarray(point)
        if self.clip_lo is not None and np.any(place < self.clip_lo):
            return False
        if self.clip_hi is not None and np.any(place > self.clip_hi):
            return False
        if isinstance(point, np.ndarray):
            distance = np.abs(point - self.middle)
            if self.norm == "linf":
                # A float difference has a relative error of 2^-53: only near-ties need rationals.
                if np.any(distance > self.radius * (1 + 1e-15)):
                    return False
                close = np.flatnonzero(distance >= self.radius * (1 - 1e-15))
                radius = Fraction(self.radius)
                return all(
                    abs(Fraction(float(point[i])) - Fraction(float(self.middle[i]))) <= radius
                    for i in close
                )
            largest = float(distance.max(initial=0.0))
            order = 2 if self.norm == "l2" else 1
            size = float(np.linalg.norm(distance, order))
            slack = 4 * ROUNDOFF * (self.size + 4)
            # Squares of very small or large numbers underflow or overflow.
            usual = largest == 0 or 1e-140 < largest < 1e140
            if usual and abs(size - self.radius) > slack * max(size, self.radius):
                return size <= self.radius
        pairs = zip(place.tolist(), self.middle.tolist(), strict=True)
        gaps = [abs(Fraction(x) - Fraction(c)) for x, c in pairs]
        return self._is_within(gaps)

    def _is_within(self, gaps: list[Fraction]) -> bool:
        """Whether the norm of the distances of all inputs is at most the radius, exactly."""
        radius = Fraction(self.radius)
        if self.norm == "linf":
            return max(gaps) <= radius
        if self.norm == "l1":
            return sum(gaps) <= radius
        return sum(g * g for g in gaps) <= radius * radius

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Draw uniform points of the ball, moved to the data box where they leave it."""
        shape = (count, self.size)
        if self.norm == "linf":
            points = generator.uniform(self.lo, self.hi, size=shape)
            return np.clip(points, self.lo, self.hi)
        if self.norm == "l2":
            step = generator.standard_normal(shape)
            length = np.linalg.norm(step, axis=1, keepdims=True)
        else:
            step = generator.standard_exponential(shape) * generator.choice([-1.0, 1.0], shape)
            length = np.abs(step).sum(axis=1, keepdims=True)
        reach = generator.uniform(size=(count, 1)) ** (1.0 / self.size) * self.radius
        if self.values is not None:
            # Steps of all inputs together would leave the ball, so only some inputs move.
            share = generator.uniform(size=(count, 1))
            step = np.where(generator.uniform(size=shape) < share, step, 0.0)
        # The box contains the centre, so clipped points stay in the ball.
        points = self.middle + step / np.maximum(length, 1e-300) * reach
        return np.asarray(np.clip(points, self.lo, self.hi))

    def _project(self, points: FloatArray) -> FloatArray:
        """Move points to the nearest ones of both ball and data box, by bisection."""
        if self.norm == "linf":
            return np.clip(points, self.lo, self.hi)
        step = points - self.middle
        low, high = self.lo - self.middle, self.hi - self.middle

        def shrunk(multiplier: FloatArray) -> FloatArray:
            moved = step / (1 + multiplier)
            if self.norm == "l1":
                moved = np.sign(step) * np.maximum(np.abs(step) - multiplier, 0.0)
            return np.asarray(np.clip(moved, low, high))

        def length(move: FloatArray) -> FloatArray:
            order = 2 if self.norm == "l2" else 1
            return np.asarray(np.linalg.norm(move, order, axis=1, keepdims=True))

        below = np.zeros((points.shape[0], 1))
        inside = length(shrunk(below)) <= self.radius
        above = np.abs(step).max(axis=1, keepdims=True)
        if self.norm == "l2":
            above = length(step) / max(self.radius, 1e-300)
        for _ in range(60):
            half = (below + above) / 2
            outside = length(shrunk(half)) > self.radius
            below, above = np.where(outside, half, below), np.where(outside, above, half)
        return np.clip(self.middle + shrunk(np.where(inside, 0.0, above)), self.lo, self.hi)

    def _describe(self, radius: str) -> str:
        name = {"linf": "L-inf", "l2": "L2", "l1": "L1"}[self.norm]
        text = f"{name} ball of radius {radius or format(self.stated_radius, '.9g')}"
        return text + self._clip_text()

    def with_radius(self, radius: float) -> Ball:
        """Make the ball of another radius around the same centre."""
        return Ball(self.norm, self.middle, radius, self.clip_lo, self.clip_hi, self.grid)

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State the norm and the exact radius, with the centre and the data box."""
        return self._stated_ball(self.radius)

    def _plain_data(self) -> dict[str, Any]:
        return self._plain_ball("ball")


def _outward(center: FloatArray, step: float, direction: float) -> FloatArray:
    """Add a step and round towards `direction`; an exact sum is not changed."""
    total = center + step
    # Knuth's two-sum: the rounding error of the addition is a float.
    virtual = total - center
    error = (center - (total - virtual)) + (step - virtual)
    wrong = error < 0 if direction < 0 else error > 0
    return np.where(wrong, np.nextafter(total, direction), total)


def box_reach(center: FloatArray, lo: Any, hi: Any) -> float:
    """Find the largest distance of a bound of a box from a point, rounded up."""
    reach = float(np.max(np.maximum(np.abs(hi - center), np.abs(center - lo)), initial=0.0))
    return math.nextafter(reach, math.inf)


def radius_on_grid(norm: str, radius: float, values: GridValues, center: FloatArray) -> float:
    """Round a stated radius to the largest distance of grid points that it includes.

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
    """Find how far inputs are, exactly, from their nearest grid values between lo and hi."""
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
        """Round each row to a grid point; nearly all of them lie in the ball.

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


class L0Ball(Region):
    """At most `changes` inputs differ from the centre, inside a data box and by at most `within`.

    It is not convex.  Its support function is that of its convex hull,

        v.c + the sum of the k largest  max (v_i (hi_i - c_i), v_i (lo_i - c_i)).

    Parameters
    ----------
    center
        The centre; an array of any shape is flattened in C order.
    changes
        The number k of inputs that may change.
    clip_lo, clip_hi
        The data box: one number for all inputs, or one for each; None for no limit.
    within
        The largest change of an input.  If it is None, the data box is required and is the only
        limit.
    grid
        The :class:`Grid` of the inputs that count, or its step; None for real inputs.

    Raises
    ------
    InputError
        If a number is not finite, `changes` is not a number of inputs, or the centre is not in the
        data box or not on the grid.

    Examples
    --------
    >>> import bnncert
    >>> ball = bnncert.L0Ball([0.5, 0, 0], 1, clip_lo=-1, clip_hi=1)
    >>> ball.contains([0.5, 1, 0]), ball.contains([0.5, 1, 1])
    (True, False)
    """

    norm: Literal["l0"] = "l0"

    def __init__(
        self,
        center: npt.ArrayLike,
        changes: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        within: float | None = None,
        grid: GridLike = None,
    ) -> None:
        if within is None and (clip_lo is None or clip_hi is None):
            raise InputError("an l0 ball needs a data box, or by how much inputs may change")
        if within is not None and not within >= 0:
            raise InputError(f"within is {within}; expected a number >= 0")
        # The ranges of the inputs that change are those of an L-inf ball.
        reach = 0.0 if within is None else float(within)
        if within is None:
            assert clip_lo is not None and clip_hi is not None
            reach = 2 * abs(float(np.max(clip_hi)) - float(np.min(clip_lo)))
        box = Ball("linf", center, reach, clip_lo, clip_hi, grid)
        self.grid, self.values, self.within = box.grid, box.values, within
        self.middle, self.clip_lo, self.clip_hi = box.middle, box.clip_lo, box.clip_hi
        size = self.middle.size
        if not (changes >= 0 and float(changes).is_integer()):
            raise InputError(
                f"radius is {changes:g}; the l0 norm expects a whole number of inputs >= 0"
            )
        if changes > size:
            raise InputError(f"radius is {changes:g}, but there are {size} inputs that can change")
        self.changes = int(changes)
        self.radius = self.stated_radius = float(self.changes)
        # On a grid there is room for the rounding of its values.
        self.reach = box.radius
        off = box.center != self.middle
        if np.any(off):
            i = int(np.flatnonzero(off)[0])
            where = "outside the data box" if self.values is None else "not on the grid"
            raise InputError(
                f"input {i} = {self.middle[i]:.9g} is {where}; an l0 ball needs its centre there"
            )
        self._box = box
        self.lo, self.hi = (box.lo, box.hi) if self.changes else (self.middle, self.middle)
        self.center = np.array(self.middle)

    def _words(self) -> list[str]:
        within = [] if self.within is None else [f"by at most {self.within:.6g}"]
        return [f"at most {self.changes} changes", *within, *self._clip_words()]

    def _support(self, rows: Any) -> FloatArray:
        box = box_support(rows, self.lo, self.hi)
        return np.minimum(box, l0_support(rows, self.middle, self.changes, self.lo, self.hi))

    def _contains(self, point: Point) -> bool:
        exact = [Fraction(v) for v in point]
        changed = [i for i, c in enumerate(self.middle.tolist()) if exact[i] != Fraction(c)]
        return len(changed) <= self.changes and self._box.contains(point)

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        rank = np.argsort(generator.uniform(size=(count, self.size)), axis=1)
        moved = rank < generator.integers(0, self.changes + 1, size=(count, 1))
        points = generator.uniform(self.lo, self.hi, size=(count, self.size))
        return np.where(moved, np.clip(points, self.lo, self.hi), self.middle)

    def _project(self, points: FloatArray) -> FloatArray:
        """Move points to the nearest ones: only the k largest changes are kept."""
        inside = np.clip(points, self.lo, self.hi)
        order = np.argsort(-np.abs(inside - self.middle), axis=1, kind="stable")
        kept = np.zeros(points.shape, dtype=bool)
        np.put_along_axis(kept, order[:, : self.changes], True, axis=1)
        return np.where(kept, inside, self.middle)

    def on_grid(self, points: FloatArray) -> FloatArray:
        """Round points to grid points of the ball."""
        return self._project(super().on_grid(points))

    def settle(self, point: FloatArray, dtype: npt.DTypeLike = np.float64) -> FloatArray | None:
        """Find a point near `point` that is exactly inside and representable in `dtype`."""
        if self.values is not None:
            return super().settle(point, dtype)
        near = self._project(point[None, :])[0]
        rounded = self._box.settle(near, dtype)
        if rounded is None:
            return None
        # Inputs that do not change cannot be rounded.
        rounded = np.where(near == self.middle, self.middle, rounded)
        with np.errstate(over="ignore"):
            fits = np.array_equal(rounded.astype(dtype), rounded)
        return rounded if fits and self.contains(rounded) else None

    def _describe(self, radius: str) -> str:
        text = f"at most {self.changes} of {self.size} inputs change"
        if self.within is not None:
            text += f" by at most {self.within:.9g}"
        return text + self._clip_text()

    def with_radius(self, radius: float) -> L0Ball:
        """Make the ball of another number of changes around the same centre."""
        box = self.clip_lo, self.clip_hi
        return L0Ball(self.middle, radius, *box, self.within, self.grid)

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State the number of changes and the largest one, with the centre and the data box."""
        fields, arrays = self._stated_ball(self.radius)
        if self.within is not None:
            fields["within"] = str(Fraction(self.reach))
        return fields, arrays

    def _plain_data(self) -> dict[str, Any]:
        changed = {"norm": "l0", "radius": self.changes, "within": self.within}
        return self._box.to_dict() | changed
