"""Balls of the L-inf, L2 and L1 norm inside a data box."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import ROUNDOFF
from bnncert.regions.grid import Grid, GridLike, GridValues, as_grid
from bnncert.regions.grid_ball import BallRounding, nearest_distances, radius_on_grid
from bnncert.regions.region import (
    LARGEST_VALUE,
    EmptyRegionError,
    Point,
    Region,
    checked_vector,
    tightened,
)
from bnncert.regions.support import box_support, l1_support, l2_support

Norm: TypeAlias = Literal["linf", "l2", "l1"]


def clip_words(region: Any) -> list[str]:
    """Return what `repr` says about the data box of a ball."""
    if region.clip_lo is None or region.clip_hi is None:
        return []
    return [f"data box [{region.clip_lo.min():g}, {region.clip_hi.max():g}]"]


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
        size = self.middle.size
        self.clip_lo = None if clip_lo is None else checked_vector(clip_lo, size, "clip (lower)")
        self.clip_hi = None if clip_hi is None else checked_vector(clip_hi, size, "clip (upper)")
        self.stated_radius = self.radius
        self.grid = as_grid(grid)
        if self.grid is not None:
            known = [v for v in (self.clip_lo, self.clip_hi, self.middle) if v is not None]
            self.values = self._values(self.grid, known)
            self.radius = radius_on_grid(norm, self.radius, self.values, self.middle)
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

    def _words(self) -> list[str]:
        return [f"{self.norm}, radius {self.stated_radius:.6g}", *clip_words(self)]

    def _values(self, grid: Grid, known: list[FloatArray]) -> GridValues:
        """Return the values of the grid; raise if a step is wider than the data box."""
        is_bounded = self.clip_lo is not None and self.clip_hi is not None
        room = 0.0 if is_bounded else self.radius
        values = GridValues(grid, self.middle.size, known, room)
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
        if not self._contains(self.center) and self._misses_grid(values):
            raise EmptyRegionError("the region is empty: the grid has no point in the ball")
        if self.norm != "linf":
            # The support functions need the centre of the ball inside the box.
            self.lo, self.hi = np.minimum(self.lo, self.middle), np.maximum(self.hi, self.middle)

    def _misses_grid(self, values: GridValues) -> bool:
        """Decide exactly whether the nearest grid point lies outside the ball."""
        return not self._is_within(nearest_distances(values, self.middle, self.lo, self.hi))

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
        """Return uniform points of the ball, moved to the data box where they leave it."""
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
        """Return the nearest points of the intersection of ball and data box."""
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
        if self.clip_lo is not None and self.clip_hi is not None:
            text += f", data in [{self.clip_lo.min():.9g}, {self.clip_hi.max():.9g}]"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        tree = {
            "kind": "ball",
            "norm": self.norm,
            "center": self.middle.tolist(),
            "radius": self.stated_radius,
            "clip_lo": None if self.clip_lo is None else self.clip_lo.tolist(),
            "clip_hi": None if self.clip_hi is None else self.clip_hi.tolist(),
        }
        return tree if self.grid is None else {**tree, "grid": self.grid.to_dict()}


def is_l2_ball(region: Region) -> TypeGuard[Ball]:
    """Whether the region has a curved boundary, which linear programs cannot describe."""
    return isinstance(region, Ball) and region.norm == "l2"


def _outward(center: FloatArray, step: float, direction: float) -> FloatArray:
    """Return center + step rounded towards `direction`; an exact sum is not changed."""
    total = center + step
    # Knuth's two-sum: the rounding error of the addition is a float.
    virtual = total - center
    error = (center - (total - virtual)) + (step - virtual)
    wrong = error < 0 if direction < 0 else error > 0
    return np.where(wrong, np.nextafter(total, direction), total)
