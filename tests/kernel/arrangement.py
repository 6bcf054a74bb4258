"""Which sign patterns of the first layer a region of the plane meets, exactly and fast.

`tests.brute_force` answers the same for any dimension by elimination; in two dimensions it is
enough to eliminate one coordinate and to compare the bounds of the other, and patterns can be
extended neuron by neuron.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import bnncert
from tests.brute_force import TinyNetwork, region_inequalities

#: a.x <= b, or a.x < b when strict.
Inequality = tuple[tuple[Fraction, ...], Fraction, bool]


def feasible(system: list[Inequality]) -> bool:
    """Whether some point of the plane satisfies all inequalities."""
    plus = [(a[1] / a[0], b / a[0], s) for a, b, s in system if a[0] > 0]
    minus = [(a[1] / a[0], b / a[0], s) for a, b, s in system if a[0] < 0]
    lines = [(a[1], b, s) for a, b, s in system if a[0] == 0]
    # x <= d - c y and x >= f - e y leave (c - e) y <= d - f.
    lines += [(c - e, d - f, s or t) for c, d, s in plus for e, f, t in minus]
    low = high = None
    for c, d, s in lines:
        if c == 0:
            if d < 0 or (d == 0 and s):
                return False
        elif c > 0:
            # Of equal bounds the strict one counts, which sorts first.
            high = (d / c, not s) if high is None else min(high, (d / c, not s))
        else:
            low = (d / c, s) if low is None else max(low, (d / c, s))
    if low is None or high is None or low[0] < high[0]:
        return True
    return low[0] == high[0] and not low[1] and high[1]


def _meets_disc(system: list[Inequality], center: list[Fraction], radius: Fraction) -> bool:
    """Whether the points that satisfy a feasible system come within a radius of the centre."""
    candidates = [tuple(center)]
    lines = [(a, b) for a, b, _ in system if any(a)]
    for a, b in lines:
        gap = (b - a[0] * center[0] - a[1] * center[1]) / (a[0] ** 2 + a[1] ** 2)
        candidates.append((center[0] + gap * a[0], center[1] + gap * a[1]))
    for (a, b), (d, e) in combinations(lines, 2):
        det = a[0] * d[1] - a[1] * d[0]
        if det:
            candidates.append(((b * d[1] - a[1] * e) / det, (a[0] * e - b * d[0]) / det))
    rough = [(float(a[0]), float(a[1]), float(b)) for a, b, _ in system]
    for x in candidates:
        # What floats refute by far needs no rationals.
        p, q = float(x[0]), float(x[1])
        if any(a * p + b * q > c + 1e-6 * (1 + abs(p) + abs(q)) for a, b, c in rough):
            continue
        distance = (x[0] - center[0]) ** 2 + (x[1] - center[1]) ** 2
        if distance > radius**2:
            continue
        values = [(a[0] * x[0] + a[1] * x[1] - b, s) for a, b, s in system]
        if all(v <= 0 for v, _ in values):
            # Nearer than the radius: points that satisfy strict inequalities are near as well.
            if distance < radius**2:
                return True
            if all(v < 0 or not s for v, s in values):
                return True
    return False


def patterns(net: TinyNetwork, region: bnncert.Region) -> Iterator[tuple[int, ...]]:
    """Yield every sign pattern of layer 1 that some point of the region produces."""
    rows = [tuple(map(Fraction, row)) for row in net.weights[0].tolist()]
    biases = [Fraction(b) for b in net.biases[0].tolist()]
    disc = isinstance(region, bnncert.Ball) and region.norm == "l2"

    def extend(signs: tuple[int, ...], system: list[Inequality]) -> Iterator[tuple[int, ...]]:
        if not feasible(system):
            return
        if disc:
            assert isinstance(region, bnncert.Ball)
            center = [Fraction(v) for v in region.middle.tolist()]
            if not _meets_disc(system, center, Fraction(region.radius)):
                return
        if len(signs) == len(rows):
            yield signs
            return
        row, bias = rows[len(signs)], biases[len(signs)]
        for s in (1, -1):
            strict = net.sign_zero == ("minus" if s > 0 else "plus")
            more = (tuple(-s * w for w in row), s * bias, strict)
            yield from extend((*signs, s), [*system, more])

    yield from extend((), region_inequalities(region))
