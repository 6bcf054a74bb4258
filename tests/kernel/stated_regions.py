"""The inputs of a statement by brute force: reachable patterns, and grid points one by one."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from tests.brute_force import TinyNetwork, last_layers_at, reachable_last_layers
from tests.kernel.arrangement import patterns

#: Grid points that are looked at one by one; of more, so many at random.
MOST_POINTS = 4000


def last_layers(tiny: TinyNetwork, statement: Section) -> set[tuple[int, ...]]:
    """Return every sign vector of the last hidden layer on the region of a statement."""
    if "grid" in statement.fields:
        points = grid_points(statement)
        return set[tuple[int, ...]]().union(*(last_layers_at(tiny, x) for x in points))
    if statement.fields["region"] != "l0":
        return over_region(tiny, _region(statement))
    found: set[tuple[int, ...]] = set()
    center, (lo, hi) = statement.arrays["center"], _ranges(statement)
    for chosen in combinations(range(center.size), int(statement.fields["radius"])):
        low, high = center.copy(), center.copy()
        for i in chosen:
            low[i], high[i] = _inwards(lo[i], np.inf), _inwards(hi[i], -np.inf)
        found |= over_region(tiny, bnncert.Box(low, high))
    return found


def _inwards(bound: Fraction, way: float) -> float:
    """Return the nearest float that is not outside a bound."""
    number = float(bound)
    outside = Fraction(number) < bound if way > 0 else Fraction(number) > bound
    return float(np.nextafter(number, way)) if outside else number


def over_region(tiny: TinyNetwork, region: bnncert.Region) -> set[tuple[int, ...]]:
    """Return every sign vector of the last hidden layer on a region of real inputs."""
    if region.size != 2:
        return reachable_last_layers(tiny, region)
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[tiny.sign_zero]
    current = set(patterns(tiny, region))
    for w, b in zip(tiny.weights[1:-1], tiny.biases[1:-1], strict=True):
        above: set[tuple[int, ...]] = set()
        for y in current:
            # A whole number and a bias: the sign of their float sum is right.
            above.update(product(*(zero if v == 0 else (int(np.sign(v)),) for v in w @ y + b)))
        current = above
    return current


def _region(statement: Section) -> bnncert.Region:
    """Return the region of real inputs that a statement is about."""
    kind, arrays = statement.fields["region"], statement.arrays
    if kind == "box":
        return bnncert.Box(arrays["lo"], arrays["hi"])
    if kind == "polytope":
        right = arrays["right"]
        matrix = arrays["matrix"].reshape(right.size, -1)
        # Without the constructor, which looks for a point and refuses where it finds none.
        region = object.__new__(bnncert.Polytope)
        region.matrix, region.right = matrix, right
        region.lo, region.hi = arrays["lo"], arrays["hi"]
        return region
    radius = Fraction(statement.fields["radius"])
    assert Fraction(float(radius)) == radius
    clip = arrays.get("clip_lo"), arrays.get("clip_hi")
    return bnncert.Ball(kind, arrays["center"], float(radius), *clip)


def _ranges(statement: Section) -> tuple[list[Fraction], list[Fraction]]:
    """Return the bounds of every input, exactly."""
    names = [k for k in ("lo", "hi", "center", "clip_lo", "clip_hi") if k in statement.arrays]
    exact = {k: [Fraction(x) for x in statement.arrays[k].tolist()] for k in names}
    if "lo" in exact:
        return exact["lo"], exact["hi"]
    name = "within" if statement.fields["region"] == "l0" else "radius"
    low, high = exact.get("clip_lo", []), exact.get("clip_hi", [])
    if name in statement.fields:
        reach = Fraction(statement.fields[name])
        least, most = ([c + s * reach for c in exact["center"]] for s in (-1, 1))
        low, high = list(map(max, low or least, least)), list(map(min, high or most, most))
    return low, high


def is_listed(statement: Section) -> bool:
    """Whether all inputs of a region are looked at: of many grid points only some are."""
    if "grid" not in statement.fields:
        return True
    return prod(map(len, _all_values(statement))) <= MOST_POINTS


def _all_values(statement: Section) -> list[list[Fraction]]:
    bounds = zip(*_ranges(statement), strict=True)
    return [_values(statement, i, low, high) for i, (low, high) in enumerate(bounds)]


def are_few(statement: Section) -> bool:
    """Whether the grid points around a region are so few that all of them are looked at."""
    return prod(map(len, _all_values(statement))) <= MOST_POINTS


def grid_points(statement: Section) -> Iterator[tuple[Fraction, ...]]:
    """Yield the grid points of a region, or some of them if there are many."""
    values = _all_values(statement)
    points: Iterator[tuple[Fraction, ...]] = product(*values)
    if not are_few(statement):
        rng = np.random.default_rng(0)
        points = (
            tuple(own[int(rng.integers(len(own)))] for own in values) for _ in range(MOST_POINTS)
        )
    for point in points:
        if _is_inside(statement, point):
            yield point


def _values(statement: Section, i: int, low: Fraction, high: Fraction) -> list[Fraction]:
    """Return the values of one input, from the definition of a grid."""
    arrays = statement.arrays
    step, origin = float(arrays["grid_step"][i]), float(arrays["grid_origin"][i])

    def formula(k: int) -> float:
        value = origin + step * k
        return float(np.float32(value)) if statement.fields["grid"] == "float32" else value

    own: dict[int, float] = {}
    for name in ("clip_lo", "clip_hi", "lo", "hi", "center"):
        if name in arrays:
            x = float(arrays[name][i])
            k = round((Fraction(x) - Fraction(origin)) / Fraction(step))
            if abs(x - formula(k)) <= 1e-3 * step:
                own[k] = x
    first = round((low - Fraction(origin)) / Fraction(step)) - 2
    last = round((high - Fraction(origin)) / Fraction(step)) + 2
    places = range(first, last + 1) if last - first <= 2 * MOST_POINTS else _some(first, last)
    found = [Fraction(own.get(k, formula(k))) for k in places]
    return [x for x in found if low <= x <= high]


def _some(first: int, last: int) -> list[int]:
    """Return more places than are looked at one by one, spread over all of them."""
    step = (last - first) // (2 * MOST_POINTS)
    return [first + step * k for k in range(2 * MOST_POINTS)]


def _is_inside(statement: Section, point: tuple[Fraction, ...]) -> bool:
    """Whether a point that lies within the bounds belongs to the region."""
    kind, arrays = statement.fields["region"], statement.arrays
    if kind == "polytope":
        rows = arrays["matrix"].reshape(arrays["right"].size, -1).tolist()
        sums = (sum(Fraction(a) * x for a, x in zip(r, point, strict=True)) for r in rows)
        return all(u <= Fraction(b) for u, b in zip(sums, arrays["right"].tolist(), strict=True))
    if kind in ("box", "linf"):
        return True
    gaps = [abs(x - Fraction(c)) for x, c in zip(point, arrays["center"].tolist(), strict=True)]
    radius = Fraction(statement.fields["radius"])
    if kind == "l0":
        return sum(g > 0 for g in gaps) <= radius
    return sum(g * g for g in gaps) <= radius**2 if kind == "l2" else sum(gaps) <= radius
