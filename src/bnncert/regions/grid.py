"""Inputs that take only the values of a grid, such as the grey levels of an image.

The values of input i are the numbers that the network receives: for integers k,

    value_i(k) = origin_i + step_i k,   rounded to float32 if the data are float32 numbers.

Data may be rounded in other ways than by this formula.  Where the centre of a ball or a side of the
data box lies within a thousandth of a step of such a value, that number replaces the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray
from bnncert.errors import InputError

#: The largest difference between data and formula, as a share of a step.
TOLERANCE = 1e-3

#: The smallest step in units of the rounding of an input, and the largest number of values.
SMALLEST_STEP, MOST_VALUES = 16, 2.0**40


@dataclass(frozen=True, eq=False)
class Grid:
    """The values origin + step k for integers k, with one number for all inputs or one for each.

    Attributes
    ----------
    step
        The distance of two neighbouring values.
    origin
        One of the values.

    Raises
    ------
    InputError
        If a step is not a finite number > 0, or an origin is not finite.

    Examples
    --------
    The 256 grey levels of an image that was scaled to [-1, 1]:

    >>> import bnncert
    >>> levels = bnncert.Grid(1 / 127.5, -1)
    >>> ball = bnncert.Ball("linf", [-1, 0.2], 2 / 127.5, -1, 1, grid=levels)
    >>> ball.contains([-1 + 1 / 127.5, 0.2]), ball.contains([-0.999, 0.2])
    (True, False)
    """

    step: npt.ArrayLike
    origin: npt.ArrayLike = 0.0

    def __post_init__(self) -> None:
        steps, origins = self._vectors()
        if not np.all(np.isfinite(steps) & (steps > 0)):
            bad = steps[~(np.isfinite(steps) & (steps > 0))][0]
            raise InputError(f"grid step is {bad:g}; expected a finite number > 0")
        if not np.all(np.isfinite(origins)):
            bad = origins[~np.isfinite(origins)][0]
            raise InputError(f"grid origin is {bad:g}; expected a finite number")

    def _vectors(self) -> tuple[FloatArray, FloatArray]:
        step, origin = (np.asarray(v, dtype=np.float64) for v in (self.step, self.origin))
        return step.reshape(-1), origin.reshape(-1)

    def describe(self) -> str:
        """Describe the grid in a few words."""
        steps, origins = self._vectors()
        step = f"step {steps[0]:.9g}" if np.all(steps == steps[0]) else "steps of each input"
        origin = f" from {origins[0]:.9g}" if np.all(origins == origins[0]) else ""
        return f"grid of {step}{origin}"

    def to_dict(self) -> dict[str, Any]:
        """Write the grid as plain data, with one number if all inputs have the same."""
        return {
            name: float(v[0]) if np.all(v == v[0]) else v.tolist()
            for name, v in zip(("step", "origin"), self._vectors(), strict=True)
        }


#: How callers state a grid; a number is the step of a grid with origin 0.
GridLike: TypeAlias = Grid | float | None


def as_grid(grid: GridLike) -> Grid | None:
    """Read a grid as callers state it."""
    return grid if grid is None or isinstance(grid, Grid) else Grid(grid)


class GridValues:
    """The values of a grid for the inputs of a region.

    The numbers `known` replace the values of the grid that they are near to, later ones before
    earlier ones; `room` is the largest distance of an input from them.
    """

    def __init__(
        self, grid: Grid, size: int, known: Sequence[FloatArray], room: float = 0.0
    ) -> None:
        self.step = _spread(grid.step, size, "grid step")
        self.origin = _spread(grid.origin, size, "grid origin")
        single = all(np.array_equal(x, _float32(x)) for x in known)
        self._dtype: type[np.floating[Any]] = np.float32 if single else np.float64
        reach = np.abs(self.origin) + self.step
        for x in known:
            reach = np.maximum(reach, np.abs(x) + room)
        #: The largest distance of a value from origin + step k.
        self.rounding = np.asarray(np.spacing(reach.astype(self._dtype)), dtype=np.float64)
        too_fine = (self.step < SMALLEST_STEP * self.rounding) | (self.step * MOST_VALUES < reach)
        if np.any(too_fine):
            i = int(np.flatnonzero(too_fine)[0])
            raise InputError(
                f"grid step {self.step[i]:g} of input {i} is too fine for inputs of size "
                f"{reach[i]:.6g} in {np.dtype(self._dtype).name}"
            )
        # Integers in this range are represented exactly.
        largest = 2.0 ** (22 if single else 50)
        whole = (np.rint(self.step) == self.step) & (np.rint(self.origin) == self.origin)
        self.rounding = np.where(whole & (reach < largest), 0.0, self.rounding)
        self._known: list[tuple[FloatArray, FloatArray, BoolArray]] = []
        for x in known:
            place = self.nearest(x)
            gap = np.abs(x - self._formula(place))
            near = gap <= TOLERANCE * self.step
            if self._known or np.any(near & (gap > 0)):
                self._known.append((place, np.asarray(x), near))
                self.rounding = np.maximum(self.rounding, np.where(near, 2 * gap, 0.0))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that the values are rounded to."""
        return np.dtype(self._dtype)

    def _formula(self, places: FloatArray) -> FloatArray:
        value = self.origin + self.step * places
        return np.asarray(value.astype(self._dtype), dtype=np.float64)

    def at(self, places: FloatArray) -> FloatArray:
        """Compute the values of integers k, for one point or for one point in each row."""
        value = self._formula(places)
        for known, x, near in self._known:
            value = np.where(near & (places == known), x, value)
        return np.asarray(value + 0.0)

    def nearest(self, points: FloatArray) -> FloatArray:
        """Find the integers k whose values are nearest to the points, up to rounding."""
        return np.asarray(np.rint((points - self.origin) / self.step))

    def first_from(self, low: FloatArray) -> FloatArray:
        """Find the least k with value(k) >= low."""
        places = self.nearest(low) - 1
        for _ in range(3):
            places = np.where(self.at(places) < low, places + 1, places)
        return places

    def last_until(self, high: FloatArray) -> FloatArray:
        """Find the largest k with value(k) <= high."""
        places = self.nearest(high) + 1
        for _ in range(3):
            places = np.where(self.at(places) > high, places - 1, places)
        return places

    def contains(self, point: Sequence[Fraction] | FloatArray) -> bool:
        """Whether every coordinate is a value of the grid, exactly."""
        floats = np.array([float(v) for v in point])
        if not isinstance(point, np.ndarray) and any(
            Fraction(v) != x for v, x in zip(floats.tolist(), point, strict=True)
        ):
            return False
        return bool(np.all(self.at(self.nearest(floats)) == floats))

    def has(self, point: FloatArray) -> BoolArray:
        """Decide for each coordinate whether it is a value of the grid."""
        return np.asarray(self.at(self.nearest(point)) == point)


def _float32(values: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _spread(value: npt.ArrayLike, size: int, name: str) -> FloatArray:
    array = np.asarray(value, dtype=np.float64).reshape(-1)
    if array.size not in (1, size):
        raise InputError(f"{name} has {array.size} values; expected 1 or {size}")
    return np.array(np.broadcast_to(array, size))
