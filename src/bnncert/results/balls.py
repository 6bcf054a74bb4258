"""Balls around points: the norm, the data box, and further conditions on inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.regions import (
    SHAPES,
    Ball,
    Brightness,
    BrightnessSteps,
    ChangeNorm,
    Contrast,
    Grid,
    ImageShift,
    L0Ball,
    Neighbourhood,
    Patch,
)
from bnncert.regions.radii import GRIDLESS, VALUED, Radius


@dataclass(frozen=True, eq=False)
class Balls:
    """The common properties of all balls of a question, without centre and radius."""

    norm: ChangeNorm
    #: The data box, or None.
    lo: Any
    hi: Any
    grid: Grid | None = None
    #: The largest change of an input in an L0 ball; None if only the data box limits it.
    within: float | None = None
    #: The value of a shape of change; None is its default.
    value: float | None = None
    #: The shape of the inputs, for patches and shifts.
    shape: tuple[int, ...] = ()

    @staticmethod
    def of(
        network: Network,
        name: str,
        norm: ChangeNorm,
        clip: tuple[float, float] | None = None,
        *,
        grid: Radius | None = None,
        within: Radius | None = None,
        value: float | None = None,
    ) -> Balls:
        """Return the balls for a network, which messages call `name`.

        Raises InputError if the network does not state the unit of a number, or the norm does not
        use it.
        """
        lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
        reach = None
        if within is not None:
            if norm != "l0":
                raise InputError(f"within belongs to norm l0; the norm is {norm}")
            reach = within.in_units(network, name, "linf", clip)
        if value is not None and norm not in VALUED:
            raise InputError(f"value belongs to norm {' or '.join(VALUED)}; the norm is {norm}")
        if grid is not None and norm in GRIDLESS:
            raise InputError(f"norm {norm} has no grid; leave it out")
        if norm in SHAPES:
            made = Balls(norm, lo, hi, value=value, shape=network.input_shape)
            if grid is None and norm in ("brightness", "contrast"):
                return made
            if grid is None:
                lo, hi = (None if v is None else _as_float32(v) for v in (lo, hi))
                return replace(made, lo=lo, hi=hi)
            gridded = Balls.of(network, name, "linf", clip, grid=grid)
            return replace(gridded, norm=norm, value=value, shape=network.input_shape)
        if grid is None and norm != "l0":
            return Balls(norm, lo, hi)
        # A model reads its pixels as float32 numbers; unchanged pixels have exactly these values.
        lo, hi = (None if v is None else _as_float32(v) for v in (lo, hi))
        if grid is None:
            return Balls(norm, lo, hi, None, reach)
        # Pixel 0 is the lower end of the network's own data box, also with a clip.
        origin = lo if network.input_lo is None else _as_float32(network.input_lo)
        values = Grid(grid.in_units(network, name, "linf", None), 0.0 if origin is None else origin)
        if lo is not None and hi is not None:
            # Raises if the step does not fit the data box, for any centre.
            corner = np.broadcast_to(lo, (network.inputs,))
            Ball("linf", corner, float(np.max(hi - lo)), lo, hi, values)
        return Balls(norm, lo, hi, values, reach)

    def centre(self, point: FloatArray) -> FloatArray:
        """Return the point with the values that the network reads."""
        is_real = self.grid is None and self.norm not in ("l0", "patch", "shift")
        return point if is_real else _as_float32(point)

    def around(self, centre: FloatArray, radius: float | None) -> Neighbourhood:
        """Return the ball or shape around a centre; some radii are numbers of inputs or pixels.

        Without a radius it is the whole data box.
        """
        box, value = (self.lo, self.hi), self.value
        if radius is None:
            return Ball.of_data_box(centre, *box, self.grid)
        if self.norm == "l0":
            return L0Ball(centre, radius, *box, self.within, self.grid)
        if self.norm == "brightness" and self.grid is not None:
            return BrightnessSteps(centre, radius, *box, self.grid)
        if self.norm == "brightness":
            return Brightness(centre, radius, *box)
        if self.norm == "contrast":
            return Contrast(centre, radius, *box, value)
        if self.norm == "patch":
            return Patch(centre, radius, self.shape, *box, value, self.grid)
        if self.norm == "shift":
            return ImageShift(centre, radius, self.shape, *box, value)
        return Ball(self.norm, centre, radius, *box, self.grid)


def _as_float32(values: npt.ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)
