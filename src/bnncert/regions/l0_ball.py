"""Balls of the L0 norm: at most k inputs change, each within its own range."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.ball import Ball
from bnncert.regions.grid import GridLike
from bnncert.regions.region import Point, Region
from bnncert.regions.support import box_support, l0_support

#: The norms of balls: those of :class:`Ball`, and the number of inputs that change.
BallNorm: TypeAlias = Literal["linf", "l2", "l1", "l0"]


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
        """Return the nearest points: only the k largest changes are kept."""
        inside = np.clip(points, self.lo, self.hi)
        order = np.argsort(-np.abs(inside - self.middle), axis=1, kind="stable")
        kept = np.zeros(points.shape, dtype=bool)
        np.put_along_axis(kept, order[:, : self.changes], True, axis=1)
        return np.where(kept, inside, self.middle)

    def on_grid(self, points: FloatArray) -> FloatArray:
        """Round points to grid points of the ball."""
        return self._project(super().on_grid(points))

    def settle(self, point: FloatArray, dtype: npt.DTypeLike = np.float64) -> FloatArray | None:
        """Return a point near `point` that is exactly inside and representable in `dtype`."""
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
        """Return the ball of another number of changes around the same centre."""
        box = self.clip_lo, self.clip_hi
        return L0Ball(self.middle, radius, *box, self.within, self.grid)

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the number of changes and the largest one, with the centre and the data box."""
        fields = {"region": "l0", "radius": str(self.changes)}
        if self.within is not None:
            fields["within"] = str(Fraction(self.reach))
        return fields, self._centre_arrays()

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        changed = {"norm": "l0", "radius": self.changes, "within": self.within}
        return self._box.to_dict() | changed
