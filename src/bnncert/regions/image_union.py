"""Finite unions of boxes around an image: patches, shifts, and brightness in steps of a grid.

Box 0 is the image itself; the boxes 1, 2, .. belong to the positions of a patch, to the shifts or
to the offsets.  They are made one at a time, because there may be hundreds of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.errors import InputError
from bnncert.regions.grid import GridLike, GridValues, as_grid
from bnncert.regions.pictures import pixel_inputs
from bnncert.regions.region import Box, Cover, Point

#: The names of unions, beside those of norms.
UnionNorm: TypeAlias = Literal["patch", "shift", "brightness"]

#: The largest difference between a number of grid steps and a whole number.
STEP_ROUNDING = 1e-6


class ImageUnion(Cover):
    """The image itself and finitely many boxes; the subclasses define them."""

    kind = "union"
    norm: UnionNorm
    #: What the boxes are called in messages.
    unit: ClassVar[str] = "positions"
    #: Whether certificates may state such a union.
    has_certificate: ClassVar[bool] = True

    def __init__(
        self, image: npt.ArrayLike, clip_lo: npt.ArrayLike | None, clip_hi: npt.ArrayLike | None
    ) -> None:
        super().__init__(image, clip_lo, clip_hi, f"a {self.norm}")

    def _count_pixels(self, shape: tuple[int, ...], radius: float) -> tuple[int, int, int]:
        """Find the inputs of the pixels; return height, width and the radius in pixels."""
        self.shape, self.pixels = shape, _pixels(self, shape)
        height, width = self.pixels.shape[:2]
        self.stated_radius = float(radius)
        if not (radius >= 0 and self.stated_radius.is_integer()):
            raise InputError(
                f"radius is {radius:g}; a {self.norm} expects a whole number of pixels >= 0"
            )
        return height, width, int(radius)

    def _take_value(self, value: float | None) -> None:
        """Keep a value for inputs, which has to lie in the data box."""
        if value is None:
            return
        low = -np.inf if self.clip_lo is None else float(self.clip_lo.max())
        high = np.inf if self.clip_hi is None else float(self.clip_hi.min())
        if not (np.isfinite(value) and low <= value <= high):
            raise InputError(
                f"value is {value:g}; expected a number in the data box [{low:g}, {high:g}]"
            )
        self.value = float(value)

    @abstractmethod
    def with_radius(self, radius: float) -> ImageUnion:
        """Make the union of the same image with another radius."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of boxes besides the image itself."""

    @property
    def has_free_inputs(self) -> bool:
        """Whether a box may be more than one point."""
        return False

    @abstractmethod
    def bounds(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Compute the corners of a box; number 0 is the image itself."""

    @abstractmethod
    def place_text(self, number: int) -> str:
        """Describe a box other than the image itself in words."""

    def part(self, number: int) -> Box:
        """Make one of the boxes, on the grid if there is one."""
        return Box(*self.bounds(number))

    def real_box(self, number: int) -> Box:
        """Make one of the boxes without its grid."""
        return Box(*self.bounds(number))

    def regions(self) -> Iterator[Box]:
        """Yield the boxes, that of the image itself first."""
        return map(self.part, range(self.count + 1))

    def _contains(self, point: Point) -> bool:
        return any(box.contains(point) for box in self.regions())

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        chosen = generator.integers(0, self.count + 1, count).tolist()
        return np.concatenate([self.part(k).sample(generator, 1) for k in chosen])

    def _project(self, points: FloatArray) -> FloatArray:
        boxes = [box.project(points) for box in self.regions()]
        gaps = [np.abs(b - points).max(axis=1) for b in boxes]
        return np.asarray(np.stack(boxes)[np.argmin(gaps, axis=0), np.arange(points.shape[0])])

    def _words(self) -> list[str]:
        return [f"radius {self.stated_radius:g}, {self.count} {self.unit}", *self._clip_words()]

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State what all shapes state, and the value of the pixels."""
        fields, arrays = super().statement()
        value = None if self.value is None else str(Fraction(self.value))
        return {**fields, "value": value}, arrays

    def _plain_data(self) -> dict[str, Any]:
        return {**super()._plain_data(), "boxes": self.count}


class Patch(ImageUnion):
    """A square of pixels has any values, or one stated value; it may be anywhere in the image.

    Parameters
    ----------
    image
        The image, flat or of the shape `shape`.
    side
        The number of pixels along a side of the patch; a patch covers all channels.
    shape
        The shape of the network's inputs, see :attr:`Network.input_shape`.
    clip_lo, clip_hi
        The data box, which limits the values of the patch.
    value
        The value of all inputs of the patch (default: any values in the data box).
    grid
        The :class:`Grid` of the values of the patch, or its step; None for real values.

    Raises
    ------
    InputError
        If the inputs are not an image, the side is not a number of pixels that fits into it, or
        the values of the patch are not limited.

    Examples
    --------
    >>> import bnncert
    >>> patch = bnncert.Patch([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]], 2, (2, 3), 0, 1)
    >>> patch
    Patch(radius 2, 2 positions, data box [0, 1], 6 inputs)
    >>> patch.contains([0.25, 0.5, 1, 1, 1, 1]), patch.contains([0.25, 0.5, 0, 1, 1, 1])
    (True, False)
    """

    norm = "patch"

    def __init__(
        self,
        image: npt.ArrayLike,
        side: float,
        shape: tuple[int, ...],
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        value: float | None = None,
        grid: GridLike = None,
    ) -> None:
        super().__init__(image, clip_lo, clip_hi)
        height, width, self.side = self._count_pixels(shape, side)
        if self.side > min(height, width):
            raise InputError(
                f"radius is {self.side}; a patch of this side is larger than the image of "
                f"{height} x {width} pixels"
            )
        if value is None and (self.clip_lo is None or self.clip_hi is None):
            raise InputError("a patch needs a data box, or the value of its pixels")
        self._take_value(value)
        self.grid = as_grid(grid)
        if self.grid is not None:
            if value is not None:
                raise InputError("a patch of one value has no grid; leave one of them out")
            refuse_off_grid(GridValues(self.grid, self.middle.size, self._known_values), self)
        low = self.clip_lo if self.value is None else self.value
        high = self.clip_hi if self.value is None else self.value
        assert low is not None and high is not None
        self._low, self._high = (
            np.array(np.broadcast_to(v, self.middle.shape)) for v in (low, high)
        )
        is_used = self.side > 0
        self.lo = np.minimum(self.middle, self._low) if is_used else self.middle
        self.hi = np.maximum(self.middle, self._high) if is_used else self.middle

    def with_radius(self, radius: float) -> Patch:
        """Make the patches of another side on the same image."""
        box = self.clip_lo, self.clip_hi
        return Patch(self.middle, radius, self.shape, *box, self.value, self.grid)

    @property
    def has_free_inputs(self) -> bool:
        """Whether the patch may have several values."""
        return self.value is None

    @property
    def rows(self) -> int:
        """The number of positions along a column of the image."""
        return 1 + int(self.pixels.shape[0]) - self.side

    @property
    def columns(self) -> int:
        """The number of positions along a row of the image."""
        return 1 + int(self.pixels.shape[1]) - self.side

    @property
    def count(self) -> int:
        """The number of positions."""
        return self.rows * self.columns if self.side else 0

    def corner(self, number: int) -> tuple[int, int]:
        """Find row and column of the upper left pixel of a patch."""
        return divmod(number - 1, self.columns)

    def bounds(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Compute the corners of a box: the patch has its limits, the other inputs the image."""
        lo, hi = np.array(self.middle), np.array(self.middle)
        if number:
            row, column = self.corner(number)
            covered = self.pixels[row : row + self.side, column : column + self.side].reshape(-1)
            lo[covered], hi[covered] = self._low[covered], self._high[covered]
        return lo, hi

    def part(self, number: int) -> Box:
        """Make one of the boxes, on the grid of the patch's values."""
        return Box(*self.bounds(number), self.grid)

    def place_text(self, number: int) -> str:
        """Describe the position of a patch in words."""
        row, column = self.corner(number)
        return f"patch with its upper left corner at row {row}, column {column}"

    def _describe(self, radius: str) -> str:
        values = "any values" if self.value is None else f"the value {self.value:.9g}"
        text = f"patch of {self.side} x {self.side} pixels with {values} at {self.count} positions"
        return text + self._clip_text()


class ImageShift(ImageUnion):
    """The image is moved by at most `steps` pixels along rows and along columns.

    A pixel may come to an input whose data box does not contain its value; it is then clipped to
    this box, as in :class:`Brightness` and :class:`Contrast`.

    Parameters
    ----------
    image
        The image, flat or of the shape `shape`.
    steps
        The largest number of pixels; all moves up to it in both directions at once count.
    shape
        The shape of the network's inputs.
    clip_lo, clip_hi
        The data box, to which moved values are clipped where it differs between inputs.
    value
        The value of the pixels that enter (default: they repeat the pixels at the edge).

    Raises
    ------
    InputError
        If the inputs are not an image, or the number of steps is not one of pixels that is smaller
        than the image.

    Examples
    --------
    >>> import bnncert
    >>> shift = bnncert.ImageShift([[0.0, 0.5], [0.25, 1.0]], 1, (2, 2))
    >>> shift
    ImageShift(radius 1, 8 shifts, 4 inputs)
    >>> shift.contains([0, 0, 0.25, 0.25]), shift.contains([0, 0, 0.25, 1])
    (True, False)
    """

    norm = "shift"
    unit = "shifts"

    def __init__(
        self,
        image: npt.ArrayLike,
        steps: float,
        shape: tuple[int, ...],
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        value: float | None = None,
    ) -> None:
        super().__init__(image, clip_lo, clip_hi)
        height, width, self.steps = self._count_pixels(shape, steps)
        if self.steps >= min(height, width):
            raise InputError(
                f"radius is {self.steps}; a shift by that many pixels moves all of the image of "
                f"{height} x {width} pixels out"
            )
        self._take_value(value)
        reach = [self.middle.min(), self.middle.max(), *([] if value is None else [value])]
        self.lo, self.hi = (
            self.clipped(np.full(self.middle.size, end)) if self.steps else self.middle
            for end in (min(reach), max(reach))
        )

    def with_radius(self, radius: float) -> ImageShift:
        """Make the shifts of the same image by up to another number of pixels."""
        return ImageShift(self.middle, radius, self.shape, self.clip_lo, self.clip_hi, self.value)

    @property
    def count(self) -> int:
        """The number of shifts."""
        return (2 * self.steps + 1) ** 2 - 1

    def move(self, number: int) -> tuple[int, int]:
        """Find by how many rows (down) and columns (to the right) the image moves."""
        width = 2 * self.steps + 1
        # No move is the middle one; it is number 0, and those before it come one earlier.
        place = 2 * self.steps * (self.steps + 1) if number == 0 else number - 1
        place += number > width * width // 2
        down, right = divmod(place, width)
        return down - self.steps, right - self.steps

    def bounds(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Shift and clip the image, which is both corners of its box."""
        moved = shifted(self.middle, self.pixels, self.move(number), self.value)
        moved = self.clipped(moved)
        return moved, moved

    def place_text(self, number: int) -> str:
        """Describe a shift in words."""
        down, right = self.move(number)
        words = [
            f"{abs(n)} {'pixel' if abs(n) == 1 else 'pixels'} {way[n < 0]}"
            for n, way in ((down, ("down", "up")), (right, ("right", "left")))
            if n
        ]
        return f"shift by {' and '.join(words)}"

    def _describe(self, radius: str) -> str:
        enters = (
            "the edge repeated" if self.value is None else f"the value {self.value:.9g} entering"
        )
        plural = "" if self.steps == 1 else "s"
        clipped = "" if self.has_one_range else ", clipped to the data box"
        text = f"shifts by at most {self.steps} pixel{plural} with {enters}{clipped}"
        return text + self._clip_text()


class BrightnessSteps(ImageUnion):
    """All inputs change by the same number of grid steps, and stop at the data box.

    Parameters
    ----------
    image
        The image, whose values have to be on the grid.
    radius
        The largest offset, in input units.
    clip_lo, clip_hi
        The data box.
    grid
        The :class:`Grid`, with one step for all inputs, or its step.

    Raises
    ------
    InputError
        If the image is not on the grid, or the grid has several steps.

    Examples
    --------
    >>> import bnncert
    >>> steps = bnncert.BrightnessSteps([0.5, -0.75], 0.5, -1, 1, grid=0.25)
    >>> steps.contains([1, -0.25]), steps.contains([0.25, -0.75])
    (True, False)
    """

    norm = "brightness"
    unit = "offsets"
    has_certificate = False

    def __init__(
        self,
        image: npt.ArrayLike,
        radius: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        grid: GridLike = None,
    ) -> None:
        super().__init__(image, clip_lo, clip_hi)
        self.grid = as_grid(grid)
        if self.grid is None:
            raise InputError("brightness in steps needs a grid")
        steps = np.unique(np.asarray(self.grid.step, dtype=np.float64))
        if steps.size != 1:
            raise InputError("brightness needs one grid step for all inputs")
        if not 0 <= radius <= steps[0] * 2.0**20:
            raise InputError(f"radius is {radius}; expected between 0 and 2^20 grid steps")
        self.stated_radius = float(radius)
        self.steps = int(np.floor(radius / steps[0] + STEP_ROUNDING))
        known, size = self._known_values, self.middle.size
        self._levels = GridValues(self.grid, size, known, self.stated_radius)
        refuse_off_grid(self._levels, self)
        self._places = self._levels.nearest(self.middle)
        self.lo, self.hi = self._image(-self.steps), self._image(self.steps)

    def with_radius(self, radius: float) -> BrightnessSteps:
        """Make the offsets of the same image up to another radius."""
        return BrightnessSteps(self.middle, radius, self.clip_lo, self.clip_hi, self.grid)

    def _image(self, steps: int) -> FloatArray:
        places = self._places + steps
        if self.clip_lo is not None:
            places = np.maximum(places, self._levels.first_from(self.clip_lo))
        if self.clip_hi is not None:
            places = np.minimum(places, self._levels.last_until(self.clip_hi))
        return self._levels.at(places)

    @property
    def count(self) -> int:
        """The number of offsets."""
        return 2 * self.steps

    def offset(self, number: int) -> int:
        """Find the offset of a box in grid steps: 0, 1, -1, 2, -2, .."""
        return (number + 1) // 2 * (1 if number % 2 else -1)

    def bounds(self, number: int) -> tuple[FloatArray, FloatArray]:
        """Offset the image, which is both corners of its box."""
        moved = self._image(self.offset(number))
        return moved, moved

    def place_text(self, number: int) -> str:
        """Describe an offset in words."""
        return f"brightness offset of {self.offset(number)} grid steps"

    def _describe(self, radius: str) -> str:
        text = f"brightness offsets up to {radius or format(self.stated_radius, '.9g')}"
        return text + self._clip_text()


def shifted(
    image: FloatArray, pixels: IntArray, move: tuple[int, int], value: float | None
) -> FloatArray:
    """Move an image down and to the right; `value` enters, or the edge is repeated."""
    height, width = pixels.shape[:2]
    rows, columns = np.arange(height) - move[0], np.arange(width) - move[1]
    moved = np.array(image)
    source = pixels[np.clip(rows, 0, height - 1)][:, np.clip(columns, 0, width - 1)]
    moved[pixels.reshape(-1)] = image[source.reshape(-1)]
    if value is not None:
        outside_rows = (rows < 0) | (rows >= height)
        outside_columns = (columns < 0) | (columns >= width)
        moved[pixels[outside_rows[:, None] | outside_columns[None, :]].reshape(-1)] = value
    return moved


def refuse_off_grid(values: GridValues, union: ImageUnion) -> None:
    """Raise InputError if a value of the image is not on the grid."""
    off = np.flatnonzero(~values.has(union.middle))
    if off.size:
        i = int(off[0])
        raise InputError(
            f"input {i} = {union.middle[i]:.9g} is not on the grid; a {union.norm} needs its image "
            "there"
        )


def _pixels(union: ImageUnion, shape: tuple[int, ...]) -> IntArray:
    """Find the inputs of the pixels, after a check that the image has this shape."""
    if int(np.prod(shape)) != union.middle.size:
        raise InputError(
            f"the image has {union.middle.size} values; the shape {' x '.join(map(str, shape))} "
            f"has {int(np.prod(shape))}"
        )
    pixels = pixel_inputs(shape)
    if pixels is None:
        raise InputError(
            f"a {union.norm} needs an image; the network's inputs have the shape "
            f"{' x '.join(map(str, shape))}"
        )
    return pixels
