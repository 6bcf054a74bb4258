"""Trees of inputs: what one proves, no input of the region contradicts."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import bnncert
from bnncert.deadline import Deadline
from bnncert.kernel import RejectedError, UnreadableError
from bnncert.kernel.branches import FIRST_CHANGE, LEAF, Branched, read_branched, refuse_unproved
from bnncert.kernel.container import Section
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.space import read_space
from bnncert.proofs.branch_proof import joined_trees, prove_by_branching
from bnncert.proofs.writing import region_section
from tests.brute_force import TinyNetwork
from tests.strategies import few
from tests.test_grid_against_brute_force import GridQuestion, grid_questions

KINDS = ("linf", "l1", "l2", "l0", "box", "polytope")


def geometry_of(question: GridQuestion) -> Geometry:
    """The checker's own view of the first layer on a region."""
    network = question.network
    space, _, _ = read_space(region_section(question.region), network)
    return Geometry(network.layers[0], space)


def first_signs(net: TinyNetwork, x: tuple[Fraction, ...]) -> list[tuple[int, ...]]:
    """The signs that each first-layer neuron may have at a point."""
    signs = []
    for row, b in zip(net.weights[0].tolist(), net.biases[0].tolist(), strict=True):
        u = sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(b))
        tie = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[net.sign_zero]
        signs.append(tie if u == 0 else (1 if u > 0 else -1,))
    return signs


def has_signs(question: GridQuestion, clause: Clauses) -> bool:
    """Whether some grid point has all signs of a clause."""
    wanted = [(j, s) for j, s in zip(clause.neuron, clause.sign, strict=True) if j >= 0]
    return any(
        all(s in signs[j] for j, s in wanted)
        for signs in (first_signs(question.net, x) for x in question.points)
    )


def accepts(found: Branched, geometry: Geometry) -> bool:
    try:
        refuse_unproved(found, geometry)
    except (RejectedError, UnreadableError):
        return False
    return True


def random_question(rng: np.random.Generator, kind: str) -> GridQuestion:
    """Rows of small integers on integer points: what excludes them often takes a tree."""
    neurons = int(rng.integers(3, 6))
    weights = rng.integers(-3, 4, (neurons, 2)).astype(float), np.ones((2, neurons))
    zero = str(rng.choice(["plus", "minus", "either"]))
    net = TinyNetwork(weights, (rng.integers(-9, 10, neurons) / 2, np.zeros(2)), zero)
    center, radius, grid = rng.integers(-1, 2, 2).astype(float), 2.0, bnncert.Grid(1.0)
    near = product(*(range(int(c) - 2, int(c) + 3) for c in center))
    points = tuple((Fraction(a), Fraction(b)) for a, b in near)
    gaps = {x: [abs(v - Fraction(c)) for v, c in zip(x, center, strict=True)] for x in points}
    region: bnncert.Region = bnncert.Ball("linf", center, radius, grid=grid)
    if kind == "l0":
        region = bnncert.L0Ball(center, 1, within=radius, grid=grid)
        points = tuple(x for x in points if sum(g > 0 for g in gaps[x]) <= 1)
    elif kind == "polytope":
        matrix, right = np.array([[2.0, 3.0]]), np.array([1.0])
        region = bnncert.Polytope(matrix, right, center - 2, center + 2, grid)
        points = tuple(x for x in points if 2 * x[0] + 3 * x[1] <= 1)
    elif kind != "linf":
        region = bnncert.Ball(kind, center, radius, grid=grid)  # type: ignore[arg-type]
        power = 2 if kind == "l2" else 1
        points = tuple(x for x in points if sum(g**power for g in gaps[x]) <= 2**power)
    return GridQuestion(net, region, 0, points)


@pytest.mark.parametrize("kind", ["linf", "l1", "l2", "l0", "polytope"])
def test_a_tree_is_found_iff_no_grid_point_has_the_signs(kind: str) -> None:
    rng, counts = np.random.default_rng(7), Counter[str]()
    for _ in range(8):
        question = random_question(rng, kind)
        geometry, size = geometry_of(question), question.net.weights[0].shape[0]
        for _ in range(6):
            neurons, signs = np.arange(size), rng.choice([-1, 1], size)
            found = prove_by_branching(geometry, neurons, signs, Deadline(None))
            occurs = has_signs(question, Clauses(neurons, neurons, signs, neurons))
            assert (found is None) == occurs
            counts["point"] += int(occurs)
            if found is not None:
                assert accepts(found, geometry)
                counts["leaf" if found.nodes.size == 1 else "tree"] += 1
    assert min(counts["point"], counts["leaf"]) > 0
    assert counts["tree"] > 0 or kind == "polytope"


@st.composite
def any_trees(draw: st.DrawFn, inputs: int, neurons: int, *, with_mu: bool) -> Branched:
    """A tree that may prove something: small branches, places and multipliers."""
    nodes: list[int] = []
    missing = 1
    while missing:
        node = LEAF
        if len(nodes) < 7 and draw(st.integers(0, 3)):
            node = draw(st.integers(0, inputs - 1))
            node = FIRST_CHANGE - node if not draw(st.integers(0, 3)) else node
        nodes.append(node)
        missing += -1 if node == LEAF else 1
    size = draw(st.integers(1, 2))
    neuron = draw(st.lists(st.integers(0, neurons - 1), min_size=size, max_size=size))
    sign = draw(st.lists(st.sampled_from([1, -1]), min_size=size, max_size=size))
    places = [draw(st.integers(-8, 8)) for node in nodes if node >= 0]
    count = nodes.count(LEAF) * (size + 1)
    theta = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    theta = [t if with_mu or k % (size + 1) < size else 0 for k, t in enumerate(theta)]
    clause = Clauses(np.array([0, size]), np.array(neuron), np.array(sign), np.zeros(size, int))
    arrays = (np.array(v, dtype=np.int64) for v in (nodes, places, theta))
    return Branched(clause, *arrays)


def test_whatever_tree_is_accepted_proves_its_clause() -> None:
    counts: Counter[tuple[str, bool]] = Counter()

    @few(12)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        for kind in KINDS:
            question = data.draw(grid_questions(kind))
            geometry, shape = geometry_of(question), question.net.weights[0].shape
            found = data.draw(any_trees(shape[1], shape[0], with_mu=kind in ("l1", "l2")))
            accepted = accepts(found, geometry)
            counts[kind, accepted] += 1
            if accepted:
                assert not has_signs(question, found.clauses)

    check()
    assert sum(counts[kind, True] > 0 for kind in KINDS) >= 4


def without_integers() -> tuple[Geometry, Branched]:
    """Three inequalities with real points in a box, but no integer ones."""
    weights = np.array([[3.0, -3.0], [-2.0, -1.0], [2.0, -3.0]]), np.ones((2, 3))
    net = TinyNetwork(weights, (np.array([2.0, 1.5, -0.5]), np.zeros(2)), "plus")
    box = bnncert.Box([0.0, 0.0], [2.0, 2.0], bnncert.Grid(1.0))
    points = tuple(product(map(Fraction, range(3)), repeat=2))
    geometry = geometry_of(GridQuestion(net, box, 0, points))
    found = prove_by_branching(geometry, np.arange(3), np.array([1, 1, 1]), Deadline(None))
    assert found is not None
    assert found.nodes.size > 1
    return geometry, found


def test_changes_of_a_tree_are_noticed() -> None:
    geometry, found = without_integers()
    assert accepts(found, geometry)
    assert accepts(joined_trees([found, found]), geometry)
    arrays = {"nodes": found.nodes, "places": found.places, "theta": found.theta}
    for name, array in arrays.items():
        for changed in (array[1:], array[:-1], np.append(array, array[:1])):
            broken = Branched(found.clauses, **{**arrays, name: changed})
            assert not accepts(broken, geometry), name
    assert not accepts(Branched(found.clauses, found.nodes, found.places, -found.theta), geometry)
    assert not accepts(
        Branched(found.clauses, found.nodes, found.places, np.zeros_like(found.theta)), geometry
    )
    # A branch on a change belongs to L0 balls.
    change = np.where(found.nodes >= 0, FIRST_CHANGE - found.nodes, found.nodes)
    assert not accepts(Branched(found.clauses, change, found.places[:0], found.theta), geometry)


@pytest.mark.parametrize(
    "change",
    [
        {"neurons": [0, 1, 3]},
        {"neurons": [0, 1, -1]},
        {"signs": [1, 1, 0]},
        {"signs": [1, 1]},
        {"sizes_of_clauses": [2]},
        {"sizes_of_clauses": [0, 3]},
        {"nodes": [7, LEAF, LEAF]},
        {"nodes": [-1000, LEAF, LEAF]},
        {"places": [2**62] * 3},
    ],
)
def test_broken_sections_are_refused(change: dict[str, list[int]]) -> None:
    geometry, found = without_integers()
    arrays = {
        "sizes_of_clauses": np.array([3]),
        "neurons": found.clauses.neuron,
        "signs": found.clauses.sign,
        "theta": found.theta,
        "nodes": found.nodes,
        "places": found.places,
    }

    def read(arrays: dict[str, np.ndarray]) -> None:
        refuse_unproved(read_branched(Section("branched", {}, arrays), geometry), geometry)

    read(arrays)
    with pytest.raises((RejectedError, UnreadableError)):
        read(arrays | {name: np.array(value) for name, value in change.items()})
