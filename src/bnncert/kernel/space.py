"""The region of a claim: its exact numbers, its description in words, its points, and its grid.

The values of input i of a grid are, for integers k, origin_i + step_i k in float64 arithmetic,
rounded to float32 if the claim states it.  If a number of the claim (the centre of a ball, a side
of the box) lies within a thousandth of a step of such a value, that number replaces the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.function import Objects, scaled
from bnncert.model.network import Network

Floats = npt.NDArray[np.float64]

#: Numbers of a polytope's inequalities that are not 0, at most, and bits between the largest and
#: the smallest digit of a region's numbers: both bound the integers that are made of them.
MOST_COEFFICIENTS, MOST_BITS = 2**19, 800

#: The fields, the arrays and the optional arrays that each kind of region has in the statement.
BALL = (("radius",), ("center",), ("clip_lo", "clip_hi"))
REGIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "box": ((), ("lo", "hi"), ()),
    "linf": BALL,
    "l2": BALL,
    "l1": BALL,
    "l0": BALL,
    "polytope": (("inequalities",), ("lo", "hi", "matrix", "right"), ("inside",)),
}

#: All fields of a region.
REGION_FIELDS = {"radius", "within", "inequalities", "grid"}

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
        """Read the grid of a claim, or None if it is about real inputs."""
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
        """Look up the numbers of the claim that are values of input i, by their integers."""
        return self._places[i]

    def place(self, i: int, x: Fraction) -> int:
        """Find the integer whose value is about x."""
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
        """Evaluate input i at the integer k: a number of the claim, or the formula."""
        return self._places[i].get(k, self._formula(i, k))

    def beyond(self, i: int, bound: Fraction, way: int, *, strict: bool = False) -> float:
        """Find the first value x with way (x - bound) >= 0, or > 0 if `strict`."""
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
        """Find the outermost grid values of every input of a box, or of a ball in a box.

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
        """Find the nearest grid point to a centre, each coordinate between bounds if possible."""
        found = []
        for i, (c, low, high) in enumerate(zip(center, lower, upper, strict=True)):
            beside = [Fraction(self.beyond(i, c, way)) for way in (-1, 1)]
            inside = [x for x in beside if low <= x <= high] or beside
            found.append(min(inside, key=lambda x, c=c: abs(x - c)))  # type: ignore[misc]
        return found

    def words(self, network: Network) -> str:
        """Describe the grid in words: integer pixels if it has the pixels of the network."""
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


@dataclass(frozen=True, eq=False)
class Space:
    """The region: a box, optionally a ball inside it and inequalities matrix.x <= right.

    The numbers of box and ball are integers in units of 2^-shift; the radius of an L0 ball is the
    number of inputs that may differ from the centre.  On a grid, only grid points belong to the
    region, and the box ends at the outermost of them.
    """

    lower: Objects
    upper: Objects
    norm: str | None
    center: Objects
    radius: int
    shift: int
    matrix: Floats
    right: Floats
    grid: StatedGrid | None = None
    #: The numbers by which the region is named: those of its centre or of all its bounds, and those
    #: of its data box and grid if inputs differ in them.
    named: dict[str, Floats] = field(default_factory=dict)

    def rationals(self, numbers: Objects) -> list[Fraction]:
        """Write numbers of the box or the ball as rationals."""
        return [Fraction(v, 1 << self.shift) for v in numbers.tolist()]

    def contains(self, point: list[Fraction]) -> bool:
        """Whether an exact point lies in the region."""
        lower, upper = self.rationals(self.lower), self.rationals(self.upper)
        if self.grid is not None and not self.grid.contains(point):
            return False
        if not all(a <= x <= b for a, x, b in zip(lower, point, upper, strict=True)):
            return False
        for row, limit in zip(self.matrix, self.right.tolist(), strict=True):
            used = np.flatnonzero(row).tolist()
            if sum(Fraction(row[k]) * point[k] for k in used) > Fraction(limit):
                return False
        center, radius = self.rationals(self.center), Fraction(self.radius, 1 << self.shift)
        gaps = [abs(x - c) for x, c in zip(point, center, strict=False)]
        if self.norm == "l0":
            return sum(g > 0 for g in gaps) <= self.radius
        if self.norm == "l2":
            return sum(g * g for g in gaps) <= radius**2
        return self.norm is None or sum(gaps) <= radius

    @cached_property
    def gaps(self) -> list[Fraction]:
        """How far every input of a ball is at least from its centre: to the nearest grid value."""
        center, grid = self.rationals(self.center), self.grid
        if grid is None or grid.contains(center):
            return []
        beside = [[grid.beyond(i, c, way) for way in (-1, 1)] for i, c in enumerate(center)]
        return [
            min(abs(Fraction(x) - c) for x in both) for both, c in zip(beside, center, strict=True)
        ]

    def has_float32(self) -> bool:
        """Whether an input of float32 numbers lies in the box or ball, without inequalities."""
        plain = replace(self, matrix=self.matrix[:0], right=self.right[:0])
        if self.grid is not None:
            return self.grid.single and plain.has_grid_point()
        center = self.center if self.center.size else self.lower
        nearest = np.minimum(np.maximum(center, self.lower), self.upper)
        numbers = (self.rationals(v) for v in (nearest, self.lower, self.upper))
        # Every coordinate is as near to the centre as possible.
        found = [_nearest_float32(*entry) for entry in zip(*numbers, strict=True)]
        point = [x for x in found if x is not None]
        return len(point) == len(found) and plain.contains(point)

    def has_grid_point(self) -> bool:
        """Whether the grid point nearest to the centre lies in the region."""
        assert self.grid is not None
        lower, upper = self.rationals(self.lower), self.rationals(self.upper)
        center = self.rationals(self.center) if self.center.size else lower
        return self.contains(self.grid.nearest(center, lower, upper))


def read_space(section: Section, network: Network) -> tuple[Space, str, str]:
    """Read the region of a claim, exactly, its description, and that of the data box."""
    kind, size = section.text("region", tuple(REGIONS)), network.inputs
    given = _given(section, kind, size)
    matrix, right = np.zeros((0, size)), np.zeros(0)
    if kind == "polytope":
        right = section.floats("right", section.number("inequalities"))
        matrix = section.floats("matrix", right.size * size).reshape(right.size, size)
        if np.count_nonzero(matrix) > MOST_COEFFICIENTS:
            raise RejectedError(f"the inequalities have more than {MOST_COEFFICIENTS} coefficients")
    radius = read_radius(section.fields["radius"]) if "radius" in section.fields else 0.0
    # The largest change of each input of a ball; None if only the data box limits it.
    reach = _reach(section, kind, radius, size)
    known = ("clip_lo", "clip_hi", "lo", "hi", "center")
    grid = StatedGrid.read(section, size, [given[k] for k in known if k in given])
    if grid is not None:
        given |= grid.box(given, reach)
    refuse_wide(np.concatenate([*given.values(), [reach or 0.0]]))
    refuse_wide(np.concatenate([matrix.ravel(), right]))
    whole, shift = scaled(np.concatenate([*given.values(), [reach or 0.0]]))
    exact = dict(zip(given, whole[:-1].reshape(len(given), size), strict=True))
    if "center" in exact:
        space = _ball(kind, None if reach is None else whole[-1], exact, shift)
        if kind == "l0":
            space = replace(space, radius=int(radius))
        box = data_box_words(given.get("clip_lo"), given.get("clip_hi"), network)
        words = f"{_ball_words(kind, radius, reach, size)} {box}"
        words += "" if radius else ", which is one point"
        named = {"centre": given["center"]}
        named |= different({"data_box": [given[k] for k in ("clip_lo", "clip_hi") if k in given]})
    else:
        none = whole[:0]
        space = Space(exact["lo"], exact["hi"], None, none, 0, shift, matrix, right)
        bounds = _interval(given["lo"], given["hi"])
        box = f"the region's own bounds {bounds}"
        words = f"a box in {size} dimensions with bounds {bounds}"
        words = f"a polytope of {right.size} inequalities in {words}" if right.size else words
        named = {kind: np.concatenate([given["lo"], given["hi"], matrix.ravel(), right])}
    if grid is not None:
        space = _on_grid(space, grid, exact)
        words = f"{words}, {grid.words(network)}"
        named |= different({"grid": [section.floats(name, size) for name in GRID_ARRAYS]})
    if np.any(space.lower > space.upper):
        raise RejectedError("the region is empty")
    return replace(space, named=named), words, box


def different(vectors: dict[str, list[Floats]]) -> dict[str, Floats]:
    """Choose the vectors that are not the same for all inputs, which words do not tell."""
    return {
        name: np.concatenate(parts)
        for name, parts in vectors.items()
        if any(np.any(part != part[0]) for part in parts)
    }


def _given(section: Section, kind: str, size: int) -> dict[str, Floats]:
    """Read the vectors of a region; reject fields and arrays of other kinds of regions."""
    fields, needed, optional = REGIONS[kind]
    # A field of another kind of region could be mistaken for a part of the claim.
    gridded = "grid" in section.fields
    fields, needed = (*fields, *["grid"] * gridded), (*needed, *GRID_ARRAYS * gridded)
    if kind == "l0" and "within" in section.fields:
        fields = (*fields, "within")
    elif kind == "l0":
        needed, optional = (*needed, *optional), ()
    if section.fields.keys() & REGION_FIELDS != set(fields):
        raise UnreadableError(f"section statement: the fields are not those of region {kind}")
    if not set(needed) <= section.arrays.keys() <= {*needed, *optional}:
        raise UnreadableError(f"section statement: the arrays are not those of region {kind}")
    names = [k for k in section.arrays if k not in ("matrix", "right", "inside", *GRID_ARRAYS)]
    return {name: section.floats(name, size) for name in names}


def _reach(section: Section, kind: str, radius: float, size: int) -> float | None:
    """Read the largest change of each input of a ball; None if only the data box limits it."""
    if kind != "l0":
        return radius
    if not (radius.is_integer() and radius <= size):
        raise RejectedError("the radius of an l0 ball is not a number of inputs")
    return read_radius(section.fields["within"]) if "within" in section.fields else None


def _ball(kind: str, reach: int | None, exact: dict[str, Objects], shift: int) -> Space:
    center = exact["center"]
    if reach is None:
        lower, upper = exact["clip_lo"], exact["clip_hi"]
    else:
        lower, upper = center - reach, center + reach
        lower = np.maximum(lower, exact.get("clip_lo", lower))
        upper = np.minimum(upper, exact.get("clip_hi", upper))
    if kind != "linf" and np.any((center < lower) | (center > upper)):
        raise RejectedError("the centre of the ball lies outside the data box")
    none = np.zeros((0, center.size))
    norm = None if kind == "linf" else kind
    return Space(lower, upper, norm, center, reach or 0, shift, none, none[:, 0])


def _on_grid(space: Space, grid: StatedGrid, exact: dict[str, Objects]) -> Space:
    """Restrict a region to grid points; its box ends at the outermost grid values."""
    lower, upper = exact["grid_lo"], exact["grid_hi"]
    if space.norm == "l0" and not grid.contains(space.rationals(space.center)):
        raise RejectedError("the centre of the l0 ball is not on the grid")
    if space.norm is not None:  # The centre of other balls need not be on the grid.
        lower, upper = np.minimum(lower, space.center), np.maximum(upper, space.center)
    return replace(space, lower=lower, upper=upper, grid=grid)


def _ball_words(kind: str, radius: float, reach: float | None, size: int) -> str:
    """Describe the inputs of a ball in words, without its data box."""
    if kind != "l0":
        return f"the {kind} ball of radius {radius!r}"
    by = "" if reach is None else f", each by at most {reach!r}"
    return (
        f"the l0 ball of radius {int(radius)} (at most {int(radius)} of {size} inputs change{by})"
    )


def read_radius(value: Any) -> float:
    """Read the radius, which is a float in every claim."""
    exact = exactly(value)
    try:
        radius = float(exact)
    except OverflowError:
        radius = np.inf
    if not 0 <= radius < np.inf or Fraction(radius) != exact:
        raise UnreadableError("the radius is negative or not a float64 number")
    return radius


def refuse_wide(numbers: Floats) -> None:
    """Reject floats that need too many bits over a common power of two."""
    _, exponents = np.frexp(numbers[numbers != 0])
    if exponents.size and int(exponents.max() - exponents.min()) + 53 > MOST_BITS:
        raise RejectedError("the region's numbers differ too much in size")


def data_box_words(lo: Floats | None, hi: Floats | None, network: Network) -> str:
    """Describe the data box of a ball in words, and whether it is the network's own."""
    own = _interval(network.input_lo, network.input_hi)
    mine = _interval(lo, hi)
    if lo is None and hi is None:
        return (
            "without a data box" if own is None else f"not limited to the network's data box {own}"
        )
    if own is None:
        return f"inside the data box {mine}, while the network states none"
    same = _equal(lo, network.input_lo) and _equal(hi, network.input_hi)
    return (
        f"inside the network's data box {own}"
        if same
        else (f"inside the data box {mine}, not the network's own {own}")
    )


def _equal(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, np.broadcast_to(np.ravel(b), a.shape))


def _interval(lo: Floats | None, hi: Floats | None) -> str | None:
    """Describe bounds in words, the outermost ones if inputs differ."""
    if lo is None and hi is None:
        return None
    low, high = (
        np.ravel(v) if v is not None else np.array([s * np.inf]) for v, s in ((lo, -1), (hi, 1))
    )
    equal = np.all(low == low[:1]) and np.all(high == high[:1])
    return f"[{low.min():.9g}, {high.max():.9g}]{'' if equal else ' (less for some inputs)'}"


def _nearest_float32(x: Fraction, low: Fraction, high: Fraction) -> Fraction | None:
    """Find a float32 number next to x within bounds, the nearest if there is one."""
    with np.errstate(over="ignore"):
        first = np.float32(float(x))
        beside = [np.nextafter(first, np.float32(s * np.inf)) for s in (-1, 1)]
    found = [Fraction(float(v)) for v in (first, *beside) if np.isfinite(v)]
    return min((v for v in found if low <= v <= high), key=lambda v: abs(v - x), default=None)


def has_input(section: Section, space: Space, float32: bool) -> bool:
    """Whether the region has an input: boxes and balls have, a polytope needs a point as proof."""
    point = None
    if "inside" in section.arrays:
        point = section.floats("inside", len(space.lower))
        if not space.contains([Fraction(v) for v in point.tolist()]):
            raise RejectedError("the input that shows that the region is not empty lies outside")
    if not space.right.size:
        return space.grid is None or space.has_grid_point()
    return point is not None and (not float32 or bool(np.all(point.astype(np.float32) == point)))
