"""Random questions about faults, beside a loop over all sets of few faults."""

from __future__ import annotations

from itertools import islice
from math import comb
from pathlib import Path

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from bnncert.questions.faults.faults_answer import FaultRow
from tests.guarded import Guarded, how, stated_points, wanted
from tests.plain_network import TIES, PlainNetwork, PlainRegion, random_grid_region, random_plain
from tests.questions.faults.oracle import is_changed, least_faults, places

#: The largest number of faults in a set, of sets times points that are looked at for one row, and
#: of points of a region.
MOST, MOST_SETS, MOST_POINTS = 3, 400, 9


def _region(rng: np.random.Generator, inputs: int) -> PlainRegion:
    """Return a point, or few points, which may be a ball."""
    while True:
        found = random_grid_region(rng, inputs)
        if rng.random() < 0.6:
            step = found.region.grid
            ball = bnncert.Ball("linf", np.array(found.centre) / 4, 0, grid=step)
            return PlainRegion(ball, [found.centre], found.centre, "point")
        if len(found.points) <= MOST_POINTS:
            return found


def faults(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask how many faults of each scope are tolerated."""
    net = random_plain(rng, int(rng.integers(1, 4)))
    asked, ties = _region(rng, net.inputs), str(rng.choice(TIES))
    label = min(net.classes_at(asked.centre))
    if rng.random() < 0.1:
        label = int(rng.integers(net.classes))
    layers = None if rng.random() < 0.5 else [int(rng.integers(1, net.depth + 2))]
    network, path = net.build(), wanted(rng, folder, "faults")
    result = bnncert.faults(
        *(network, asked.region, label),
        ties=ties,
        layers=layers,
        limit=None if rng.random() < 0.3 else MOST,
        certificate=path,
        **how(rng),
    )
    found = Guarded(answers=len(result.rows))
    for row in result.rows:
        _compare(found, net, asked, label, ties, row)
    found.check_certificate(path, network, "faults")
    found.change_certificate(rng, path, network, mutants, lambda claim: refuted(net, claim))
    return found


def _most(net: PlainNetwork, scope: tuple[str, str, int | None], points: int) -> int:
    """Return the size of the largest sets that can all be looked at."""
    groups = [len(group) for group in places(net, *scope)]
    for count in range(1, MOST + 1):
        if points * sum(comb(size, count) for size in groups) > MOST_SETS:
            return count - 1
    return MOST


def _compare(
    found: Guarded,
    net: PlainNetwork,
    asked: PlainRegion,
    label: int,
    ties: str,
    row: FaultRow,
) -> None:
    """Compare one row with all sets of faults."""
    scope = (row.scope.kind, row.scope.place, row.scope.layer)
    most = _most(net, scope, len(asked.points))
    least = least_faults(net, asked.points, label, ties, scope, most)
    about = (
        f"{scope}, {asked.region.describe()}, class {label}, {ties}, sign(0) {net.sign_zero}, "
        f"{net.weights} {net.biases}: {row.certified} and {row.falsified}, least {least}"
    )
    exact = "exact" if row.is_exact else "open"
    found.tally.update([exact, f"{asked.kind}, {scope[0]}, {scope[1]}: {exact}"])
    if least is not None:
        found.expect(row.certified is None or row.certified < least, about)
    if row.falsified is not None:
        found.expect(row.falsified > most if least is None else row.falsified >= least, about)
        found.expect(row.falsified == len(row.faults), about)
        chosen = tuple(
            (f.layer, f.neuron, f.sign if f.input is None else f.input) for f in row.faults
        )
        inside = any(set(chosen) <= set(group) for group in places(net, *scope))
        found.expect(inside, f"{about}: {chosen} are other faults")
        changed = inside and is_changed(net, asked.points, label, ties, scope[0], chosen)
        found.expect(changed, f"{about}: {chosen} change nothing")
    if least == 0:
        found.expect(row.falsified == 0, about)


def refuted(net: PlainNetwork, claim: Section) -> str | None:
    """Return what is wrong with an accepted claim about faults, or None."""
    details = claim.fields["details"]
    label, ties = details["label"], details["ties"]
    others = sorted({*range(net.classes)} - {label})
    if "grid" not in details["region"] or sorted(details["rivals"]) != others:
        return None
    points = list(islice(stated_points(details["region"], claim.arrays), MOST_SETS))
    for row in details["rows"]:
        scope = (row["kind"], row["place"], row["layer"])
        most = _most(net, scope, len(points))
        least = least_faults(net, points, label, ties, scope, most)  # type: ignore[arg-type]
        if row["certified"] is not None and least is not None and row["certified"] >= least:
            return f"{least} faults change the class"
    return None
