"""Inputs on a grid of admissible values, such as whole numbers for pixels."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.regions import Region


def on_grid(points: FloatArray, region: Region, step: float | None) -> FloatArray:
    """Round points to multiples of `step` inside the region's bounding box."""
    if step is None:
        return points
    lo, hi = np.ceil(region.lo / step) * step, np.floor(region.hi / step) * step
    # A coordinate without a multiple of the step in its range keeps its own value.
    usable = lo <= hi
    rounded = np.clip(np.rint(points / step) * step, lo, np.maximum(lo, hi))
    return np.where(usable, rounded, points)
