"""Boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.regions.grid import GridLike, GridValues, as_grid
from bnncert.regions.region import EmptyRegionError, Point, Region, checked_vector, tightened
from bnncert.regions.support import box_support


class Box(Region):
    """lo <= x <= hi, or the points of a grid with these bounds.

    Parameters
    ----------
    lo, hi
        The bounds of the inputs; arrays of any shape are flattened in C order.
    grid
        The :class:`Grid` of the inputs that count, or its step; None for real inputs.

    Raises
    ------
    InputError
        If a number is not finite, or sizes differ.
    EmptyRegionError
        If a lower bound is larger than its upper bound, or no grid value lies between them.

    Examples
    --------
    >>> import bnncert
    >>> bnncert.Box([0, 0, 2], [1, 1, 2])
    Box([0, 2], 2 of the inputs can change, 3 inputs)
    """

    def __init__(self, lo: npt.ArrayLike, hi: npt.ArrayLike, grid: GridLike = None) -> None:
        self.lo = checked_vector(lo, None, "lower bound")
        self.hi = checked_vector(hi, self.lo.size, "upper bound")
        if np.any(self.lo > self.hi):
            i = int(np.flatnonzero(self.lo > self.hi)[0])
            raise EmptyRegionError(
                f"the region is empty: input {i} has bounds [{self.lo[i]:.9g}, {self.hi[i]:.9g}]"
            )
        self.grid = as_grid(grid)
        if self.grid is not None:
            self.values = GridValues(self.grid, self.size, (self.lo, self.hi))
            self.lo, self.hi = tightened(self.values, self.lo, self.hi)
        self.center = np.clip(self.lo + (self.hi - self.lo) / 2, self.lo, self.hi)
        if self.values is not None:
            self.center = self.on_grid(self.center[None, :])[0]
        self.middle = self.center

    @property
    def is_box(self) -> bool:
        """Whether the region is the box from `lo` to `hi`."""
        return True

    def _support(self, rows: Any) -> FloatArray:
        return box_support(rows, self.lo, self.hi)

    def _contains(self, point: Point) -> bool:
        # Python compares rationals with floats exactly.
        place = np.asarray(point)
        return bool(np.all((self.lo <= place) & (place <= self.hi)))

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        points = generator.uniform(self.lo, self.hi, size=(count, self.size))
        return np.clip(points, self.lo, self.hi)

    def _project(self, points: FloatArray) -> FloatArray:
        return np.clip(points, self.lo, self.hi)

    def _describe(self, radius: str) -> str:
        return f"box in {self.size} dimensions, widest side {np.max(self.hi - self.lo):.6g}"

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the bounds."""
        return {"region": "box"}, {"lo": self.lo, "hi": self.hi}

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        tree = {"kind": "box", "lo": self.lo.tolist(), "hi": self.hi.tolist()}
        return tree if self.grid is None else {**tree, "grid": self.grid.to_dict()}
