"""Sets of inputs: regions, boxes among them, and covers by several regions.

Verification needs exact membership, samples and a projection, and of a region its support function
(a rigorous upper bound).  All sets are immutable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.grid import Grid, GridLike, GridValues, as_grid
from bnncert.regions.support import box_support

Point: TypeAlias = Sequence[Fraction] | FloatArray

#: Larger inputs and radii are refused, because their products overflow inside solvers.
LARGEST_VALUE = 1e100

#: Relative steps towards the centre that are tried until a projected point is strictly inside.
INWARD = (0.0, 1e-15, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4)


class EmptyRegionError(InputError):
    """The region has no points, so every property holds on it."""


class InputSet(ABC):
    """A bounded set of inputs: a :class:`Region`, or a cover of several.

    On a grid, membership, samples and projections refer to grid points, and the bounding box
    ends at the outermost grid values.
    """

    #: The lower and upper corner of a box that contains the set (rounded outwards).
    lo: FloatArray
    hi: FloatArray
    #: A point of the set (up to rounding).
    center: FloatArray
    #: The centre that the caller stated, or `center`.
    middle: FloatArray
    #: The norm of a ball, or the name of a shape of change; None for other sets.
    norm: str | None = None
    #: The radius as the caller stated it, and the number that may be stated beside it.
    stated_radius: float
    value: float | None = None
    #: The data box around a centre; None for no limit.
    clip_lo: FloatArray | None = None
    clip_hi: FloatArray | None = None
    #: The grid as the caller stated it; None for real inputs.
    grid: Grid | None = None
    #: The values of the grid for these inputs.
    values: GridValues | None = None

    def __repr__(self) -> str:
        parts = [*self._words(), f"{self.size} inputs"]
        if self.grid is not None:
            parts.append(self.grid.describe())
        return f"{type(self).__name__}({', '.join(parts)})"

    def _words(self) -> list[str]:
        """Tell `repr` what to say about the set, apart from its size and grid."""
        free = int(np.count_nonzero(self.hi > self.lo))
        lowest, highest = float(self.lo.min()), float(self.hi.max())
        return [f"[{lowest:.6g}, {highest:.6g}]", f"{free} of the inputs can change"]

    def _set_data_box(self, lo: npt.ArrayLike | None, hi: npt.ArrayLike | None) -> None:
        """Check and keep the sides of the data box around `middle`, one number or one an input."""
        size = self.middle.size
        self.clip_lo = None if lo is None else checked_vector(lo, size, "clip (lower)")
        self.clip_hi = None if hi is None else checked_vector(hi, size, "clip (upper)")

    @property
    def _known_values(self) -> list[FloatArray]:
        """Numbers that count as values of a grid, where they are near to one."""
        return [v for v in (self.clip_lo, self.clip_hi, self.middle) if v is not None]

    def _clip_words(self) -> list[str]:
        if self.clip_lo is None or self.clip_hi is None:
            return []
        return [f"data box [{self.clip_lo.min():g}, {self.clip_hi.max():g}]"]

    def _clip_text(self) -> str:
        """Describe the data box at the end of a description."""
        if self.clip_lo is None or self.clip_hi is None:
            return ""
        return f", data in [{self.clip_lo.min():.9g}, {self.clip_hi.max():.9g}]"

    def _stated_ball(self, radius: float) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State norm, exact radius, centre and data box in a certificate."""
        sides = {"center": self.middle, "clip_lo": self.clip_lo, "clip_hi": self.clip_hi}
        arrays = {name: side for name, side in sides.items() if side is not None}
        return {"region": self.norm, "radius": str(Fraction(radius))}, arrays

    def _plain_ball(self, kind: str) -> dict[str, Any]:
        """Write norm, centre, radius and data box as plain data."""
        sides = {"clip_lo": self.clip_lo, "clip_hi": self.clip_hi}
        return {
            "kind": kind,
            "norm": self.norm,
            "center": self.middle.tolist(),
            "radius": self.stated_radius,
            **{name: None if side is None else side.tolist() for name, side in sides.items()},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the set that are printed with the answer, one line each."""
        return ()

    @property
    def size(self) -> int:
        """The number of inputs."""
        return int(self.lo.shape[0])

    @property
    def is_box(self) -> bool:
        """Whether the set is the box from `lo` to `hi`, up to their rounding."""
        return False

    @property
    @abstractmethod
    def hull(self) -> Region:
        """A region that contains the set: the set itself, or a box around it."""

    def contains(self, point: Point) -> bool:
        """Decide membership in exact arithmetic; a float is the rational number it represents."""
        if len(point) != self.size:
            raise InputError(f"point with {len(point)} coordinates; the region has {self.size}")
        if self.values is not None and not self.values.contains(point):
            return False
        return self._contains(point)

    @abstractmethod
    def _contains(self, point: Point) -> bool:
        """Decide membership, without the grid, of a point with the right number of coordinates."""

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Draw random points of the set (up to rounding), one a row."""
        points = self._sample(generator, count)
        return points if self.values is None else self.on_grid(points)

    @abstractmethod
    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Draw random points, without the grid."""

    def project(self, points: FloatArray) -> FloatArray:
        """Move points to the nearest ones of the set, up to rounding; on a grid, to nearby ones."""
        points = self._project(points)
        return points if self.values is None else self.on_grid(points)

    @abstractmethod
    def _project(self, points: FloatArray) -> FloatArray:
        """Move points to the nearest ones, without the grid."""

    def on_grid(self, points: FloatArray) -> FloatArray:
        """Round points of the set to the grid; some of the results may lie outside."""
        values = self.values
        assert values is not None
        low, high = values.first_from(self.lo), values.last_until(self.hi)
        return values.at(np.clip(values.nearest(points), low, np.maximum(low, high)))

    def describe(self, radius: str = "") -> str:
        """Describe the set in one line; `radius` is the text for the radius of a ball."""
        text = self._describe(radius)
        return text if self.grid is None else f"{text}, {self.grid.describe()}"

    @abstractmethod
    def _describe(self, radius: str) -> str:
        """Describe the set without the grid, with a text for the radius if there is one."""

    @abstractmethod
    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State the set, without its grid, as fields and arrays of a certificate."""

    def to_dict(self) -> dict[str, Any]:
        """Write the set as plain data that JSON can hold."""
        tree = self._plain_data()
        return tree if self.grid is None else {**tree, "grid": self.grid.to_dict()}

    @abstractmethod
    def _plain_data(self) -> dict[str, Any]:
        """Write the set without its grid as plain data."""

    def settle(self, point: FloatArray, dtype: npt.DTypeLike = np.float64) -> FloatArray | None:
        """Find a point near `point` that is exactly inside and representable in `dtype`."""
        if self.values is not None:
            rounded = self.on_grid(np.clip(point, self.lo, self.hi)[None, :])[0]
            with np.errstate(over="ignore"):
                same = np.array_equal(rounded.astype(dtype).astype(np.float64), rounded)
            return rounded if same and self.contains(rounded) else None
        lo, hi = self.inner_bounds(dtype)
        for pull in INWARD:
            moved = point + pull * (self.center - point)
            with np.errstate(over="ignore"):
                rounded = np.clip(moved.astype(dtype).astype(np.float64), lo, hi)
            # A number outside the range of `dtype` is infinite now.
            if np.all(np.isfinite(rounded)) and self.contains(rounded):
                return np.asarray(rounded, dtype=np.float64)
        return None

    def inner_bounds(self, dtype: npt.DTypeLike = np.float64) -> tuple[FloatArray, FloatArray]:
        """Round the sides of the bounding box inwards to `dtype`."""
        with np.errstate(over="ignore"):
            low, high = self.lo.astype(dtype), self.hi.astype(dtype)
        up, down = np.array([np.inf, -np.inf], dtype=dtype)
        low = np.where(low.astype(np.float64) < self.lo, np.nextafter(low, up), low)
        high = np.where(high.astype(np.float64) > self.hi, np.nextafter(high, down), high)
        return low.astype(np.float64), high.astype(np.float64)


class Region(InputSet):
    """A bounded convex set of inputs, or points in one that its support function encloses.

    On a grid, the support function is that of the convex set with the tightened bounding box, so
    what it proves also holds for the grid points.  A region is a ball of its norm around `middle`,
    or all of its bounding box where its inequalities hold.
    """

    #: The radius of a ball, with room for the rounding of a grid's values; infinite without a norm.
    radius: float = np.inf
    #: By how much each input of a ball may change, apart from the data box.
    reach: float = np.inf

    @property
    def hull(self) -> Region:
        """The region itself."""
        return self

    @property
    def inequalities(self) -> tuple[FloatArray, FloatArray]:
        """A and b of the inequalities A x <= b inside the box; most regions have none."""
        return np.zeros((0, self.size)), np.zeros(0)

    def multipliers(self, directions: FloatArray) -> FloatArray:
        """Find for each row v multipliers y >= 0 of the inequalities that bound max v.x."""
        return np.zeros((directions.shape[0], 0))

    def support(self, directions: Any) -> FloatArray:
        """Bound max v.x over the region from above, for each row v."""
        return self._support(as_rows(directions))

    @abstractmethod
    def _support(self, rows: Any) -> FloatArray:
        """Bound the support function at the rows of a CSR matrix of floats."""


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
        """State the bounds."""
        return {"region": "box"}, {"lo": self.lo, "hi": self.hi}

    def _plain_data(self) -> dict[str, Any]:
        return {"kind": "box", "lo": self.lo.tolist(), "hi": self.hi.tolist()}


class Cover(InputSet):
    """A shape of change of an image inside a data box, which is a path or a union of boxes.

    Verification divides it: a path into cells in which no sign of the first layer changes, and a
    union into its boxes.  Its hull is a box that contains more images.
    """

    #: What `to_dict` calls such covers.
    kind: ClassVar[str]
    norm: str

    def __init__(
        self, image: npt.ArrayLike, lo: npt.ArrayLike | None, hi: npt.ArrayLike | None, what: str
    ) -> None:
        """Check the numbers; raise InputError if the image, where `what` starts, is outside."""
        values = self.middle = checked_vector(image, None, "input")
        self._set_data_box(lo, hi)
        low = -np.inf if self.clip_lo is None else self.clip_lo
        high = np.inf if self.clip_hi is None else self.clip_hi
        outside = np.flatnonzero((values < low) | (values > high))
        if outside.size:
            i = int(outside[0])
            raise InputError(
                f"input {i} = {values[i]:.9g} lies outside the data box; {what} needs an image "
                "inside"
            )
        self.center = np.array(values)

    @property
    def hull(self) -> Box:
        """The bounding box."""
        return Box(self.lo, self.hi)

    def clipped(self, values: FloatArray) -> FloatArray:
        """Move values into the data box: min(max(v, lo), hi)."""
        above = values if self.clip_lo is None else np.maximum(values, self.clip_lo)
        return above if self.clip_hi is None else np.minimum(above, self.clip_hi)

    @property
    def has_one_range(self) -> bool:
        """Whether the data box is the same for all inputs."""
        return all(b is None or bool(np.all(b == b[0])) for b in (self.clip_lo, self.clip_hi))

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State the name of the shape and its radius, with the image and the data box."""
        return self._stated_ball(self.stated_radius)

    def _plain_data(self) -> dict[str, Any]:
        return {**self._plain_ball(self.kind), "value": self.value}


def refuse_cover(inputs: InputSet, question: str) -> None:
    """Raise InputError if a question about one region gets a cover."""
    if isinstance(inputs, Cover):
        raise InputError(f"{question} takes one region, not {inputs.norm}: use verify")


def tightened(values: GridValues, lo: FloatArray, hi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find the outermost grid values between lo and hi; raise if an input has none."""
    low, high = values.at(values.first_from(lo)), values.at(values.last_until(hi))
    if np.any(low > high):
        i = int(np.flatnonzero(low > high)[0])
        raise EmptyRegionError(
            f"the region is empty: input {i} is between {lo[i]:.9g} and {hi[i]:.9g}, where the "
            f"grid of step {values.step[i]:.9g} has no value"
        )
    return low, high


def checked_vector(value: npt.ArrayLike, size: int | None, name: str) -> FloatArray:
    """Check that numbers are finite and make a read-only vector; one number stands for all."""
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
    # Adding zero copies the array and turns -0.0 into 0.0: numpy cannot sample from 0.0 to -0.0.
    array = np.asarray(array + 0.0)
    array.setflags(write=False)
    return array


def as_rows(directions: Any) -> Any:
    """Bring directions to rows of a CSR matrix of floats."""
    # Imported on use: boxes do without, and SciPy takes longer to import than NumPy.
    from scipy.sparse import csr_array, issparse

    if issparse(directions):
        return csr_array(directions).astype(np.float64)
    return csr_array(np.atleast_2d(np.asarray(directions, dtype=np.float64)))
