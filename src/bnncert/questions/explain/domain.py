"""The values that free inputs may take, and the region in which some inputs are free.

The domain of input i is an interval that contains its value c_i in the image; on a grid only the
values of the grid count.  The region of a set F of free inputs is

    { x : x_i in its domain for i in F,  x_i = c_i for all others }.

It is an L-inf ball around the image whose data box is the single value c_i for inputs that are not
free.  So the grid has the same values whatever is free, and regions grow with F.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from bnncert.arrays import BoolArray, FloatArray
from bnncert.errors import InputError
from bnncert.regions import Ball, Grid


class Domain:
    """The domains of all inputs of an image.

    Parameters
    ----------
    ball
        An L-inf ball around the image, with its data box and grid.
    radius
        The radius as the user wrote it, for the description.

    Raises
    ------
    InputError
        If the ball has another norm, or the image is not in the data box or not on the grid.

    Attributes
    ----------
    image
        The values of inputs that are not free.
    lo, hi
        The bounds of inputs that are free; without a grid, their distance from the image is also
        at most the radius of the ball.
    grid
        The grid of their values, if there is one.
    """

    def __init__(self, ball: Ball, radius: str = "") -> None:
        if ball.norm != "linf":
            raise InputError(f"an explanation needs norm linf; the norm is {ball.norm}")
        self.image, self.grid = ball.middle, ball.grid
        if ball.grid is None:
            # Bounds of the ball may be rounded outwards, so its radius counts, too.
            lo = ball.lo if ball.clip_lo is None else ball.clip_lo
            hi = ball.hi if ball.clip_hi is None else ball.clip_hi
            self._radius = ball.radius
        else:
            lo, hi = _grid_bounds(ball)
            self._radius = 2 * _reach(self.image, lo, hi)
        outside = np.flatnonzero((self.image < lo) | (self.image > hi))
        if outside.size:
            i = int(outside[0])
            raise InputError(
                f"the image is not in the data box: input {i} = {self.image[i]:.9g} is not in "
                f"[{lo[i]:.9g}, {hi[i]:.9g}]"
            )
        self.lo, self.hi = lo, hi
        #: The domain in words.
        self.text = _words(ball, radius)
        values = self.everything.values
        if values is not None and not np.all(values.has(self.image)):
            i = int(np.flatnonzero(~values.has(self.image))[0])
            raise InputError(
                f"an explanation on a grid needs an image on it: input {i} = {self.image[i]:.9g} "
                "is not a value of the grid"
            )

    @property
    def size(self) -> int:
        """The number of inputs."""
        return int(self.image.size)

    @cached_property
    def everything(self) -> Ball:
        """The region in which all inputs are free."""
        return self.region(np.ones(self.size, dtype=np.bool_))

    def region(self, free: BoolArray) -> Ball:
        """Return the region in which some inputs are free and the others are as in the image."""
        lo, hi = np.where(free, self.lo, self.image), np.where(free, self.hi, self.image)
        return Ball("linf", self.image, self._radius, lo, hi, self.grid)


def data_box_ball(
    image: FloatArray, lo: FloatArray | None, hi: FloatArray | None, grid: Grid | None = None
) -> Ball:
    """Return a ball around an image that contains the data box."""
    if lo is None or hi is None:
        raise InputError("the network states no data box; give a radius or a data box")
    return Ball("linf", image, _reach(image, lo, hi), lo, hi, grid)


def _reach(image: FloatArray, lo: FloatArray, hi: FloatArray) -> float:
    """Return the largest distance of a bound from the image, rounded up."""
    reach = float(np.max(np.maximum(np.abs(hi - image), np.abs(image - lo)), initial=0.0))
    return math.nextafter(reach, math.inf)


def _words(ball: Ball, radius: str) -> str:
    lo, hi = ball.clip_lo, ball.clip_hi
    largest = max(ball.radius, ball.stated_radius)
    covered = lo is not None and hi is not None and largest >= _reach(ball.middle, lo, hi)
    radius = radius or f"{ball.stated_radius:.6g}"
    words = [] if covered else [f"within {radius} of the image"]
    if lo is not None and hi is not None:
        words.append(f"in [{lo.min():.6g}, {hi.max():.6g}]")
    grid = "" if ball.grid is None else f", {ball.grid.describe()}"
    return " and ".join(words) + grid


def _grid_bounds(ball: Ball) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a ball on a grid.

    The values of the grid are float32 numbers if the image and all bounds are.  The bounds of a
    float32 image are rounded to float32 inwards, so that this does not depend on what is free.
    """
    if not np.array_equal(ball.middle, _float32(ball.middle)):
        return ball.lo, ball.hi
    lo = None if ball.clip_lo is None else _inwards(ball.clip_lo, np.inf)
    hi = None if ball.clip_hi is None else _inwards(ball.clip_hi, -np.inf)
    rounded = Ball("linf", ball.middle, ball.stated_radius, lo, hi, ball.grid)
    return rounded.lo, rounded.hi


def _float32(values: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _inwards(bound: FloatArray, inside: float) -> FloatArray:
    """Round bounds to float32 numbers that are not outside of them."""
    rounded = bound.astype(np.float32)
    outside = rounded < bound if inside > 0 else rounded > bound
    moved = np.nextafter(rounded, np.float32(inside))
    return np.where(outside, moved, rounded).astype(np.float64)
