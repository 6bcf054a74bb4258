r"""Paths of images: brightness and contrast.

A path is  y_i(t) = clip(a_i + t d_i, lo_i, hi_i)  for t in [first, last], in exact rationals:

* brightness adds one offset to all inputs:        a = x,  d = 1,      t in [-r, r];
* contrast scales the distance from a middle m:    a = m,  d = x - m,  t in [1 - r, 1 + r].

The image x itself is the point of the path at t = 0 or t = 1.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.regions.region import LARGEST_VALUE, Cover, Point

#: The names of paths, beside those of norms.
PathNorm: TypeAlias = Literal["brightness", "contrast"]

#: A factor that covers the rounding errors of a bounding box.
SAFETY = 1.0 + 1e-9


class ImagePath(Cover):
    """The images on a path; the subclasses define its numbers."""

    kind = "path"
    norm: PathNorm
    #: The value of t at the image itself.
    nominal: ClassVar[Fraction]

    def __init__(
        self,
        center: npt.ArrayLike,
        radius: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(center, clip_lo, clip_hi, self.norm)
        self.radius = self.stated_radius = float(radius)
        if not 0 <= self.radius <= LARGEST_VALUE:
            raise InputError(f"radius is {radius}; expected a finite number >= 0")
        change = self._largest_change()
        low, high = self.middle - change, self.middle + change
        # The image lies in the data box, so that each side is clipped at its own limit only.
        self.lo = self.clipped(np.where(change > 0, np.nextafter(low, -np.inf), low))
        self.hi = self.clipped(np.where(change > 0, np.nextafter(high, np.inf), high))

    @abstractmethod
    def with_radius(self, radius: float) -> ImagePath:
        """Make the path of the same image with another radius."""

    @abstractmethod
    def _largest_change(self) -> FloatArray:
        """Bound by how much each input changes; the bound is not rounded down."""

    @cached_property
    @abstractmethod
    def line(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """The exact numbers a and d of all inputs."""

    @abstractmethod
    def place_text(self, t: Fraction) -> str:
        """Describe the place on the path in words."""

    @property
    def first(self) -> Fraction:
        """The least t."""
        return self.nominal - Fraction(self.radius)

    @property
    def last(self) -> Fraction:
        """The largest t."""
        return self.nominal + Fraction(self.radius)

    @cached_property
    def bounds(self) -> tuple[list[Fraction | None], list[Fraction | None]]:
        """The exact data box; None where there is no limit."""

        def exact(limits: FloatArray | None) -> list[Fraction | None]:
            return [None] * self.size if limits is None else [Fraction(v) for v in limits.tolist()]

        return exact(self.clip_lo), exact(self.clip_hi)

    def at(self, t: Fraction) -> tuple[Fraction, ...]:
        """Compute the image at t, exactly."""
        found = []
        for a, d, lo, hi in zip(*self.line, *self.bounds, strict=True):
            y = a + t * d
            y = y if lo is None or y >= lo else lo
            found.append(y if hi is None or y <= hi else hi)
        return tuple(found)

    def _contains(self, point: Point) -> bool:
        return self._places(point) is not None

    def place_of(self, point: Point) -> Fraction:
        """Find a t at which a point of the path lies, the nearest to the image itself."""
        places = self._places(point)
        assert places is not None
        return min(max(places[0], self.nominal), places[1])

    def _places(self, point: Point) -> tuple[Fraction, Fraction] | None:
        """Intersect the intervals of t at which the inputs have their values."""
        least, largest = self.first, self.last
        for x, a, d, lo, hi in zip(map(Fraction, point), *self.line, *self.bounds, strict=True):
            if (lo is not None and x < lo) or (hi is not None and x > hi):
                return None
            at_lo, at_hi = x == lo, x == hi
            if at_lo and at_hi:
                continue
            if d == 0:
                if not (a == x or (at_lo and a < x) or (at_hi and a > x)):
                    return None
                continue
            t = (x - a) / d
            # At a side of the data box, all t beyond the one that reaches it have this value.
            rising = d > 0
            if not (at_lo if rising else at_hi):
                least = max(least, t)
            if not (at_hi if rising else at_lo):
                largest = min(largest, t)
            if least > largest:
                return None
        return least, largest

    def _sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        shares = generator.uniform(float(self.first), float(self.last), size=(count, 1))
        return self._floats(shares)

    def _floats(self, places: FloatArray) -> FloatArray:
        """Compute the images at one t for each row, up to rounding."""
        a, d = (np.array([float(v) for v in numbers]) for numbers in self.line)
        return np.asarray(np.clip(a + places * d, self.lo, self.hi))

    def _project(self, points: FloatArray) -> FloatArray:
        """Take the images at which the line without the data box is nearest."""
        a, d = (np.array([float(v) for v in numbers]) for numbers in self.line)
        length = float(d @ d)
        places = (points - a) @ d / length if length > 0 else np.zeros(points.shape[0])
        return self._floats(np.clip(places, float(self.first), float(self.last))[:, None])

    def _words(self) -> list[str]:
        return [f"radius {self.stated_radius:.6g}", *self._clip_words()]


class Brightness(ImagePath):
    """All inputs change by one offset between -radius and radius, and stay in the data box.

    Parameters
    ----------
    center
        The image; an array of any shape is flattened in C order.
    radius
        The largest offset, in input units.
    clip_lo, clip_hi
        The data box: one number for all inputs, or one for each; None for no limit.

    Raises
    ------
    InputError
        If a number is not finite, the radius is negative, or the image is not in the data box.

    Examples
    --------
    >>> import bnncert
    >>> path = bnncert.Brightness([0.5, 0], 0.75, clip_lo=-1, clip_hi=1)
    >>> path.contains([0.75, 0.25]), path.contains([1, 0.75]), path.contains([0.75, 0])
    (True, True, False)
    """

    norm = "brightness"
    nominal = Fraction(0)

    def with_radius(self, radius: float) -> Brightness:
        """Make the path of the same image with another largest offset."""
        return Brightness(self.middle, radius, self.clip_lo, self.clip_hi)

    def _largest_change(self) -> FloatArray:
        return np.full(self.middle.size, self.radius)

    @cached_property
    def line(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """The image, and 1 for every input."""
        return tuple(map(Fraction, self.middle.tolist())), (Fraction(1),) * self.size

    def place_text(self, t: Fraction) -> str:
        """Describe the offset in words."""
        return f"brightness offset {float(t):.9g}"

    def _describe(self, radius: str) -> str:
        text = f"brightness offsets up to {radius or format(self.stated_radius, '.9g')}"
        return text + self._clip_text()


class Contrast(ImagePath):
    """The distances of all inputs from a middle value are scaled by one factor 1 - r .. 1 + r.

    Parameters
    ----------
    center, clip_lo, clip_hi
        The image and the data box, as of :class:`Brightness`.
    radius
        The largest difference r between the factor and 1; at most 1.
    value
        The middle, which contrast does not change (default: the middle of the data box).

    Raises
    ------
    InputError
        If a number is not finite, the radius is not between 0 and 1, the image is not in the data
        box, or there is neither a data box nor a middle.

    Examples
    --------
    >>> import bnncert
    >>> path = bnncert.Contrast([0.5, -0.25], 0.5, clip_lo=-1, clip_hi=1)
    >>> path.contains([0.25, -0.125]), path.contains([0.75, -0.375]), path.contains([0.75, 0])
    (True, True, False)
    """

    norm = "contrast"
    nominal = Fraction(1)

    def __init__(
        self,
        center: npt.ArrayLike,
        radius: float,
        clip_lo: npt.ArrayLike | None = None,
        clip_hi: npt.ArrayLike | None = None,
        value: float | None = None,
    ) -> None:
        if value is None and (clip_lo is None or clip_hi is None):
            raise InputError("contrast needs a data box, or the value that it does not change")
        if value is not None and not np.isfinite(value):
            raise InputError(f"value is {value}; expected a finite number")
        if radius > 1:
            raise InputError(
                f"radius is {radius:g}; contrast expects at most 1, the factors 0 to 2"
            )
        self.value = value
        middle = np.asarray(0.0 if value is None else value, np.float64)
        if value is None:
            assert clip_lo is not None and clip_hi is not None
            low, high = np.asarray(clip_lo, np.float64), np.asarray(clip_hi, np.float64)
            middle = (low + high).reshape(-1) / 2
        #: The middle of each input.
        self.pivot = np.array(np.broadcast_to(middle, (np.asarray(center).size,)))
        super().__init__(center, radius, clip_lo, clip_hi)

    def with_radius(self, radius: float) -> Contrast:
        """Make the path of the same image with another largest factor."""
        return Contrast(self.middle, radius, self.clip_lo, self.clip_hi, self.value)

    def _largest_change(self) -> FloatArray:
        return self.radius * np.abs(self.middle - self.pivot) * SAFETY

    @cached_property
    def line(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """The middle, and the distances of the inputs from it."""
        pivot = tuple(map(Fraction, self.pivot.tolist()))
        return pivot, tuple(
            Fraction(x) - m for x, m in zip(self.middle.tolist(), pivot, strict=True)
        )

    def place_text(self, t: Fraction) -> str:
        """Describe the factor in words."""
        return f"contrast factor {float(t):.9g}"

    def statement(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """State what all shapes state, and the middle."""
        fields, arrays = super().statement()
        return fields, {**arrays, "pivot": self.pivot}

    def _describe(self, radius: str) -> str:
        low, high = float(self.first), float(self.last)
        text = f"contrast factors from {low:.9g} to {high:.9g} about {_one_number(self.pivot)}"
        return text + self._clip_text()


def _one_number(values: FloatArray) -> str:
    same = bool(np.all(values == values[0]))
    return f"{values[0]:.9g}" if same else "the middle of each input"
