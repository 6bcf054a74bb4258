"""Polytopes inside a box."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import ROUNDOFF
from bnncert.regions.grid import GridLike
from bnncert.regions.region import Box, EmptyRegionError, Point, Region, as_rows, checked_vector
from bnncert.regions.support import box_support


class Polytope(Region):
    """A x <= b, intersected with a box lo <= x <= hi, or the points of a grid there.

    On a grid, `center` is a point of the polytope that need not be on the grid.

    Parameters
    ----------
    matrix, right
        A and b, with one column of A for each input.
    lo, hi
        The bounds of the inputs.
    grid
        The :class:`Grid` of the inputs that count, or its step; None for real inputs.

    Raises
    ------
    InputError
        If a number is not finite, or the shapes do not fit.
    EmptyRegionError
        If the polytope has no point in its box.

    Examples
    --------
    >>> import bnncert
    >>> triangle = bnncert.Polytope([[1, 1]], [1], [0, 0], [1, 1])
    >>> triangle.contains([0.5, 0.5]), triangle.contains([0.5, 0.75])
    (True, False)
    """

    def __init__(
        self,
        matrix: npt.ArrayLike,
        right: npt.ArrayLike,
        lo: npt.ArrayLike,
        hi: npt.ArrayLike,
        grid: GridLike = None,
    ) -> None:
        box = Box(lo, hi, grid)
        self.grid, self.values = box.grid, box.values
        self.lo, self.hi = box.lo, box.hi
        self.matrix = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
        if self.matrix.shape[1] != box.size or not np.all(np.isfinite(self.matrix)):
            raise InputError(
                f"polytope matrix of shape {self.matrix.shape}; expected finite numbers, "
                f"{box.size} columns"
            )
        self.right = checked_vector(right, self.matrix.shape[0], "polytope right-hand side")
        if np.any((self.right < 0) & ~np.any(self.matrix, axis=1)):
            raise EmptyRegionError("the region is empty: an inequality is 0 <= a negative number")
        self.center = self.middle = self._interior_point()

    @property
    def inequalities(self) -> tuple[FloatArray, FloatArray]:
        """A and b."""
        return self.matrix, self.right

    def _interior_point(self) -> FloatArray:
        """Find the point with the largest margin: max t, a_i x + |a_i| t <= b_i."""
        n = self.lo.size
        used = np.any(self.matrix, axis=1)
        matrix, right = self.matrix[used], self.right[used]
        norm = np.linalg.norm(matrix, axis=1, keepdims=True)
        width = float(np.max(self.hi - self.lo, initial=0.0))
        # Below this margin, every point of the box satisfies all inequalities.
        reach = np.abs(matrix) @ np.maximum(np.abs(self.lo), np.abs(self.hi)) + np.abs(right)
        deepest = float(np.max(reach / norm[:, 0], initial=0.0))
        cost = np.zeros(n + 1)
        cost[-1] = 1.0
        lo, hi = np.append(self.lo, -2 * deepest - 1), np.append(self.hi, width + 1)
        from bnncert.regions.linear_program import LinearMaxima  # HiGHS is imported on use

        point, multipliers = LinearMaxima(np.hstack([matrix, norm]), right, lo, hi).solve(cost)
        if point is None:
            raise InputError("no point of the polytope could be found")
        if point[-1] < 0:
            # The polytope is empty iff some y >= 0 has y'(Ax - b) > 0 on the whole box.
            y = np.zeros(self.right.size)
            y[used] = multipliers
            if self._farkas_margin(y) > 0:
                raise EmptyRegionError("the region is empty: the polytope has no point in its box")
        return np.clip(point[:-1], self.lo, self.hi)

    def _farkas_margin(self, y: FloatArray) -> float:
        """Bound the minimum of y'(Ax - b) over the box from below, rounding included."""
        smallest = -box_support(as_rows(-(y @ self.matrix)), self.lo, self.hi)[0]
        return float(smallest - self.right @ y - self._rounding(y, np.zeros(self.size)))

    def _rounding(self, y: FloatArray, v: FloatArray) -> FloatArray:
        """Bound the rounding error of v - A'y and b.y over the box, for each row."""
        reach = np.maximum(np.abs(self.lo), np.abs(self.hi))
        total = (np.abs(v) + y @ np.abs(self.matrix)) @ reach + y @ np.abs(self.right)
        terms = self.right.size + self.size + 8
        return np.asarray(4 * terms * ROUNDOFF * total)

    def _support(self, rows: Any) -> FloatArray:
        """Evaluate b.y + h_box(v - A'y), an upper bound for any y >= 0; y comes from an LP."""
        v = rows.toarray()
        y = self.multipliers(v)
        bound = box_support(as_rows(v - y @ self.matrix), self.lo, self.hi) + y @ self.right
        # Multipliers that are not finite do not give a bound; fmin then returns that of the box.
        return np.fmin(box_support(rows, self.lo, self.hi), bound + self._rounding(y, v))

    def multipliers(self, directions: FloatArray) -> FloatArray:
        """Find for each row v a y >= 0 that nearly minimises b.y + h_box(v - A'y)."""
        from bnncert.regions.linear_program import LinearMaxima  # HiGHS is imported on use

        maxima = LinearMaxima(self.matrix, self.right, self.lo, self.hi)
        found = [maxima.solve(v)[1] for v in directions]
        return np.reshape(found, (len(found), self.right.size))

    def _contains(self, point: Point) -> bool:
        exact = [Fraction(x) for x in point]
        return Box(self.lo, self.hi).contains(exact) and all(
            sum((Fraction(a) * x for a, x in zip(row, exact, strict=True)), Fraction(0))
            <= Fraction(b)
            for row, b in zip(self.matrix.tolist(), self.right.tolist(), strict=True)
        )

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Draw each point by a hit-and-run chain of its own from the interior point."""
        points = np.tile(self.center, (count, 1))
        for _ in range(30):
            step = generator.standard_normal(points.shape)
            with np.errstate(divide="ignore", invalid="ignore"):
                rate = np.concatenate([step @ self.matrix.T, step, -step], axis=1)
                room = np.concatenate(
                    [self.right - points @ self.matrix.T, self.hi - points, points - self.lo],
                    axis=1,
                )
                ratio = np.maximum(room, 0.0) / rate
            forward = np.min(np.where(rate > 0, ratio, np.inf), axis=1, keepdims=True)
            back = np.max(np.where(rate < 0, ratio, -np.inf), axis=1, keepdims=True)
            points = points + step * (back + (forward - back) * generator.uniform(size=(count, 1)))
            points = np.clip(points, self.lo, self.hi)
        return points

    def _project(self, points: FloatArray) -> FloatArray:
        """Move points nearly to the nearest ones, by Dykstra's alternating projections."""
        x = np.array(points, dtype=np.float64)
        square = np.maximum((self.matrix**2).sum(axis=1), 1e-300)
        pull = np.zeros((self.right.size, points.shape[0]))
        box_pull = np.zeros_like(x)
        for _ in range(1000):
            before = (x, pull.copy(), box_pull)
            for i, row in enumerate(self.matrix):
                y = x + np.outer(pull[i], row)
                pull[i] = np.maximum(0.0, (y @ row - self.right[i]) / square[i])
                x = y - np.outer(pull[i], row)
            y = x + box_pull
            x = np.clip(y, self.lo, self.hi)
            box_pull = y - x
            # The points can be constant while the corrections still change.
            moves = zip((x, pull, box_pull), before, strict=True)
            if all(np.max(np.abs(a - b), initial=0.0) < 1e-13 for a, b in moves):
                break
        # Alternating projections end slightly outside: the points move towards the interior
        # point until no row is exceeded.
        excess = np.maximum(x @ self.matrix.T - self.right, 0.0)
        depth = np.maximum(self.right - self.matrix @ self.center, 1e-300)
        pull_back = np.max(excess / (excess + depth), axis=1, keepdims=True, initial=0.0)
        return np.asarray(x + pull_back * (self.center - x))

    def _describe(self, radius: str) -> str:
        return f"polytope in {self.size} dimensions with {self.right.size} inequalities and a box"

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State bounds and inequalities, and a point where they hold if a float point does."""
        arrays = {
            "lo": self.lo,
            "hi": self.hi,
            "matrix": self.matrix.reshape(-1),
            "right": self.right,
        }
        inside = self.settle(self.center, np.float32)
        inside = self.settle(self.center) if inside is None else inside
        if inside is not None:
            # It shows that the region is not empty.
            arrays["inside"] = inside
        return {"region": "polytope", "inequalities": int(self.right.size)}, arrays

    def _plain_data(self) -> dict[str, Any]:
        return {
            "kind": "polytope",
            "matrix": self.matrix.tolist(),
            "right": self.right.tolist(),
            "lo": self.lo.tolist(),
            "hi": self.hi.tolist(),
        }
