"""The checker derives inequalities of the input exactly, and refuses numbers that prove nothing."""

from __future__ import annotations

import copy
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bnncert.kernel.container import Section
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.input_cuts import THETA_BITS, derive_cuts, read_cuts
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import Statement
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.kernel.claims import accepted, exact_space, pack
from tests.kernel.conftest import Valid
from tests.kernel.input_cuts import crossing

NAMES = {"input cuts": (247, "linf"), "input cuts l2": (149, "l2")}


def by_definition(
    tiny: TinyNetwork, statement: Statement, section: Section, signs: tuple[int, ...]
) -> Fraction:
    """Return p(x) of the first inequality for signs of the first layer, in rationals."""
    space, one = statement.space, Fraction(1, 1 << statement.space.shift)
    count = int(section.arrays["sizes_of_clauses"][0])
    m = [Fraction(int(v), 2 ** int(section.arrays["unit"][0])) for v in section.arrays["curvature"]]
    m = m[: int(section.arrays["sizes"][0])]
    low, high = ([int(v) * one for v in side] for side in (space.lower, space.upper))
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    reach = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    if space.norm is not None:
        middle, reach = [int(v) * one for v in space.center], [space.radius * one]
    total = sum((r * r / (4 * k) for r, k in zip(reach, m, strict=True)), Fraction(0))
    v = [Fraction(0)] * len(middle)
    literals = (section.arrays[name][:count].tolist() for name in ("neurons", "signs", "theta"))
    for j, s, theta in zip(*literals, strict=True):
        weight = Fraction(theta, 2**THETA_BITS) * (1 + s * signs[j]) * s
        row = [Fraction(w) for w in tiny.weights[0][j].tolist()]
        at_middle = sum(w * c for w, c in zip(row, middle, strict=True))
        total += weight * (at_middle + Fraction(float(tiny.biases[0][j])))
        v = [old + weight * w for old, w in zip(v, row, strict=True)]
    m = m * len(v) if len(m) == 1 else m
    return total + sum(k * w * w for k, w in zip(m, v, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_inequality_is_the_stated_one(valid: dict[str, Valid], name: str) -> None:
    one, (tiny, region) = valid[name], crossing(*NAMES[name])
    section = next(s for s in one.sections if s.name == "cuts")
    statement = Statement.read(one.sections[0], one.network)
    geometry = Geometry(one.network.layers[0], statement.space)
    skeleton = Skeleton(one.network, geometry, {})
    cut = derive_cuts(read_cuts(section, geometry), geometry, skeleton)[0]
    layer, reached = skeleton.layers[0], set(reachable_first_layers(tiny, region))
    open_ = np.flatnonzero(layer.state == 0)
    assert open_.size >= 4
    for choice in product((-1, 1), repeat=int(open_.size)):
        signs = layer.state.astype(np.int64)
        signs[open_] = choice
        x = np.zeros(skeleton.size, dtype=np.int8)
        x[layer.variable[open_]] = signs[open_] * layer.sign[open_]
        left = cut.at(x, np.zeros(0, dtype=np.int64))
        exact = by_definition(tiny, statement, section, tuple(signs.tolist()))
        derived = Fraction(left.constant, 1 << left.shift)
        # Every r^2 / (4 m) is rounded up by less than a unit.
        assert exact <= derived < exact + Fraction(3, 1 << left.shift)
        if tuple(signs.tolist()) in reached:
            assert exact >= 0


def test_sums_of_large_weights_over_a_ball_are_exact() -> None:
    size, most = 16, 2**20 - 1
    weights = [np.full((2, size), float(most)), np.ones((2, 2))]
    tiny = TinyNetwork(tuple(weights), (np.array([1.0, 2.0]), np.zeros(2)), "plus")
    zero, one = [Fraction(0)] * size, [Fraction(1)] * size
    nothing = np.zeros((0, size))
    space = exact_space(
        [-v for v in one], one, nothing, nothing[:, 0], norm="l2", center=zero, radius=Fraction(1)
    )
    network = tiny.build()
    geometry = Geometry(network.layers[0], space)
    names = "sizes_of_clauses", "neurons", "signs", "theta", "unit", "sizes", "curvature"
    values = [2], [0, 1], [1, 1], [2**THETA_BITS, 2**THETA_BITS], [3], [1], [2**22 - 1]
    arrays = {name: np.array(v, dtype=np.int64) for name, v in zip(names, values, strict=True)}
    skeleton = Skeleton(network, geometry, {})
    section = Section("cuts", {}, arrays)
    cut = derive_cuts(read_cuts(section, geometry), geometry, skeleton)[0]
    statement: Any = SimpleNamespace(space=space)
    left = cut.at(np.ones(skeleton.size, dtype=np.int8), np.zeros(0, dtype=np.int64))
    exact = by_definition(tiny, statement, section, (1, 1))
    assert skeleton.size == 2 and exact > 2**64
    assert exact <= Fraction(left.constant, 1 << left.shift) < exact + 1


CHANGES: dict[str, tuple[str, Any]] = {
    "negative theta": ("theta", lambda v: -v),
    "no curvature": ("curvature", lambda v: 0 * v),
    "negative curvature": ("curvature", lambda v: -v),
    "large curvature": ("curvature", lambda v: v + 2**22),
    "impossible signs": ("signs", lambda v: 2 * v),
    "other signs": ("signs", lambda v: -v),
    "too many inputs": ("sizes", lambda v: v + 1),
    "a fine unit": ("unit", lambda v: v + 1000),
    "a negative unit": ("unit", lambda v: v - 1000),
    "neurons that do not exist": ("neurons", lambda v: v + 100),
    "inequalities of a polytope": ("neurons", lambda v: -1 - v),
}


@pytest.mark.parametrize("change", CHANGES)
def test_impossible_numbers_are_refused(
    valid: dict[str, Valid], change: str, tmp_path: Path
) -> None:
    one, (name, function) = valid["input cuts"], CHANGES[change]
    sections = copy.deepcopy(one.sections)
    cuts = next(s for s in sections if s.name == "cuts")
    cuts.arrays[name] = function(cuts.arrays[name].astype(np.int64))
    assert accepted(pack(tmp_path / "one.cert", sections), one.network) is None


def test_the_proof_needs_its_inequality(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, path = valid["input cuts"], tmp_path / "one.cert"
    assert accepted(pack(path, one.sections), one.network) is not None
    for values in (None, 0, -1, 2**62):
        sections = copy.deepcopy(
            [s for s in one.sections if s.name != "cuts" or values is not None]
        )
        nodes = next(s for s in sections if s.name == "nodes")
        if values is None:
            del nodes.arrays["cut_values"]
        else:
            nodes.arrays["cut_values"] = np.full(1, values, dtype="<i8")
        assert accepted(pack(path, sections), one.network) is None
    # Without the section its numbers belong to nothing.
    sections = [s for s in one.sections if s.name != "cuts"]
    assert accepted(pack(path, sections), one.network) is None


def test_inequalities_come_once_and_first(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, path = valid["input cuts"], tmp_path / "one.cert"
    place = [s.name for s in one.sections].index("cuts")
    cuts, nodes = one.sections[place : place + 2]
    head, tail = one.sections[:place], one.sections[place + 2 :]
    assert nodes.name == "nodes"
    for order in ([nodes, cuts], [cuts, cuts, nodes], [cuts, nodes, cuts]):
        assert accepted(pack(path, [*head, *order, *tail]), one.network) is None
    assert accepted(pack(path, [*head, cuts, nodes, *tail]), one.network) is not None
