"""An independent oracle for tiny networks: every reachable sign pattern, in exact rationals.

It shares no code with the package: reachability of a first-layer pattern is decided by
Fourier-Motzkin elimination (polyhedral regions) or by enumerating the candidates for the nearest
point (L2 ball), and the rest of the network is evaluated in rationals from the raw W and b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

import bnncert
from bnncert.engine.verdict import Result, TargetResult
from bnncert.model.description import SignZero

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


def _projection(
    center: Sequence[Fraction], planes: Sequence[tuple[tuple[Fraction, ...], Fraction]]
) -> tuple[Fraction, ...] | None:
    """Return the point nearest to c on all planes a.x = b, or None if they are dependent."""
    # x = c + sum_i t_i a_i with sum_i t_i a_j.a_i = b_j - a_j.c, by Gauss-Jordan elimination.
    system = [[*(_dot(a, d) for d, _ in planes), b - _dot(a, center)] for a, b in planes]
    for k in range(len(system)):
        # The matrix is positive semidefinite: a pivot of zero means that it is singular.
        if not system[k][k]:
            return None
        system[k] = [v / system[k][k] for v in system[k]]
        for i, row in enumerate(system):
            if i != k and row[k]:
                system[i] = [v - row[k] * w for v, w in zip(row, system[k], strict=True)]
    steps = [row[-1] for row in system]
    return tuple(
        c + sum((t * a[i] for t, (a, _) in zip(steps, planes, strict=True)), Fraction(0))
        for i, c in enumerate(center)
    )


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((v * w for v, w in zip(a, b, strict=True)), Fraction(0))


def _nearest_point(
    system: Sequence[Inequality], center: Sequence[Fraction]
) -> tuple[Fraction, ...] | None:
    """Return the point nearest to c in the closure of a polyhedron.

    It is the projection of c onto the planes of some independent inequalities.
    """
    planes = list(dict.fromkeys((a, b) for a, b, _ in system if any(a)))
    best: tuple[Fraction, ...] | None = None
    for size in range(len(center) + 1):
        for chosen in combinations(planes, size):
            x = _projection(center, chosen)
            if x is None or not all(_dot(a, x) <= b for a, b, _ in system):
                continue
            if best is None or _squared_distance(x, center) < _squared_distance(best, center):
                best = x
    return best


def _squared_distance(x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
    return sum(((v - w) ** 2 for v, w in zip(x, y, strict=True)), Fraction(0))


def _holds(system: Sequence[Inequality], x: Sequence[Fraction]) -> bool:
    """Whether a point satisfies all inequalities, the strict ones strictly."""
    for a, b, strict in system:
        value = _dot(a, x)
        if value > b or (strict and value == b):
            return False
    return True


def _meets(region: bnncert.Region, system: list[Inequality]) -> bool:
    """Whether a point of the region satisfies the inequalities, which include its polyhedron."""
    if not satisfiable(system, region.size):
        return False
    if not isinstance(region, bnncert.Ball) or region.norm != "l2":
        return True
    center = [Fraction(v) for v in region.middle.tolist()]
    nearest = _nearest_point(system, center)
    assert nearest is not None
    gap = Fraction(region.radius) ** 2 - _squared_distance(nearest, center)
    # Inside the ball the nearest point of the closure has neighbours that satisfy the strict
    # inequalities too; on its boundary it is the only point that the ball and the closure share.
    return gap > 0 or (gap == 0 and _holds(system, nearest))


def is_inside(region: bnncert.Region, x: Sequence[Fraction]) -> bool:
    """Whether the region contains a rational point."""
    if isinstance(region, bnncert.Ball) and region.norm == "l2":
        center = [Fraction(v) for v in region.middle.tolist()]
        if _squared_distance(x, center) > Fraction(region.radius) ** 2:
            return False
    return _holds(region_inequalities(region), x)


def reachable_first_layers(net: TinyNetwork, region: bnncert.Region) -> Iterator[tuple[int, ...]]:
    """Yield every sign pattern of layer 1 that some point of the region produces."""
    rows = [tuple(map(Fraction, row)) for row in net.weights[0].tolist()]
    biases = [Fraction(b) for b in net.biases[0].tolist()]

    def extend(signs: tuple[int, ...], system: list[Inequality]) -> Iterator[tuple[int, ...]]:
        # What no point satisfies stays so with more neurons.
        if not _meets(region, system):
            return
        if len(signs) == len(rows):
            yield signs
            return
        row, b = rows[len(signs)], biases[len(signs)]
        for s in (1, -1):
            strict = net.sign_zero == ("minus" if s > 0 else "plus")
            yield from extend((*signs, s), [*system, (tuple(-s * w for w in row), s * b, strict)])

    yield from extend((), region_inequalities(region))


def _signs(value: Fraction, sign_zero: str) -> tuple[int, ...]:
    if value > 0:
        return (1,)
    if value < 0:
        return (-1,)
    return {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]


def reachable_last_layers(net: TinyNetwork, region: bnncert.Region) -> set[tuple[int, ...]]:
    """Return every reachable sign vector of the last hidden layer."""
    return _above_the_first(net, set(reachable_first_layers(net, region)))


def last_layers_at(net: TinyNetwork, x: Sequence[Fraction]) -> set[tuple[int, ...]]:
    """Return every sign vector of the last hidden layer that a point may have."""
    return _above_the_first(net, _next_layer(net, 0, x))


def _next_layer(net: TinyNetwork, number: int, y: Sequence[Fraction | int]) -> set[tuple[int, ...]]:
    """Return the signs that a layer may have for the values before it."""
    values = [
        sum((Fraction(p) * q for p, q in zip(row, y, strict=True)), Fraction(c))
        for row, c in zip(net.weights[number].tolist(), net.biases[number].tolist(), strict=True)
    ]
    return set(product(*(_signs(v, net.sign_zero) for v in values)))


def _above_the_first(net: TinyNetwork, current: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    for number in range(1, len(net.weights) - 1):
        current = set().union(*(_next_layer(net, number, y) for y in current))
    return current


def scores_of(net: TinyNetwork, lasts: Iterable[tuple[int, ...]]) -> list[list[Fraction]]:
    """Return the scores for sign vectors of the last hidden layer."""
    w, b = net.weights[-1].tolist(), net.biases[-1].tolist()
    return [
        [
            sum((Fraction(p) * q for p, q in zip(row, x, strict=True)), Fraction(c))
            for row, c in zip(w, b, strict=True)
        ]
        for x in lasts
    ]


def true_margins(net: TinyNetwork, region: bnncert.Region, label: int) -> dict[int, Fraction]:
    """Return min (score_label - score_k) over the region for every rival k."""
    scores = scores_of(net, reachable_last_layers(net, region))
    return {
        k: min(s[label] - s[k] for s in scores)
        for k in range(net.weights[-1].shape[0])
        if k != label
    }


@dataclass(frozen=True)
class TinyCondition:
    """sum_j weights_j score_j + constant <= 0, or < 0 if `strict`: part of a failure."""

    weights: tuple[tuple[int, Fraction], ...]
    constant: Fraction = Fraction(0)
    strict: bool = False

    def value(self, scores: Sequence[Fraction]) -> Fraction:
        return sum((c * scores[j] for j, c in self.weights), self.constant)

    def is_met(self, scores: Sequence[Fraction]) -> bool:
        value = self.value(scores)
        return value < 0 if self.strict else value <= 0


#: All conditions hold at once; F is the largest of their values.
TinyTarget = tuple[TinyCondition, ...]


def rival_target(label: int, rival: int, ties: str) -> TinyTarget:
    """Return the failure "the rival's score is at least (ties: above) that of the label"."""
    weights = ((label, Fraction(1)), (rival, Fraction(-1)))
    return (TinyCondition(weights, strict=ties == "robust"),)


def largest_value(target: TinyTarget, scores: Sequence[Fraction]) -> Fraction:
    """Return F = max_i f_i."""
    return max(condition.value(scores) for condition in target)


def is_reached(target: TinyTarget, scores: Sequence[Fraction]) -> bool:
    """Whether the scores meet all conditions."""
    return all(condition.is_met(scores) for condition in target)


def faults(
    net: TinyNetwork,
    region: bnncert.Region,
    scores: Sequence[Sequence[Fraction]],
    targets: Sequence[TinyTarget],
    result: Result,
) -> list[str]:
    """Return what is wrong with an answer, one line each; `scores` are all reachable ones."""
    if len(result.targets) != len(targets):
        return [f"{len(result.targets)} results for {len(targets)} targets"]
    found = []
    reached = [any(is_reached(target, s) for s in scores) for target in targets]
    for target, answer, is_violated in zip(targets, result.targets, reached, strict=True):
        minimum = min(largest_value(target, s) for s in scores)
        if not answer.lower <= minimum:
            found.append(f"{answer.name}: lower {answer.lower} above the minimum {minimum}")
        if not minimum <= answer.upper:
            found.append(f"{answer.name}: upper {answer.upper} below the minimum {minimum}")
        if answer.status == ("robust" if is_violated else "not_robust"):
            found.append(f"{answer.name}: {answer.status} although the minimum is {minimum}")
    if result.status == ("robust" if any(reached) else "not_robust"):
        found.append(f"{result.status} although targets {reached} can be reached")
    if (result.status == "not_robust") != (result.counterexample is not None):
        found.append(f"{result.status} with the counterexample {result.counterexample}")
    if result.counterexample is not None:
        named = [a.name == result.counterexample.target for a in result.targets]
        found += counterexample_faults(net, region, targets[named.index(True)], result)
    return found


def counterexample_faults(
    net: TinyNetwork, region: bnncert.Region, target: TinyTarget, result: Result
) -> list[str]:
    """Replay the counterexample of a target in rationals, from the raw weights."""
    point = result.counterexample
    assert point is not None
    exact = point.exact or tuple(map(Fraction, point.point.tolist()))
    scores = scores_of(net, last_layers_at(net, exact))
    violating = [largest_value(target, s) for s in scores if is_reached(target, s)]
    found = []
    if not is_inside(region, exact):
        found.append(f"the counterexample {exact} is outside the region")
    if not violating:
        found.append(f"the counterexample {exact} meets no failure: scores {scores}")
    elif not min(violating) <= point.value <= max(violating):
        found.append(f"the counterexample's value is {point.value}; expected one of {violating}")
    return found


def check_counterexample(
    net: TinyNetwork,
    region: bnncert.Region,
    label: int,
    result: Result,
    ties: str = "violation",
) -> None:
    """Replay a counterexample with the oracle's own arithmetic."""
    assert result.counterexample is not None
    named = next(t for t in result.targets if t.name == result.counterexample.target)
    assert named.rival is not None
    target = rival_target(label, named.rival, ties)
    assert not counterexample_faults(net, region, target, result)


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
    def scores(self) -> list[list[Fraction]]:
        return scores_of(self.net, reachable_last_layers(self.net, self.region))

    @cached_property
    def truth(self) -> dict[int, Fraction]:
        classes = range(self.net.weights[-1].shape[0])
        return {
            k: min(s[self.label] - s[k] for s in self.scores) for k in classes if k != self.label
        }

    def expected(self, ties: str = "violation") -> str:
        holds = all(m >= 0 if ties == "robust" else m > 0 for m in self.truth.values())
        return "robust" if holds else "not_robust"

    def verify(self, method: str = "auto", **settings: Any) -> Result:
        return bnncert.verify(self.network, self.region, self.label, method=method, **settings)

    def bound(self, method: str, **settings: Any) -> Result:
        return bnncert.bound(self.network, self.region, self.label, method=method, **settings)

    def targets(self, result: Result) -> Iterator[tuple[TargetResult, Fraction]]:
        """Yield every target with the true minimum of its margin."""
        for target in result.targets:
            assert target.rival is not None
            yield target, self.truth[target.rival]

    def check(self, result: Result, ties: str = "violation") -> None:
        """The bounds enclose each minimum, and statuses and the counterexample are right."""
        targets = [rival_target(self.label, k, ties) for k in self.truth]
        found = faults(self.net, self.region, self.scores, targets, result)
        assert not found, f"{result.method}: {'; '.join(found)}"

    def check_bounds(self, result: Result) -> None:
        """The bounds of every target enclose the minimum."""
        assert len(result.targets) == len(self.truth)
        for target, minimum in self.targets(result):
            assert target.lower <= minimum <= target.upper, result.method

    def check_counterexample(self, result: Result, ties: str = "violation") -> None:
        """If a counterexample is what the answer rests on, it is one."""
        if result.status == "not_robust":
            check_counterexample(self.net, self.region, self.label, result, ties)
