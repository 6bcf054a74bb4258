"""Random comparisons of two tiny networks, beside a loop over all inputs."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from bnncert.questions.compare import difference
from tests.guarded import Guarded, how, stated_points, wanted
from tests.plain_network import PlainNetwork, Point, quarters, random_grid_region, random_plain

EQUAL = ("identical", "equal")

#: Half of the time would go into the search for differences: with less of it, more is proved.
FEW_POINTS = mock.patch.multiple(difference, SAMPLES=64, SEGMENTS=16, ROUNDS=2)


def changed_network(
    rng: np.random.Generator, net: PlainNetwork, *, same: bool = False
) -> PlainNetwork:
    """Return a network with another number, with the same classes, or an independent one."""
    zero, choice = net.sign_zero, 1.0 if same else float(rng.random())
    if zero != "either" and not same and rng.random() < 0.2:
        zero = "minus" if zero == "plus" else "plus"
    if choice < 0.15:
        return random_plain(rng, net.inputs, sign_zero=zero, classes=net.classes)
    weights = [[list(row) for row in w] for w in net.weights]
    biases = [list(b) for b in net.biases]
    if choice < 0.7:
        k = int(rng.integers(len(weights)))
        j = int(rng.integers(len(biases[k])))
        if rng.random() < 0.5:
            biases[k][j] += int(rng.choice([-2, -1, 1, 2]))
        else:
            row = weights[k][j]
            i = int(rng.integers(len(row)))
            size = max(map(abs, row)) or 1
            row[i] = int(rng.choice([-1, 0, 1])) * (size if 0 < k < len(weights) - 1 else 1)
    for k in range(len(biases) - 1):
        order = rng.permutation(len(biases[k])).tolist()
        weights[k], biases[k] = [weights[k][j] for j in order], [biases[k][j] for j in order]
        weights[k + 1] = [[row[j] for j in order] for row in weights[k + 1]]
    # The same number is added to all scores, and they are doubled or not.
    factor, shift = int(rng.choice([1, 2])), int(rng.integers(-2, 3))
    weights[-1] = [[factor * w for w in row] for row in weights[-1]]
    biases[-1] = [factor * b + shift for b in biases[-1]]
    return PlainNetwork(weights, biases, zero, net.factors)


def pairs_at(one: PlainNetwork, two: PlainNetwork, point: Point) -> set[tuple[int, int]]:
    """Return the pairs of classes for all decisions of ties."""
    return set(product(one.classes_at(point), two.classes_at(point)))


def compare(rng: np.random.Generator, folder: Path, mutants: int) -> Guarded:
    """Ask whether two networks give the same class on the grid points of a region."""
    one = random_plain(rng)
    two = changed_network(rng, one)
    asked = random_grid_region(rng, one.inputs)
    nets, path = (one.build(), two.build()), wanted(rng, folder, "compare")
    way = how(rng)
    with FEW_POINTS:
        result = bnncert.compare(*nets, asked.region, certificate=path, **way)
    found = Guarded()
    at = {p: pairs_at(one, two, p) for p in asked.points}
    differing = [p for p, pairs in at.items() if any(a != b for a, b in pairs)]
    certain = [p for p in differing if len(at[p]) == 1]
    found.tally.update([result.status, f"{result.status} {result.how}, {asked.kind}"])
    about = (
        f"{asked.region.describe()}, sign(0) {one.sign_zero} and {two.sign_zero}, {one.weights} "
        f"{one.biases}, {two.weights} {two.biases}: {result.status} by {result.how}"
    )
    if result.status in EQUAL:
        # Where sign(0) may be either, ties of neurons that both networks have are decided alike, so
        # only classes that do not depend on ties show a difference.
        apart = certain if one.sign_zero == "either" else differing
        found.expect(not apart, f"{about}, but they differ at {apart[:1]}")
    elif result.status == "different":
        assert result.difference is not None
        point = quarters(result.difference.exact or result.difference.point.tolist())
        found.expect(at.get(point) == {result.difference.classes}, f"{about} at {point}")
    elif way["method"] == "auto":
        # A difference that depends on how ties are decided stays open.
        found.expect(bool(differing) and not certain, f"{about}, differing at {differing}")
    if result.status not in (*EQUAL, "different") or path is None:
        return found
    verdict = f"networks_{'equal' if result.status in EQUAL else 'different'}"
    found.check_certificate(path, nets[0], verdict, other=nets[1])
    found.change_certificate(
        *(rng, path, nets[0], mutants), lambda claim: refuted(one, two, claim), other=nets[1]
    )
    return found


def refuted(one: PlainNetwork, two: PlainNetwork, claim: Section) -> str | None:
    """Return what is wrong with an accepted claim about two networks, or None."""
    details = claim.fields["details"]
    if details["region"] is None or "grid" not in details["region"]:
        # Claims about all inputs hold at the grid points, too.
        return None
    found = [pairs_at(one, two, p) for p in stated_points(details["region"], claim.arrays)]
    # Where sign(0) may be either, only classes that do not depend on ties show a difference.
    differs = any(a != b for pairs in found if len(pairs) == 1 for a, b in pairs)
    if details["verdict"] == "equal":
        return "they differ" if differs else None
    named = any(tuple(details["classes"]) in pairs for pairs in found)
    return None if named else "no such classes occur"
