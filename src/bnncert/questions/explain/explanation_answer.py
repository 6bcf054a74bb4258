"""An explanation, and the domain of the inputs that are not kept.

The domain of input i is an interval that contains its value c_i in the image; on a grid only the
values of the grid count.  The region of a set F of free inputs is

    { x : x_i in its domain for i in F,  x_i = c_i for all others }.

It is an L-inf ball around the image whose data box is the single value c_i for inputs that are not
free.  So the grid has the same values whatever is free, and regions grow with F.

What is free or kept as a whole is a *unit*: an input, or a square block of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.engine.answer import Answer, Columns
from bnncert.engine.verdict import Counterexample, Status
from bnncert.errors import InputError
from bnncert.kernel.rules.pixel_blocks import PixelBlocks
from bnncert.regions import Ball
from bnncert.regions.ball import box_reach


class Domain:
    """The domains of all inputs of an image.

    Parameters
    ----------
    ball
        An L-inf ball around the image, with its data box and grid.
    radius
        The radius as the user wrote it, for the description.
    blocks
        The blocks of pixels that are free or kept as a whole (None: single inputs).

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
    text
        The domain in words.
    blocks
        The blocks of pixels, if there are any.
    unit
        The unit of each input.
    """

    def __init__(self, ball: Ball, radius: str = "", blocks: PixelBlocks | None = None) -> None:
        if ball.norm != "linf":
            raise InputError(f"an explanation needs norm linf; the norm is {ball.norm}")
        self.image, self.grid, self.text = ball.middle, ball.grid, _words(ball, radius)
        self.blocks = blocks
        self.unit: IntArray = np.arange(self.size) if blocks is None else blocks.numbers
        if ball.grid is None:
            # Bounds of the ball may be rounded outwards, so its radius counts, too.
            self.lo = ball.lo if ball.clip_lo is None else ball.clip_lo
            self.hi = ball.hi if ball.clip_hi is None else ball.clip_hi
            self._radius = ball.radius
        else:
            self.lo, self.hi = _grid_bounds(ball)
            self._radius = 2 * box_reach(self.image, self.lo, self.hi)
        outside = (self.image < self.lo) | (self.image > self.hi)
        if np.any(outside):
            i = int(np.argmax(outside))
            raise InputError(
                f"the image is not in the data box: input {i} = {self.image[i]:.9g} is not in "
                f"[{self.lo[i]:.9g}, {self.hi[i]:.9g}]"
            )
        values = self.everything.values
        if values is not None and not np.all(values.has(self.image)):
            i = int(np.argmin(values.has(self.image)))
            raise InputError(
                f"an explanation on a grid needs an image on it: input {i} = {self.image[i]:.9g} "
                "is not a value of the grid"
            )

    @property
    def size(self) -> int:
        """The number of inputs."""
        return int(self.image.size)

    @property
    def units(self) -> int:
        """The number of units: inputs or blocks."""
        return self.size if self.blocks is None else self.blocks.count

    @cached_property
    def everything(self) -> Ball:
        """The region in which all inputs are free."""
        return self.region(np.ones(self.units, dtype=np.bool_))

    def differing(self, point: FloatArray) -> IntArray:
        """Find the units in which a point differs from the image, in ascending order."""
        return np.unique(self.unit[point != self.image])

    def region(self, free_units: BoolArray) -> Ball:
        """Return the region in which some units are free and the others are as in the image."""
        free = free_units[self.unit]
        lo, hi = np.where(free, self.lo, self.image), np.where(free, self.hi, self.image)
        return Ball("linf", self.image, self._radius, lo, hi, self.grid)


def _words(ball: Ball, radius: str) -> str:
    lo, hi, words = ball.clip_lo, ball.clip_hi, []
    radii = (ball.radius, ball.stated_radius)
    if lo is None or hi is None or max(radii) < box_reach(ball.middle, lo, hi):
        words.append(f"within {radius or f'{ball.stated_radius:.6g}'} of the image")
    if lo is not None and hi is not None:
        words.append(f"in [{lo.min():.6g}, {hi.max():.6g}]")
    return " and ".join(words) + ("" if ball.grid is None else f", {ball.grid.describe()}")


def _grid_bounds(ball: Ball) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a ball on a grid.

    The values of the grid are float32 numbers if the image and all bounds are.  The bounds of a
    float32 image are rounded to float32 inwards, so that this does not depend on what is free.
    """
    with np.errstate(over="ignore"):
        if not np.array_equal(ball.middle, ball.middle.astype(np.float32)):
            return ball.lo, ball.hi
        lo = None if ball.clip_lo is None else _rounded_up(ball.clip_lo)
        hi = None if ball.clip_hi is None else -_rounded_up(-ball.clip_hi)
    ball = Ball("linf", ball.middle, ball.stated_radius, lo, hi, ball.grid)
    return ball.lo, ball.hi


def _rounded_up(bound: FloatArray) -> FloatArray:
    """Return the least float32 numbers that are not below a bound."""
    rounded = bound.astype(np.float32)
    above = np.nextafter(rounded, np.float32(np.inf))
    return np.where(rounded < bound, above, rounded).astype(np.float64)


@dataclass(frozen=True)
class ExplanationStep:
    """One verification: `free` units were free, `added` of them for the first time."""

    free: int
    added: int
    status: Status
    method: str
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Answer):
    """Inputs that suffice for the class: with them as in the image, no other input can change it.

    ``print`` and notebooks show one row for each verification of the search.

    Attributes
    ----------
    label
        The class that is explained.
    domain
        The image, and the values that inputs take if they are not kept (`domain.text`).
    kept_units
        The units of the explanation, inputs or blocks of pixels, in ascending order.
    witnesses
        For each unit that is shown to be needed, a counterexample that differs from the image only
        in this unit and in those that are not kept.
    steps
        The verifications, in the order in which they were made.
    out_of_time
        Whether the time limit ended the search.
    seconds, certificate, no_certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"minimal"})

    label: int
    domain: Domain
    kept_units: tuple[int, ...]
    witnesses: Mapping[int, Counterexample]
    steps: tuple[ExplanationStep, ...]
    seconds: float
    out_of_time: bool = False
    certificate: str | None = None
    no_certificate: str = ""

    @property
    def status(self) -> Literal["minimal", "sufficient"]:
        """Whether each kept unit is shown to be needed, or only that they suffice."""
        return "minimal" if self.minimal else "sufficient"

    @property
    def evidence(self) -> Mapping[int, Counterexample]:
        """The witnesses."""
        return self.witnesses

    @property
    def inputs(self) -> int:
        """The number of inputs of the network."""
        return self.domain.size

    @property
    def kept(self) -> tuple[int, ...]:
        """The inputs of the explanation, in ascending order."""
        return tuple(np.flatnonzero(self.mask).tolist())

    @property
    def open(self) -> tuple[int, ...]:
        """The kept units that are not shown to be needed."""
        return tuple(i for i in self.kept_units if i not in self.witnesses)

    @property
    def minimal(self) -> bool:
        """Whether each kept unit is shown to be needed: fewer of them do not suffice."""
        return not self.open

    @cached_property
    def mask(self) -> BoolArray:
        """For each input whether it is kept."""
        return np.isin(self.domain.unit, self.kept_units)

    @property
    def nearest(self) -> tuple[int, Counterexample] | None:
        """The needed unit whose witness is the nearest to the image, by the sum of changes."""
        image = self.domain.image
        far = {i: float(np.abs(w.point - image).sum()) for i, w in self.witnesses.items()}
        best = min(far, key=far.__getitem__, default=None)
        return None if best is None else (best, self.witnesses[best])

    @property
    def summary(self) -> str:
        """The answer in a few words."""
        kept, needed = len(self.kept_units), len(self.witnesses)
        verb = "suffices" if kept == 1 else "suffice"
        units = "inputs" if self.domain.blocks is None else self.domain.blocks.words
        text = f"{kept} of {self.domain.units} {units} {verb} for class {self.label}"
        if not kept:
            return f"class {self.label} for all values of all {self.inputs} inputs in their domain"
        if self.minimal:
            return f"{text}, and {'it' if kept == 1 else 'each of them'} is needed"
        return f"{text}; {needed} of them {'is' if needed == 1 else 'are'} shown to be needed"

    def columns(self) -> Columns:
        """Show how the set of free inputs grew, verification by verification."""
        rows = [
            [str(s.free), str(s.added), s.status.replace("_", " "), s.method, f"{s.seconds:.2f}"]
            for s in self.steps
        ]
        units = "inputs" if self.domain.blocks is None else "blocks"
        heads = [f"free {units}", "of them new", "answer", "decided by", "seconds"]
        return Columns(heads, rows, left=0)

    def below(self) -> list[str]:
        """State the values of the other inputs, for which the explanation holds."""
        return [f"other inputs: {self.domain.text}"]

    def facts(self) -> dict[str, Any]:
        """Return plain data; witnesses contain only the inputs that differ."""
        blocks, by_blocks = self.domain.blocks, dict[str, Any]()
        if blocks is not None:
            by_blocks = {"blocks": blocks.stated(), "kept_blocks": list(self.kept_units)}
        return {
            "label": self.label,
            "inputs": self.inputs,
            "domain": self.domain.text,
            "kept": list(self.kept),
            **by_blocks,
            "needed": sorted(self.witnesses),
            "open": list(self.open),
            "minimal": self.minimal,
            "out_of_time": self.out_of_time,
            "calls": len(self.steps),
            "steps": [vars(step) for step in self.steps],
            "witnesses": {str(i): self._changes(i) for i in sorted(self.witnesses)},
        }

    def _changes(self, needed: int) -> dict[str, Any]:
        """Return where a witness differs from the image, and its class."""
        found = self.witnesses[needed]
        changed = np.flatnonzero(found.point != self.domain.image)
        tree: dict[str, Any] = {
            "changed": changed.tolist(),
            "values": found.point[changed].tolist(),
            "target": found.target,
            "predicted": found.predicted,
        }
        if found.exact is not None:
            tree["values_exact"] = [str(found.exact[i]) for i in changed]
        return tree
