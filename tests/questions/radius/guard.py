"""The smallest perturbation and the radius beside a loop over all points of a grid."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert import Ball, Grid, L0Ball
from tests.brute_force import TinyQuestion
from tests.guarded import Guarded, how, wanted
from tests.plain_network import TIES, Point, quarters, random_plain

#: How often a radius is also compared with all reachable patterns of its ball.
PATTERNS = 0.2


def distance(norm: str, p: Point, centre: Point) -> Any:
    """Return the distance; of L2 its square."""
    gaps = [abs(a - b) for a, b in zip(p, centre, strict=True)]
    if norm == "linf":
        return max(gaps)
    if norm == "l0":
        return sum(g > 0 for g in gaps)
    return sum(gaps) if norm == "l1" else sum(g * g for g in gaps)


def smallest(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask for the smallest change of a grid point; distances are counted in steps."""
    net = random_plain(rng, int(rng.integers(1, 4)))
    norm, ties = str(rng.choice(["linf", "l1", "l2", "l0"])), str(rng.choice(TIES))
    step = int(rng.choice([1, 2, 4]))
    reach = {1: 6, 2: 3, 3: 2}[net.inputs]
    places = list(product(range(-reach, reach + 1), repeat=net.inputs))
    home = places[int(rng.integers(len(places)))]
    label = min(net.classes_at(tuple(step * k for k in home)))
    centre, box, grid = step * np.array(home) / 4, step * reach / 4, Grid(step / 4)
    ball: Any = Ball(norm, centre, 0, -box, box, grid=grid) if norm != "l0" else None  # type: ignore[arg-type]
    ball = ball or L0Ball(centre, 0, -box, box, grid=grid)
    network, path = net.build(), wanted(rng, folder, "smallest")
    way = how(rng)
    result = bnncert.smallest(network, ball, label, ties=ties, certificate=path, **way)
    lost = [p for p in places if net.is_lost([tuple(step * k for k in p)], label, ties)]
    least = min((distance(norm, p, home) for p in lost), default=None)
    found, about = Guarded(), f"{norm}, {home}, {net.weights} {net.biases} {net.sign_zero}, {ties}"
    found.tally["none" if least is None else "some" if least else "at once"] += 1
    decided = result.is_closed or way["method"] == "auto"
    found.expect(not decided or result.minimum == least, f"{about}: {result}, not {least}")
    if result.certified is not None and least is not None:
        found.expect(result.certified < least, f"{about}: {result}, not {least}")
    if result.witness is not None:
        point = tuple(v / step for v in quarters(result.witness.point.tolist()))
        found.expect(point in lost, f"{about}: the witness {point} has the class")
        found.expect(distance(norm, point, home) == result.falsified, f"{about}: {point}")  # type: ignore[arg-type]
    if result.certificate is not None:
        found.check_certificate(path, network, "robust")
    return found


def radius(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask for the radius of a ball of real inputs, which has all quarters inside it."""
    net = random_plain(rng, int(rng.integers(1, 3)))
    norm, ties = str(rng.choice(["linf", "l1", "l2"])), str(rng.choice(TIES))
    places = list(product(range(-5, 6), repeat=net.inputs))
    home = places[int(rng.integers(len(places)))]
    label = min(net.classes_at(home))
    centre, asked = np.array(home) / 4, how(rng)
    if norm == "l2":
        asked["method"] = "auto"
    ball = Ball(norm, centre, 0, -1.25, 1.25)  # type: ignore[arg-type]
    result = bnncert.radius(net.build(), ball, label, ties=ties, tolerance=0.1, **asked)
    found, about = Guarded(), f"{norm}, {home}, {net.weights} {net.biases} {net.sign_zero}, {ties}"
    lower, upper = (4 * Fraction(v) if abs(v) < 1e9 else None for v in (result.lower, result.upper))
    found.tally["none" if upper is None else "some" if upper else "at once"] += 1

    def is_within(p: Point, reach: Fraction) -> bool:
        return bool(distance(norm, p, home) <= (reach**2 if norm == "l2" else reach))

    near = [p for p in places if lower is not None and lower >= 0 and is_within(p, lower)]
    found.expect(not net.is_lost(near, label, ties), f"{about}: not robust at {result.lower}")
    if result.counterexample is not None and upper is not None:
        place = result.counterexample
        point = quarters(place.exact or place.point.tolist())
        found.expect(is_within(point, upper), f"{about}: {point} is beyond {result.upper}")
        found.expect(net.is_lost([point], label, ties), f"{about}: {point} has the class")
    found.expect((upper is None) == (result.counterexample is None), f"{about}: {result}")
    if upper is None:
        found.expect(not net.is_lost(places, label, ties), f"{about}: no counterexample")
    if rng.random() < PATTERNS and norm != "l2" and result.lower > 0:
        expected = TinyQuestion(net.tiny, ball.with_radius(result.lower), label).expected(ties)
        found.expect(expected == "robust", f"{about}: {expected} at {result.lower}")
    return found
