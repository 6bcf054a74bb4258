"""An independent oracle for tiny networks: every reachable sign pattern, in exact rationals.

It shares no code with the package: reachability of a first-layer pattern is decided by
Fourier-Motzkin elimination (polyhedral regions) or by enumerating the candidates for the nearest
point (L2 disc), and the rest of the network is evaluated in rationals from the raw W and b.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

import bnncert
from bnncert.formats.description import SignZero

#: a.x <= b, or a.x < b when strict.
Inequality = tuple[tuple[Fraction, ...], Fraction, bool]


@dataclass(frozen=True)
class TinyNetwork:
    """Raw weights and biases (rows are neurons), the output layer last."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    sign_zero: SignZero

    def build(self) -> bnncert.Network:
        return bnncert.Network.from_arrays(self.weights, self.biases, sign_zero=self.sign_zero)


def satisfiable(system: list[Inequality], dimension: int) -> bool:
    """Fourier-Motzkin: eliminate the variables one by one, in whole numbers."""
    # Of inequalities with one primitive a, the one with the least b, strict before not.
    least: dict[tuple[int, ...], tuple[Fraction, bool]] = {}

    def add(numbers: Sequence[int], strict: bool) -> None:
        *a, b = numbers
        size = math.gcd(*a) or 1
        key = tuple(v // size for v in a)
        # (b, not strict) is ordered as wanted.
        new = (Fraction(b, size), not strict)
        if key not in least or new < least[key]:
            least[key] = new

    for a, b, strict in system:
        scale = math.lcm(*(v.denominator for v in (*a, b)))
        add([int(v * scale) for v in (*a, b)], strict)
    for k in range(dimension):
        rows = [
            ([*(v * b.denominator for v in a), b.numerator], not loose)
            for a, (b, loose) in least.items()
        ]
        least.clear()
        for numbers, strict in rows:
            if numbers[k] == 0:
                add(numbers, strict)
        for p, p_strict in rows:
            for m, m_strict in rows:
                if p[k] > 0 > m[k]:
                    x, y = -m[k], p[k]
                    merged = [x * u + y * v for u, v in zip(p, m, strict=True)]
                    add(merged, p_strict or m_strict)
    return all(b > 0 or (b == 0 and loose) for b, loose in least.values())


def region_inequalities(region: bnncert.Region) -> list[Inequality]:
    """Describe a polyhedral region from its defining data."""
    n = region.size
    out: list[Inequality] = []

    def unit(i: int, s: int) -> tuple[Fraction, ...]:
        return tuple(Fraction(s if j == i else 0) for j in range(n))

    def box(lo: np.ndarray | None, hi: np.ndarray | None) -> None:
        for i in range(n):
            if hi is not None:
                out.append((unit(i, 1), Fraction(float(hi[i])), False))
            if lo is not None:
                out.append((unit(i, -1), -Fraction(float(lo[i])), False))

    if isinstance(region, bnncert.Ball):
        box(region.clip_lo, region.clip_hi)
        c = [Fraction(v) for v in region.middle.tolist()]
        r = Fraction(region.radius)
        if region.norm == "linf":
            for i in range(n):
                out.append((unit(i, 1), c[i] + r, False))
                out.append((unit(i, -1), r - c[i], False))
        elif region.norm == "l1":
            for signs in product((1, -1), repeat=n):
                a = tuple(Fraction(s) for s in signs)
                out.append((a, r + sum(s * v for s, v in zip(signs, c, strict=True)), False))
        return out
    box(region.lo, region.hi)
    if isinstance(region, bnncert.Polytope):
        for row, b in zip(region.matrix.tolist(), region.right.tolist(), strict=True):
            out.append((tuple(map(Fraction, row)), Fraction(b), False))
    return out


def _nearest_distance(system: Sequence[Inequality], center: Sequence[Fraction]) -> Fraction | None:
    """Return min |x - c|^2 over the closure of a polyhedron in at most 2 dimensions."""
    n = len(center)
    candidates: list[tuple[Fraction, ...]] = [tuple(center)]
    lines = [(a, b) for a, b, _ in system if any(a)]
    for a, b in lines:
        square = sum(v * v for v in a)
        gap = (b - sum(v * c for v, c in zip(a, center, strict=True))) / square
        candidates.append(tuple(c + gap * v for v, c in zip(a, center, strict=True)))
    if n == 2:
        for (a, b), (d, e) in combinations(lines, 2):
            det = a[0] * d[1] - a[1] * d[0]
            if det:
                candidates.append(((b * d[1] - a[1] * e) / det, (a[0] * e - b * d[0]) / det))
    best: Fraction | None = None
    for x in candidates:
        if all(sum(v * w for v, w in zip(a, x, strict=True)) <= b for a, b, _ in system):
            squares = ((w - c) ** 2 for w, c in zip(x, center, strict=True))
            distance = sum(squares, Fraction(0))
            best = distance if best is None else min(best, distance)
    return best


def reachable_first_layers(net: TinyNetwork, region: bnncert.Region) -> Iterator[tuple[int, ...]]:
    """Yield every sign pattern of layer 1 that some point of the region produces."""
    rows = [tuple(map(Fraction, row)) for row in net.weights[0].tolist()]
    biases = [Fraction(b) for b in net.biases[0].tolist()]
    base = region_inequalities(region)
    for signs in product((1, -1), repeat=len(rows)):
        system = list(base)
        for row, b, s in zip(rows, biases, signs, strict=True):
            strict = net.sign_zero == ("minus" if s > 0 else "plus")
            system.append((tuple(-s * w for w in row), s * b, strict))
        if isinstance(region, bnncert.Ball) and region.norm == "l2":
            center = [Fraction(v) for v in region.middle.tolist()]
            # Strictness only matters on the boundary, which float data does not meet.
            if not satisfiable(list(system), region.size):
                continue
            distance = _nearest_distance(system, center)
            if distance is not None and distance <= Fraction(region.radius) ** 2:
                yield signs
        elif satisfiable(system, region.size):
            yield signs


def _signs(value: Fraction, sign_zero: str) -> tuple[int, ...]:
    if value > 0:
        return (1,)
    if value < 0:
        return (-1,)
    return {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]


def reachable_last_layers(net: TinyNetwork, region: bnncert.Region) -> set[tuple[int, ...]]:
    """Return every reachable sign vector of the last hidden layer."""
    current = set(reachable_first_layers(net, region))
    for w, b in zip(net.weights[1:-1], net.biases[1:-1], strict=True):
        rows = [tuple(map(Fraction, row)) for row in w.tolist()]
        following: set[tuple[int, ...]] = set()
        for y in current:
            values = [
                sum((p * q for p, q in zip(row, y, strict=True)), Fraction(c))
                for row, c in zip(rows, b.tolist(), strict=True)
            ]
            following.update(product(*(_signs(v, net.sign_zero) for v in values)))
        current = following
    return current


def true_margins(net: TinyNetwork, region: bnncert.Region, label: int) -> dict[int, Fraction]:
    """Return min (score_label - score_k) over the region for every rival k."""
    last = reachable_last_layers(net, region)
    w, b = net.weights[-1], net.biases[-1]
    scores = [
        [
            sum((Fraction(p) * q for p, q in zip(row, x, strict=True)), Fraction(c))
            for row, c in zip(w.tolist(), b.tolist(), strict=True)
        ]
        for x in last
    ]
    return {k: min(s[label] - s[k] for s in scores) for k in range(w.shape[0]) if k != label}


def check_counterexample(
    net: TinyNetwork, region: bnncert.Region, label: int, result: bnncert.Result
) -> None:
    """Replay a counterexample with the oracle's own arithmetic."""
    found = result.counterexample
    assert found is not None
    exact = (
        [Fraction(v) for v in found.point.tolist()] if found.exact is None else list(found.exact)
    )
    assert region.contains(exact)
    single = bnncert.Box([float(v) for v in exact], [float(v) for v in exact])
    if [Fraction(v) for v in single.lo.tolist()] == exact:
        margins = true_margins(net, single, label)
        assert min(margins.values()) <= 0


@dataclass(frozen=True, eq=False)
class TinyQuestion:
    """Has every point of a region the label?  The question, and what brute force says."""

    net: TinyNetwork
    region: bnncert.Region
    label: int

    @cached_property
    def network(self) -> bnncert.Network:
        return self.net.build()

    @cached_property
    def truth(self) -> dict[int, Fraction]:
        return true_margins(self.net, self.region, self.label)

    def expected(self, ties: str = "violation") -> str:
        holds = all(m >= 0 if ties == "robust" else m > 0 for m in self.truth.values())
        return "robust" if holds else "not_robust"

    def verify(self, method: str = "auto", **settings: Any) -> bnncert.Result:
        return bnncert.verify(self.network, self.region, self.label, method=method, **settings)

    def bound(self, method: str, **settings: Any) -> bnncert.Result:
        return bnncert.bound(self.network, self.region, self.label, method=method, **settings)

    def targets(self, result: bnncert.Result) -> Iterator[tuple[bnncert.TargetResult, Fraction]]:
        """Yield every target with the true minimum of its margin."""
        for target in result.targets:
            assert target.rival is not None
            yield target, self.truth[target.rival]

    def check_bounds(self, result: bnncert.Result) -> None:
        """The bounds of every target enclose the minimum."""
        assert len(result.targets) == len(self.truth)
        for target, minimum in self.targets(result):
            assert target.lower <= minimum <= target.upper, result.method

    def check_counterexample(self, result: bnncert.Result) -> None:
        """If a counterexample is what the answer rests on, it is one."""
        if result.status == "not_robust":
            check_counterexample(self.net, self.region, self.label, result)
