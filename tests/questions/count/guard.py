"""Random counts of the points with another class, beside a loop over all points."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from tests.guarded import Guarded, are_all_stated, stated_points, wanted
from tests.plain_network import TIES, PlainNetwork, quarters, random_grid_region, random_plain


def count(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask how many grid points of a box, an linf ball or an l0 ball have another class."""
    net = random_plain(rng)
    asked = random_grid_region(rng, net.inputs, ("box", "linf", "l0"))
    label, ties = int(rng.integers(net.classes)), str(rng.choice(TIES))
    network, path = net.build(), wanted(rng, folder, "count")
    result = bnncert.count(
        *(network, asked.region, label), ties=ties, samples=0, timeout=60, certificate=path
    )
    truth = sum(net.is_lost([p], label, ties) for p in asked.points)
    found, about = Guarded(), f"{asked.region.describe()}, {net.weights} {net.biases}"
    found.tally["all" if truth == len(asked.points) else "some" if truth else "none"] += 1
    found.tally[f"{asked.kind}, sign(0) {net.sign_zero}"] += 1
    numbers = (result.total, result.lower, result.upper)
    expected = (len(asked.points), truth, truth)
    found.expect(numbers == expected, f"{about}: {numbers} instead of {expected}")
    if result.witness is not None:
        point = quarters(result.witness.tolist())
        found.expect(point in asked.points, f"{about}: the witness {point} is outside")
        found.expect(net.is_lost([point], label, ties), f"{about}: {point} has the class")
    words = found.check_certificate(path, network, "count")
    if words is not None:
        said = f"of the {len(asked.points):,} grid points" in words
        said = said and f"exactly {truth:,} ha" in words
        found.expect(said, f"{about}: the certificate says {words}")
    found.change_certificate(rng, path, network, mutants, lambda claim: refuted(net, claim))
    return found


def refuted(net: PlainNetwork, claim: Section) -> str | None:
    """Return what is wrong with an accepted claim about numbers of points, or None."""
    details = claim.fields["details"]
    points = set(stated_points(details["region"], claim.arrays))
    whole = are_all_stated(details["region"], claim.arrays)
    rivals, label = details["rivals"], details["label"]
    lost = 0
    for point in points:
        own = net.outcomes(point)
        lost += any(
            s[k] > s[label] or (s[k] == s[label] and details["ties"] == "violation")
            for s in own
            for k in rivals
        )
    total, lower, upper = (int(details[name], 16) for name in ("total", "lower", "upper"))
    # Of a region with many points some are looked at, which bounds the numbers from below.
    fits = total >= len(points) if not whole else total == len(points) and lower <= lost
    if not fits or lost > upper:
        return f"{lost} of {len(points)} points have another class"
    return None
