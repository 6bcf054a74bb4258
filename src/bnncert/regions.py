"""Input regions: boxes, norm balls inside a data box, and polytopes.

All that verification needs of a region is its support function (a rigorous upper bound), exact
membership, samples, and a projection.  Regions are immutable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.errors import InputError
from bnncert.formats.description import FloatArray
from bnncert.linear_maxima import LinearMaxima
from bnncert.support import box_support, l1_support, l2_support

Norm: TypeAlias = Literal["linf", "l2", "l1"]
Point: TypeAlias = Sequence[Fraction] | FloatArray

#: Unit roundoff, per term of a sum.
ROUNDING_PER_TERM = 2.0**-53

#: Inputs and radii beyond this are refused: products of larger ones overflow inside solvers.
LARGEST_VALUE = 1e100

#: Relative pull towards the centre that takes a projected point strictly inside.
INWARD = (0.0, 1e-15, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4)


class EmptyRegionError(InputError):
    """The region has no points, so every property holds on it."""


class Region(ABC):
    """A bounded convex set of inputs."""

    #: The lower corner of a box that contains the region (rounded outwards).
    lo: FloatArray
    #: Its upper corner.
    hi: FloatArray
    #: A point of the region (up to rounding).
    center: FloatArray

    @property
    def size(self) -> int:
        """The number of inputs."""
        return int(self.lo.shape[0])

    @abstractmethod
    def support(self, directions: Any) -> FloatArray:
        """Return upper bounds of max v.x over the region, for each row v."""

    @abstractmethod
    def contains(self, point: Point) -> bool:
        """Decide membership exactly (floats count as the rationals they are)."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Return random points of the region (up to rounding), one per row."""

    @abstractmethod
    def project(self, points: FloatArray) -> FloatArray:
        """Return the nearest points of the region (up to rounding), one per row."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line for people."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data that JSON can hold."""

    def settle(self, point: FloatArray, dtype: npt.DTypeLike = np.float64) -> FloatArray | None:
        """Return a point near `point` that is exactly inside and representable in `dtype`."""
        lo, hi = self.inner_bounds(dtype)
        for pull in INWARD:
            moved = point + pull * (self.center - point)
            with np.errstate(over="ignore"):
                rounded = np.clip(moved.astype(dtype).astype(np.float64), lo, hi)
            # A number that is too large for `dtype` became infinite.
            if np.all(np.isfinite(rounded)) and self.contains(rounded):
                return np.asarray(rounded, dtype=np.float64)
        return None

    def inner_bounds(self, dtype: npt.DTypeLike = np.float64) -> tuple[FloatArray, FloatArray]:
        """Return the bounding box with its bounds rounded inwards to `dtype`."""
        return _round_inwards(self.lo, self.hi, dtype)


def _round_inwards(
    lo: FloatArray, hi: FloatArray, dtype: npt.DTypeLike
) -> tuple[FloatArray, FloatArray]:
    with np.errstate(over="ignore"):
        low, high = lo.astype(dtype), hi.astype(dtype)
    up, down = np.array([np.inf, -np.inf], dtype=dtype)
    low = np.where(low.astype(np.float64) < lo, np.nextafter(low, up), low)
    high = np.where(high.astype(np.float64) > hi, np.nextafter(high, down), high)
    return low.astype(np.float64), high.astype(np.float64)


def _vector(value: npt.ArrayLike, size: int | None, name: str) -> FloatArray:
    array = np.asarray(value, dtype=np.float64).reshape(-1)
    if size is not None and array.size == 1:
        array = np.full(size, float(array[0]))
    if size is not None and array.size != size:
        raise InputError(f"{name} has {array.size} values; expected {size}")
    if not np.all(np.isfinite(array)):
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"{name} is {array[bad]} at position {bad}; expected a finite number")
    if np.any(np.abs(array) > LARGEST_VALUE):
        bad = int(np.argmax(np.abs(array)))
        raise InputError(
            f"{name} is {array[bad]:.3g} at position {bad}; expected at most {LARGEST_VALUE:g}"
        )
    # Adding zero copies, and turns -0.0 into 0.0: numpy refuses to sample from 0.0 to -0.0.
    array = np.asarray(array + 0.0)
    array.setflags(write=False)
    return array


def _rows(directions: Any) -> Any:
    if sp.issparse(directions):
        return sp.csr_array(directions).astype(np.float64)
    return sp.csr_array(np.atleast_2d(np.asarray(directions, dtype=np.float64)))


def _check_dimension(point: Point, size: int) -> None:
    if len(point) != size:
        raise InputError(f"point with {len(point)} coordinates; the region has {size}")


class Box(Region):
    """lo <= x <= hi."""

    def __init__(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> None:
        self.lo = _vector(lo, None, "lower bound")
        self.hi = _vector(hi, self.lo.size, "upper bound")
        if np.any(self.lo > self.hi):
            i = int(np.flatnonzero(self.lo > self.hi)[0])
            raise EmptyRegionError(
                f"the region is empty: input {i} has bounds [{self.lo[i]:.9g}, {self.hi[i]:.9g}]"
            )
        self.center = np.clip(self.lo + (self.hi - self.lo) / 2, self.lo, self.hi)

    def support(self, directions: Any) -> FloatArray:
        """Return upper bounds of max v.x over the region, for each row v."""
        return box_support(_rows(directions), self.lo, self.hi)

    def contains(self, point: Point) -> bool:
        """Decide membership exactly."""
        _check_dimension(point, self.size)
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
        """Return one line for people."""
        return f"box in {self.size} dimensions, widest side {np.max(self.hi - self.lo):.6g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        return {"kind": "box", "lo": self.lo.tolist(), "hi": self.hi.tolist()}


class Ball(Region):
    """``|x - center|_norm <= radius``, intersected with a data box clip_lo <= x <= clip_hi."""

    def __init__(
        self,
        norm: Norm,
        center: npt.ArrayLike,
        radius: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
    ) -> None:
        if norm not in ("linf", "l2", "l1"):
            raise InputError(f"norm is {norm!r}; expected linf, l2 or l1")
        self.norm: Norm = norm
        self.middle = _vector(center, None, "input")
        self.radius = float(radius)
        if not np.isfinite(self.radius) or self.radius < 0:
            raise InputError(f"radius is {radius}; expected a finite number >= 0")
        if self.radius > LARGEST_VALUE:
            raise InputError(f"radius is {radius:.3g}; expected at most {LARGEST_VALUE:g}")
        size = self.middle.size
        self.clip_lo = None if clip_lo is None else _vector(clip_lo, size, "clip (lower)")
        self.clip_hi = None if clip_hi is None else _vector(clip_hi, size, "clip (upper)")
        # c - r need not be a float: rounded outwards unless the subtraction was exact.
        self.lo = _outward(self.middle, -self.radius, -np.inf)
        self.hi = _outward(self.middle, self.radius, np.inf)
        if self.clip_lo is not None:
            self.lo = np.maximum(self.lo, self.clip_lo)
        if self.clip_hi is not None:
            self.hi = np.minimum(self.hi, self.clip_hi)
        if np.any(self.lo > self.hi):
            i = int(np.flatnonzero(self.lo > self.hi)[0])
            raise EmptyRegionError(
                f"the region is empty: the ball around input {i} = {self.middle[i]:.9g} does not "
                "meet the data box"
            )
        self.center = np.clip(self.middle, self.lo, self.hi)
        if norm != "linf" and np.any(self.center != self.middle):
            i = int(np.flatnonzero(self.center != self.middle)[0])
            raise InputError(
                f"input {i} = {self.middle[i]:.9g} lies outside the data box; an {norm} ball "
                "needs its centre inside"
            )

    def support(self, directions: Any) -> FloatArray:
        """Return upper bounds of max v.x over ball and data box together."""
        rows = _rows(directions)
        box = box_support(rows, self.lo, self.hi)
        if self.norm == "linf":
            return box
        function = l2_support if self.norm == "l2" else l1_support
        return np.minimum(box, function(rows, self.middle, self.radius, self.lo, self.hi))

    def contains(self, point: Point) -> bool:
        """Decide membership exactly."""
        _check_dimension(point, self.size)
        if isinstance(point, np.ndarray):
            if self.clip_lo is not None and np.any(point < self.clip_lo):
                return False
            if self.clip_hi is not None and np.any(point > self.clip_hi):
                return False
            distance = np.abs(point - self.middle)
            if self.norm == "linf":
                # A float difference has relative error 2^-53: only near-ties need rationals.
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
            slack = 4 * ROUNDING_PER_TERM * (self.size + 4)
            # Squares of very small or large numbers leave the range where rounding is relative.
            usual = largest == 0 or 1e-140 < largest < 1e140
            if usual and abs(size - self.radius) > slack * max(size, self.radius):
                return size <= self.radius
        exact = [Fraction(x) for x in point]
        if self.clip_lo is not None and any(
            x < Fraction(a) for x, a in zip(exact, self.clip_lo.tolist(), strict=True)
        ):
            return False
        if self.clip_hi is not None and any(
            x > Fraction(b) for x, b in zip(exact, self.clip_hi.tolist(), strict=True)
        ):
            return False
        gaps = [abs(x - Fraction(c)) for x, c in zip(exact, self.middle.tolist(), strict=True)]
        radius = Fraction(self.radius)
        if self.norm == "linf":
            return max(gaps) <= radius
        if self.norm == "l1":
            return sum(gaps) <= radius
        return sum(g * g for g in gaps) <= radius * radius

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
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
        # Clipping moves towards the box, which holds the centre: it never leaves the ball.
        points = self.middle + step / np.maximum(length, 1e-300) * reach
        return np.asarray(np.clip(points, self.lo, self.hi))

    def project(self, points: FloatArray) -> FloatArray:
        """Return the nearest points of ball and data box together."""
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

    def describe(self) -> str:
        """Return one line for people."""
        name = {"linf": "L-inf", "l2": "L2", "l1": "L1"}[self.norm]
        text = f"{name} ball of radius {self.radius:.9g}"
        if self.clip_lo is not None and self.clip_hi is not None:
            text += f", data in [{self.clip_lo.min():.9g}, {self.clip_hi.max():.9g}]"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        return {
            "kind": "ball",
            "norm": self.norm,
            "center": self.middle.tolist(),
            "radius": self.radius,
            "clip_lo": None if self.clip_lo is None else self.clip_lo.tolist(),
            "clip_hi": None if self.clip_hi is None else self.clip_hi.tolist(),
        }


def _outward(center: FloatArray, step: float, direction: float) -> FloatArray:
    """Return center + step rounded towards `direction`, exactly where the sum is exact."""
    total = center + step
    # Knuth's two-sum: the rounding error of the addition, itself a float.
    virtual = total - center
    error = (center - (total - virtual)) + (step - virtual)
    wrong = error < 0 if direction < 0 else error > 0
    return np.where(wrong, np.nextafter(total, direction), total)


class Polytope(Region):
    """A x <= b, intersected with a box lo <= x <= hi."""

    def __init__(
        self,
        matrix: npt.ArrayLike,
        right: npt.ArrayLike,
        lo: npt.ArrayLike,
        hi: npt.ArrayLike,
    ) -> None:
        box = Box(lo, hi)
        self.lo, self.hi = box.lo, box.hi
        self.matrix = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
        if self.matrix.shape[1] != box.size or not np.all(np.isfinite(self.matrix)):
            raise InputError(
                f"polytope matrix of shape {self.matrix.shape}; expected finite numbers, "
                f"{box.size} columns"
            )
        self.right = _vector(right, self.matrix.shape[0], "polytope right-hand side")
        if np.any((self.right < 0) & ~np.any(self.matrix, axis=1)):
            raise EmptyRegionError("the region is empty: an inequality says 0 <= a negative number")
        self.center = self._interior_point()

    def _interior_point(self) -> FloatArray:
        """Return the point with the largest margin: max t, a_i x + |a_i| t <= b_i."""
        n = self.lo.size
        used = np.any(self.matrix, axis=1)
        matrix, right = self.matrix[used], self.right[used]
        norm = np.linalg.norm(matrix, axis=1, keepdims=True)
        width = float(np.max(self.hi - self.lo, initial=0.0))
        # With a margin as negative as this, every point of the box satisfies everything.
        reach = np.abs(matrix) @ np.maximum(np.abs(self.lo), np.abs(self.hi)) + np.abs(right)
        deepest = float(np.max(reach / norm[:, 0], initial=0.0))
        cost = np.zeros(n + 1)
        cost[-1] = 1.0
        lo, hi = np.append(self.lo, -2 * deepest - 1), np.append(self.hi, width + 1)
        answer = LinearMaxima(np.hstack([matrix, norm]), right, lo, hi).solve(cost)
        if answer.point is None:
            raise InputError("no point of the polytope could be found")
        if answer.point[-1] < 0:
            # Empty iff some y >= 0 has y'(Ax - b) > 0 on the whole box: checked, not believed.
            y = np.zeros(self.right.size)
            y[used] = answer.multipliers
            if self._farkas_margin(y) > 0:
                raise EmptyRegionError("the region is empty: the polytope misses its box")
        return np.clip(answer.point[:-1], self.lo, self.hi)

    def _farkas_margin(self, y: FloatArray) -> float:
        """Return a lower bound of min over the box of y'(Ax - b), rounding included."""
        smallest = -box_support(_rows(-(y @ self.matrix)), self.lo, self.hi)[0]
        return float(smallest - self.right @ y - self._rounding(y, np.zeros(self.size)))

    def _rounding(self, y: FloatArray, v: FloatArray) -> FloatArray:
        """Bound what rounding v - A'y and b.y can change over the box, for each row."""
        reach = np.maximum(np.abs(self.lo), np.abs(self.hi))
        total = (np.abs(v) + y @ np.abs(self.matrix)) @ reach + y @ np.abs(self.right)
        terms = self.right.size + self.size + 8
        return np.asarray(4 * terms * ROUNDING_PER_TERM * total)

    def support(self, directions: Any) -> FloatArray:
        """Return b.y + h_box(v - A'y), with y >= 0 from an LP: an upper bound for any y."""
        rows = _rows(directions)
        v = rows.toarray()
        y = self.multipliers(v)
        bound = box_support(_rows(v - y @ self.matrix), self.lo, self.hi) + y @ self.right
        # Multipliers that are no numbers bound nothing; the box always does.
        return np.fmin(box_support(rows, self.lo, self.hi), bound + self._rounding(y, v))

    def multipliers(self, directions: FloatArray) -> FloatArray:
        """Return for each row v some y >= 0 that nearly minimises b.y + h_box(v - A'y)."""
        maxima = LinearMaxima(self.matrix, self.right, self.lo, self.hi)
        found = [maxima.solve(v).multipliers for v in directions]
        return np.reshape(found, (len(found), self.right.size))

    def contains(self, point: Point) -> bool:
        """Decide membership exactly."""
        _check_dimension(point, self.size)
        exact = [Fraction(x) for x in point]
        inside = all(
            Fraction(a) <= x <= Fraction(b)
            for x, a, b in zip(exact, self.lo.tolist(), self.hi.tolist(), strict=True)
        )
        return inside and all(
            sum((Fraction(a) * x for a, x in zip(row, exact, strict=True)), Fraction(0))
            <= Fraction(b)
            for row, b in zip(self.matrix.tolist(), self.right.tolist(), strict=True)
        )

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Return points by hit and run, a chain per point, from the interior point."""
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

    def project(self, points: FloatArray) -> FloatArray:
        """Return nearly the nearest points: Dykstra's alternating projections."""
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
            # Points can stand still while the corrections still move: all must rest.
            moves = zip((x, pull, box_pull), before, strict=True)
            if all(np.max(np.abs(a - b), initial=0.0) < 1e-13 for a, b in moves):
                break
        # Alternating projections end slightly outside: pull towards the interior point, row by
        # row only as far as that row's excess asks for.
        excess = np.maximum(x @ self.matrix.T - self.right, 0.0)
        depth = np.maximum(self.right - self.matrix @ self.center, 1e-300)
        pull_back = np.max(excess / (excess + depth), axis=1, keepdims=True, initial=0.0)
        return np.asarray(x + pull_back * (self.center - x))

    def describe(self) -> str:
        """Return one line for people."""
        return f"polytope in {self.size} dimensions with {self.right.size} inequalities and a box"

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain data."""
        return {
            "kind": "polytope",
            "matrix": self.matrix.tolist(),
            "right": self.right.tolist(),
            "lo": self.lo.tolist(),
            "hi": self.hi.tolist(),
        }
