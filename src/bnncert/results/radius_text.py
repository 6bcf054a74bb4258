"""Radii in tables, charts and files: in px if the network states its pixel step.

The inputs of the region are named together with the radius: real inputs, integer pixels, or another
grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

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
        """Return a radius for the reader, as in `2 px`."""
        if self.name == "":
            return f"{radius:.9g}"
        return f"{radius / self.size:.6g} {self.name}"

    def below(self, radius: float, digits: int = DIGITS) -> str:
        """Return the radius rounded down, as the option --radius takes it: `0.87px`."""
        return self._rounded(radius, ROUND_FLOOR, digits)

    def above(self, radius: float) -> str:
        """Return the radius rounded up, as the option --radius takes it."""
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
    """Return a radius with its unit; some radii are numbers of inputs or pixels, or a factor."""
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
    """Return a radius in pixel steps; None if there are no pixel steps, or it is not a length."""
    return None if norm in COUNTED or pixel_step is None else radius / pixel_step


def inputs_text(step: float | None, pixel_step: float | None) -> str:
    """Return the inputs that a region with a grid of this step consists of; None: all reals."""
    if step is None:
        return "real inputs"
    if pixel_step is None:
        return f"grid of step {step:.9g}"
    pixels = step / pixel_step
    return "integer pixels" if abs(pixels - 1) < ROUNDING else f"grid of {pixels:.6g} px"
