"""Grids in claims: which values inputs can take, and the outermost ones between two bounds.

The values of input i are, for integers k, origin_i + step_i k in float64 arithmetic, rounded to
float32 if the claim states it.  If a number of the claim (the centre of a ball, a side of the box)
lies within a thousandth of a step of such a value, that number replaces the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bnncert.kernel.container import RejectedError, Section
from bnncert.model.network import Network

Floats = npt.NDArray[np.float64]

#: The arrays of a claim about a grid.
GRID_ARRAYS = ("grid_step", "grid_origin")

#: Share of a step by which a number of the claim may differ from the formula.
TOLERANCE = 1e-3

#: The largest value of a grid, in float32 and in float64.
LARGEST, LARGEST_DOUBLE = 1e38, 1e300

#: The largest number of steps from a rough place to the right one.
MOST_STEPS = 8


@dataclass(frozen=True, eq=False)
class StatedGrid:
    """The grid of a claim; `known` are numbers of the claim, of which later ones have priority."""

    step: list[float]
    origin: list[float]
    single: bool
    known: Sequence[list[float]]
    _places: list[dict[int, float]] = field(default_factory=list)

    @staticmethod
    def read(section: Section, size: int, known: Sequence[Floats]) -> StatedGrid | None:
        """Return the grid of a claim, or None if it is about real inputs."""
        if "grid" not in section.fields:
            return None
        single = section.text("grid", ("float32", "float64")) == "float32"
        step, origin = (section.floats(name, size).tolist() for name in GRID_ARRAYS)
        if not all(s > 0 for s in step):
            raise RejectedError("a step of the grid is not positive")
        grid = StatedGrid(step, origin, single, [x.tolist() for x in known])
        for i in range(size):
            grid._places.append(grid._known_values(i))
        return grid

    def _known_values(self, i: int) -> dict[int, float]:
        found = {}
        for numbers in self.known:
            k = self.place(i, Fraction(numbers[i]))
            if abs(numbers[i] - self._formula(i, k)) <= TOLERANCE * self.step[i]:
                found[k] = numbers[i]
        return found

    def own_values(self, i: int) -> dict[int, float]:
        """Return the numbers of the claim that are values of input i, by their integers."""
        return self._places[i]

    def place(self, i: int, x: Fraction) -> int:
        """Return the integer whose value is about x."""
        return round((x - Fraction(self.origin[i])) / Fraction(self.step[i]))

    def _formula(self, i: int, k: int) -> float:
        try:
            value = self.origin[i] + self.step[i] * k
        except OverflowError:
            raise RejectedError("the grid is too fine") from None
        if abs(value) > (LARGEST if self.single else LARGEST_DOUBLE):
            raise RejectedError("a value of the grid is too large")
        return float(np.float32(value)) if self.single else value

    def value(self, i: int, k: int) -> float:
        """Return the value of input i for the integer k."""
        return self._places[i].get(k, self._formula(i, k))

    def beyond(self, i: int, bound: Fraction, way: int, *, strict: bool = False) -> float:
        """Return the first value x with way (x - bound) >= 0, or > 0 if `strict`."""
        k = self.place(i, bound) - 2 * way
        # Values have the order of the integers, up to a thousandth of a step.
        if way * (Fraction(self._formula(i, k)) - bound) > -Fraction(self.step[i]):
            raise RejectedError("the grid is too fine for its floating-point numbers")
        for _ in range(MOST_STEPS):
            gap = way * (Fraction(self.value(i, k)) - bound)
            if gap > 0 or (gap == 0 and not strict):
                break
            k += way
        found, after = self.value(i, k), self.value(i, k + way)
        # All values after the next one also lie beyond this one.
        if (gap > 0 or (gap == 0 and not strict)) and way * (after - found) > self.step[i] / 2:
            return found
        raise RejectedError("the grid is too fine for its floating-point numbers")

    def box(self, given: dict[str, Floats], reach: float | None) -> dict[str, Floats]:
        """Return the outermost grid values of every input of a box, or of a ball in a box.

        `reach` is the largest change of an input of a ball; None if only the box limits it.
        """
        exact = {name: [Fraction(v) for v in numbers.tolist()] for name, numbers in given.items()}
        lower, upper = exact.get("lo", []), exact.get("hi", [])
        if "center" in exact:
            lower, upper = exact.get("clip_lo", []), exact.get("clip_hi", [])
            if reach is not None:
                low = [c - Fraction(reach) for c in exact["center"]]
                high = [c + Fraction(reach) for c in exact["center"]]
                lower, upper = (
                    list(map(max, low, lower or low)),
                    list(map(min, high, upper or high)),
                )
        return {
            "grid_lo": np.array([self.beyond(i, x, 1) for i, x in enumerate(lower)]),
            "grid_hi": np.array([self.beyond(i, x, -1) for i, x in enumerate(upper)]),
        }

    def contains(self, point: Sequence[Fraction]) -> bool:
        """Whether all coordinates are values of the grid."""
        return all(self.has_value(i, x) for i, x in enumerate(point))

    def has_value(self, i: int, x: Fraction) -> bool:
        """Whether x is a value of input i."""
        return Fraction(self.value(i, self.place(i, x))) == x

    def nearest(
        self, center: Sequence[Fraction], lower: Sequence[Fraction], upper: Sequence[Fraction]
    ) -> list[Fraction]:
        """Return the nearest grid point to a centre, each coordinate between bounds if possible."""
        found = []
        for i, (c, low, high) in enumerate(zip(center, lower, upper, strict=True)):
            beside = [Fraction(self.beyond(i, c, way)) for way in (-1, 1)]
            inside = [x for x in beside if low <= x <= high] or beside
            found.append(min(inside, key=lambda x, c=c: abs(x - c)))  # type: ignore[misc]
        return found

    def words(self, network: Network) -> str:
        """Return the grid in words: integer pixels if it has the pixels of the network."""
        steps, origins = set(self.step), set(self.origin)
        step = f"{self.step[0]:.9g}" if len(steps) == 1 else "its own for each input"
        origin = f"{self.origin[0]:.9g}" if len(origins) == 1 else "an own number for each input"
        kind = "float32" if self.single else "float64"
        words = f"on the grid of step {step} from {origin} in {kind}"
        if self._has_pixels(network):
            return f"integer pixels only, {words}"
        return f"integer inputs only, {words}" if self._has_integers() else words

    def _has_integers(self) -> bool:
        return set(self.step) == {1.0} and all(x.is_integer() for x in self.origin)

    def _has_pixels(self, network: Network) -> bool:
        """Whether the values are the pixels from 0 to 255 of the network's data box."""
        if network.pixel_step is None or network.input_lo is None:
            return False
        lowest = np.broadcast_to(np.ravel(network.input_lo), len(self.origin))
        return set(self.step) == {network.pixel_step} and self.origin == lowest.tolist()
