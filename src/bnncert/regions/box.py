"""Boxes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.regions.region import EmptyRegionError, Point, Region, checked_vector
from bnncert.regions.support import box_support


class Box(Region):
    """lo <= x <= hi."""

    def __init__(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> None:
        self.lo = checked_vector(lo, None, "lower bound")
        self.hi = checked_vector(hi, self.lo.size, "upper bound")
        if np.any(self.lo > self.hi):
            i = int(np.flatnonzero(self.lo > self.hi)[0])
            raise EmptyRegionError(
                f"the region is empty: input {i} has bounds [{self.lo[i]:.9g}, {self.hi[i]:.9g}]"
            )
        self.center = np.clip(self.lo + (self.hi - self.lo) / 2, self.lo, self.hi)

    @property
    def is_box(self) -> bool:
        """Whether the region is the box from `lo` to `hi`."""
        return True

    def _support(self, rows: Any) -> FloatArray:
        return box_support(rows, self.lo, self.hi)

    def _contains(self, point: Point) -> bool:
        if isinstance(point, np.ndarray):
            return bool(np.all((self.lo <= point) & (point <= self.hi)))
        return all(
            Fraction(a) <= x <= Fraction(b)
            for x, a, b in zip(point, self.lo.tolist(), self.hi.tolist(), strict=True)
        )

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Return uniform points."""
        points = generator.uniform(self.lo, self.hi, size=(count, self.size))
        return np.clip(points, self.lo, self.hi)

    def project(self, points: FloatArray) -> FloatArray:
        """Return the nearest points of the box."""
        return np.clip(points, self.lo, self.hi)

    def describe(self) -> str:
        """Return a description of one line."""
        return f"box in {self.size} dimensions, widest side {np.max(self.hi - self.lo):.6g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        return {"kind": "box", "lo": self.lo.tolist(), "hi": self.hi.tolist()}
