"""Norms, radii, grid steps, data boxes and scales of pixels as users write and read them.

A radius is in input units, in pixel steps (`1px`), or in the paper's delta (`0.25 delta`); its
number may be a fraction (`8/255`), which becomes the nearest float:

delta_inf = 127.5 eps      delta_2 = 255 eps      for data in [-1, 1]

Tables show radii in px if the network states its pixel step.  The inputs of the region are named
together with the radius: real inputs, integer pixels, or another grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.regions.ball import Ball, L0Ball
from bnncert.regions.image_path import ImagePath
from bnncert.regions.image_union import ImageUnion

#: Shapes of change, which are named in the place of a norm.
ShapeName: TypeAlias = Literal["brightness", "contrast", "patch", "shift"]

#: Norms of balls, and shapes of change.
ChangeNorm: TypeAlias = Literal[
    "linf", "l2", "l1", "l0", "brightness", "contrast", "patch", "shift"
]

#: A ball, or the region of a shape of change.
Neighbourhood: TypeAlias = Ball | L0Ball | ImagePath | ImageUnion

#: The shapes of change, those with a value beside the radius, and those without a grid.
SHAPES: tuple[str, ...] = get_args(ShapeName)
VALUED, GRIDLESS = ("contrast", "patch", "shift"), ("contrast", "shift")

#: What a radius is where it is not a length in input units.
RADIUS_MEANING = {
    "l0": "the number of inputs that may change",
    "contrast": "the largest difference between the factor and 1",
    "patch": "the side of the patch in pixels, without a unit",
    "shift": "the number of pixels, without a unit",
}


def is_union(norm: str, *, on_grid: bool) -> bool:
    """Whether the region of a norm is a finite union of boxes."""
    return norm in ("patch", "shift") or (norm == "brightness" and on_grid)


#: Digits of a radius that is rounded to the side on which its answer holds.
DIGITS = 6

#: Norms whose radii are not lengths in input units.
COUNTED = ("l0", "contrast", "patch", "shift")

#: The largest relative difference between the step of a grid and the pixel step.
ROUNDING = 1e-6


@dataclass(frozen=True)
class RadiusUnit:
    """A unit of radii: its name (empty for input units), and its size in input units."""

    name: str = ""
    size: float = 1.0

    def text(self, radius: float) -> str:
        """Write a radius for the reader, as in `2 px`."""
        if self.name == "":
            return f"{radius:.9g}"
        return f"{radius / self.size:.6g} {self.name}"

    def below(self, radius: float, digits: int = DIGITS) -> str:
        """Round a radius down and write it as the option --radius takes it: `0.87px`."""
        return self._rounded(radius, ROUND_FLOOR, digits)

    def above(self, radius: float) -> str:
        """Round a radius up and write it as the option --radius takes it."""
        return self._rounded(radius, ROUND_CEILING, DIGITS)

    def _rounded(self, radius: float, rounding: str, digits: int) -> str:
        if not math.isfinite(radius):
            return "-"
        context = Context(prec=digits, rounding=rounding)
        share = context.divide(Decimal(radius), Decimal(self.size))
        return f"{share.normalize():f}{self.name}"


#: Radii in the unit of the inputs.
INPUT_UNITS = RadiusUnit()


def radius_text(radius: float, norm: str, pixel_step: float | None) -> str:
    """Write a radius with its unit; some radii are numbers of inputs or pixels, or a factor."""
    plural = "" if radius == 1 else "s"
    if norm == "l0":
        return f"{radius:g} input{plural}"
    if norm == "patch":
        return f"{radius:g} x {radius:g} pixels"
    if norm == "shift":
        return f"{radius:g} pixel{plural}"
    if norm == "contrast":
        return f"{radius:.9g}"
    return f"{radius:.9g}" if pixel_step is None else f"{radius / pixel_step:.6g} px"


def radius_in_px(radius: float, norm: str, pixel_step: float | None) -> float | None:
    """Convert a radius to pixel steps; None if there are none, or it is not a length."""
    return None if norm in COUNTED or pixel_step is None else radius / pixel_step


def inputs_text(step: float | None, pixel_step: float | None) -> str:
    """Name the inputs of a region with a grid of this step; None: all reals."""
    if step is None:
        return "real inputs"
    if pixel_step is None:
        return f"grid of step {step:.9g}"
    pixels = step / pixel_step
    return "integer pixels" if abs(pixels - 1) < ROUNDING else f"grid of {pixels:.6g} px"


#: Deltas per input unit.
DELTAS = {"linf": 127.5, "l2": 255.0}


@dataclass(frozen=True)
class Radius:
    """A radius as it was written; `in_units` converts it for a network.

    `line` is the line of the configuration, and `name` the name of the number in messages.
    """

    number: float
    unit: Literal["input", "px", "delta"]
    line: int = 0
    name: str = "radius"

    @property
    def text(self) -> str:
        """The radius as a reader would write it."""
        return f"{self.number:.9g}" if self.unit == "input" else f"{self.number:g} {self.unit}"

    def in_units(
        self, network: Network, name: str, norm: str | None, clip: tuple[float, float] | None
    ) -> float:
        """Convert the radius to input units; raise InputError if its unit is not defined."""
        if self.unit == "input":
            return self.number
        what = f"{self.name} is {self.text}"
        if norm in RADIUS_MEANING:
            raise InputError(f"{what}; norm {norm} expects {RADIUS_MEANING[norm]}")
        if self.unit == "px":
            if network.pixel_step is None:
                raise InputError(
                    f"{what}, but network {name} does not state the size of a pixel step "
                    "(pixel_step), and the data are not 8-bit pixels with a known data box; give "
                    f"--scale LO HI (in a configuration: scale), or the {self.name} in input units"
                )
            return self.number * network.pixel_step
        if norm not in DELTAS:
            raise InputError(f"{what}, but delta is defined for linf and l2 only")
        lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
        if lo is None or hi is None or not (np.all(lo == np.float64(-1)) and np.all(hi == 1.0)):
            raise InputError(
                f"{what}, but the data box of network {name} is not [-1, 1]; give the {self.name} "
                "in input units or px, or --clip -1 1 (in a configuration: clip)"
            )
        return self.number / DELTAS[norm]

    def unit_for(
        self, network: Network, name: str, norm: str | None, clip: tuple[float, float] | None
    ) -> RadiusUnit:
        """Find the size of the unit in which the radius is written."""
        size = replace(self, number=1.0).in_units(network, name, norm, clip)
        return RadiusUnit("" if self.unit == "input" else self.unit, size)


def check_clip(lo: float, hi: float) -> tuple[float, float]:
    """Check that [lo, hi] is a data box."""
    if not -math.inf < lo <= hi < math.inf:
        raise InputError(f"clip is {lo} {hi}; expected finite numbers LO <= HI")
    return lo, hi


def read_step(value: object, line: int = 0) -> Radius | None:
    """Read the grid step of a number or a text like `1px`; None if it is not one."""
    step = read_radius(value, line, "grid")
    return None if step is None or step.number == 0 or step.unit == "delta" else step


def _number(text: str) -> float:
    """Read a decimal number, or the float nearest to a fraction of whole numbers."""
    above, bar, below = text.partition("/")
    return float(Fraction(int(above), int(below))) if bar else float(text)


def read_radius(value: object, line: int = 0, name: str = "radius") -> Radius | None:
    """Read the radius of a number or a text like `0.25 delta` or `8/255`; None if it is none.

    `line` is the line of the configuration, and `name` the name of the number in messages.
    """
    unit: Literal["input", "px", "delta"] = "input"
    if isinstance(value, str):
        text = value.strip()
        if text.endswith("px"):
            text, unit = text[:-2], "px"
        elif text.endswith("delta"):
            text, unit = text[:-5], "delta"
        try:
            number = _number(text)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
    else:
        return None
    return Radius(number, unit, line, name) if 0 <= number < math.inf else None


def in_input_units(
    value: float | str | None, network: Network, norm: str | None, name: str
) -> float | None:
    """Convert a number or a text like `1px` to input units; None stays None.

    Raises InputError if the text is not a radius, or the network does not define its unit.
    """
    if not isinstance(value, str):
        return value
    radius = read_radius(value, name=name)
    if radius is None:
        raise InputError(f"{name} is {value!r}; expected a number, also as in 8/255 or 1px")
    return radius.in_units(network, network.source, norm, None)


# -- the map from pixels (0 to 255) to inputs, for networks that do not state it -----------

#: The largest pixel.
WHITE = 255


@dataclass(frozen=True)
class PixelScale:
    """The inputs of pixel 0 and of pixel 255, for all channels or one for each channel."""

    lo: tuple[float, ...]
    hi: tuple[float, ...]

    @staticmethod
    def between(lo: float, hi: float) -> PixelScale:
        """Scale from lo (pixel 0) to hi (pixel 255)."""
        if not -np.inf < lo < hi < np.inf:
            raise InputError(f"scale is {lo:g} {hi:g}; expected finite numbers LO < HI")
        return PixelScale((float(lo),), (float(hi),))

    @staticmethod
    def normalised(mean: Sequence[float], std: Sequence[float]) -> PixelScale:
        """Scale by (pixel / 255 - mean) / std; a single number is used for all channels."""
        count = max(len(mean), len(std))
        if not mean or not std or any(len(x) not in (1, count) for x in (mean, std)):
            raise InputError(
                f"mean has {len(mean)} and std {len(std)} values; expected one or as many as "
                "there are channels"
            )
        if not np.all(np.isfinite(mean)):
            raise InputError(f"mean is {_text(mean)}; expected finite numbers")
        if not np.all(np.isfinite(std)) or min(std) <= 0:
            raise InputError(f"std is {_text(std)}; expected finite numbers > 0")
        means, deviations = np.broadcast_to(mean, count), np.broadcast_to(std, count)
        lo, hi = (0.0 - means) / deviations, (1.0 - means) / deviations
        if not np.all(np.isfinite([lo, hi])) or np.any(lo >= hi):
            raise InputError(
                f"mean {_text(mean)} and std {_text(std)} map pixels to an empty or infinite range"
            )
        return PixelScale(tuple(map(float, lo)), tuple(map(float, hi)))

    @property
    def options(self) -> str:
        """The options of the command line that state this scale."""
        if len(self.lo) == 1:
            return f"--scale {self.lo[0]!r} {self.hi[0]!r}"
        # lo = -mean / std and hi = (1 - mean) / std
        ends = list(zip(self.lo, self.hi, strict=True))
        mean = ",".join(f"{-lo / (hi - lo):.12g}" for lo, hi in ends)
        std = ",".join(f"{1 / (hi - lo):.12g}" for lo, hi in ends)
        return f"--normalise {mean} {std}"

    def on(self, network: Network) -> Network:
        """Give a network the data box and the pixel step that follow from the scale."""
        lo, hi = (self._spread(values, network) for values in (self.lo, self.hi))
        steps = {(b - a) / WHITE for a, b in zip(self.lo, self.hi, strict=True)}
        # With different steps a ball in pixels would be an ellipsoid in input units.
        step = steps.pop() if len(steps) == 1 else None
        return replace(network, input_lo=lo, input_hi=hi, pixel_step=step)

    def _spread(self, values: tuple[float, ...], network: Network) -> FloatArray:
        """Spread one value a channel to one an input."""
        shape, count = network.input_shape, len(values)
        if count == 1:
            return np.full(network.inputs, values[0])
        wide = np.asarray(values)
        if len(shape) == 3 and shape[0] == count:
            wide = wide[:, None, None]
        elif len(shape) != 3 or shape[2] != count:
            raise InputError(
                f"mean and std are for {count} channels, but {network.source} has inputs of shape "
                f"{shape}"
            )
        return np.ascontiguousarray(np.broadcast_to(wide, shape)).reshape(-1)


def _text(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)
