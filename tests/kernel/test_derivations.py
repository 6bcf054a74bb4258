"""Every fact that the checker derives holds for every pattern that its premises allow."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import bnncert
from bnncert.kernel import RejectedError
from bnncert.kernel.counterexample import signs_at
from bnncert.kernel.function import Function, common_shift, scaled
from bnncert.kernel.geometry import Geometry, digits, dot
from bnncert.kernel.leaves import Goal
from bnncert.kernel.section_reading import Clauses, Multipliers, joined
from bnncert.kernel.skeleton import Rows, Skeleton, _closure
from bnncert.kernel.space import Space
from bnncert.kernel.sparse import SparseRows
from tests.kernel.claims import exact_space, random_network

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def clauses(*entries: list[tuple[int, int]]) -> Clauses:
    """Return clauses with multipliers that nobody looks at."""
    flat = [e for clause in entries for e in clause]
    start = np.cumsum([0, *(len(c) for c in entries)])
    neuron, sign = (np.array([e[k] for e in flat], dtype=np.int64) for k in (0, 1))
    return Clauses(start.astype(np.int64), neuron, sign, np.ones(len(flat), dtype=np.int64))


@dataclass
class FreeInputs:
    """A geometry in which every sign is possible and every clause is believed."""

    size: int
    inequalities: int = 0

    def states(self) -> np.ndarray:
        return np.zeros(self.size, dtype=np.int8)

    def proved(self, found: Clauses) -> np.ndarray:
        return np.ones(found.count, dtype=bool)


def allowed(found: Clauses, pattern: tuple[int, ...]) -> bool:
    for k in range(found.count):
        one = found.part(k, k + 1)
        if all(pattern[j] == s for j, s in zip(one.neuron, one.sign, strict=True)):
            return False
    return True


def evaluations(network: bnncert.Network, first: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Return the signs of all layers for every way to settle ties."""
    out = [[first]]
    for layer in network.layers[1:]:
        longer = []
        for known in out:
            u = layer.weights.toarray().astype(int) @ np.array(known[-1])
            choices = [
                tuple(s for s, ok in ((1, a >= p), (-1, a <= m)) if ok)
                for a, p, m in zip(u, layer.plus_from, layer.minus_upto, strict=True)
            ]
            longer += [[*known, signs] for signs in product(*choices)]
        out = longer
    return out


random_clause = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([-1, 1])), min_size=1, max_size=3
)


@settings(max_examples=45, **QUIET)
@given(
    st.integers(0, 10**6),
    st.lists(random_clause.map(lambda c: c[:2]), max_size=8),
    st.lists(random_clause, max_size=8),
    st.sampled_from(["plus", "minus", "either"]),
    st.integers(1, 3),
)
def test_skeleton_view_and_bound(
    seed: int, pairs: list[Any], longer: list[Any], zero: str, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, [*[2, 5, 4, 3][: depth + 1], 2], sign_zero=zero).build()
    clash, more = clauses(*pairs), clauses(*longer)
    geometry: Any = FreeInputs(5)
    skeleton = Skeleton(network, geometry, {0: clash})
    function = Function.of(network, {0: Fraction(1), 1: Fraction(-1, 3)}, Fraction(1, 7), False)
    goal = Goal(skeleton, function, more)
    path = rng.integers(-1, 2, skeleton.size).astype(np.int8) * (rng.random(skeleton.size) < 0.4)
    view = None if skeleton.empty else goal.view(path.astype(np.int8))
    bound = None if view is None else goal.bound(view, Multipliers.none())
    known = joined([clash, more])
    for first in product((1, -1), repeat=5):
        if not allowed(clash, first):
            continue
        assert not skeleton.empty
        for signs in evaluations(network, first):
            x = [signs[n][j] for n, j in skeleton.owner]
            for n, layer in enumerate(skeleton.layers):
                for j, sign in enumerate(signs[n]):
                    if layer.state[j]:
                        assert layer.state[j] == sign
                    elif layer.variable[j] >= 0:
                        assert layer.sign[j] * x[layer.variable[j]] == sign
                if n:
                    u = layer.rows.matrix.dense() @ np.array(x[: layer.rows.matrix.width])
                    assert np.all((layer.low <= u) & (u <= layer.high))
            true = np.array([2 * v + (s < 0) for v, s in enumerate(x)], dtype=int)
            assert not skeleton.excluded[np.ix_(true, true)].any()
            if any(p and p != s for p, s in zip(path.tolist(), x, strict=True)):
                continue
            if not allowed(known, first):
                continue
            # This pattern reaches the node: all that the view says has to hold for it.
            assert view is not None and bound is not None
            assert all(s in (0, t) for s, t in zip(view.signs.tolist(), x, strict=True))
            assert not view.excluded[np.ix_(true, true)].any()
            for sums in (view.tables, view.gates):
                for u, points, ok in zip(
                    sums.weights @ np.array(x, dtype=int), sums.points, sums.possible, strict=True
                ):
                    assert u in points[ok]
            total = sum(w * int(s) for w, s in zip(function.weights, signs[-1], strict=True))
            f = Fraction(total, function.denominator)
            assert bound <= f + function.constant
            if function.is_positive_from(bound):
                assert f + function.constant > 0


@settings(max_examples=30, **QUIET)
@given(st.integers(0, 10**6))
def test_clashes_above_the_first_layer(seed: int) -> None:
    """A proved clash never occurs, and a skeleton with it stays true."""
    rng = np.random.default_rng(seed)
    zero = ("plus", "minus", "either")[seed % 3]
    network = random_network(rng, [2, 4, 4, 3, 2], sign_zero=zero).build()
    geometry: Any = FreeInputs(4)
    plain = Skeleton(network, geometry, {})
    good = []
    for _ in range(60):
        size = int(rng.integers(1, 3))
        neuron, sign = rng.integers(0, 4, size), rng.choice([-1, 1], size)
        one = Clauses(np.array([0, size]), neuron, sign, rng.integers(0, 4, size))
        if Skeleton._proved(plain.layers[1], one):
            good.append(one)
    # What is not proved is refused, and so is what could leave 64 bits.
    for sign, theta in ((1, 0), (1, -1), (1, 2**31), (3, 1)):
        bad = Clauses(np.array([0, 1]), np.zeros(1, int), np.array([sign]), np.array([theta]))
        with pytest.raises(RejectedError, match="layer 2 is not proved"):
            Skeleton(network, geometry, {1: bad})
    skeleton = Skeleton(network, geometry, {1: joined(good)})
    assert not skeleton.empty
    for signs in (e for p in product((1, -1), repeat=4) for e in evaluations(network, p)):
        assert allowed(joined(good), signs[1])
        x = [signs[n][j] for n, j in skeleton.owner]
        for n, layer in enumerate(skeleton.layers):
            for j, sign in enumerate(signs[n]):
                if layer.state[j]:
                    assert layer.state[j] == sign
                elif layer.variable[j] >= 0:
                    assert layer.sign[j] * x[layer.variable[j]] == sign
        true = [2 * v + (s < 0) for v, s in enumerate(x)]
        assert not skeleton.excluded[np.ix_(true, true)].any()


def check_random_multipliers(seed: int) -> int:
    """Return how many patterns were compared with the bound; none where a view is impossible."""
    rng = np.random.default_rng(seed)
    network = random_network(rng, [2, 4, 4, 3, 2], sign_zero="either").build()
    clash = clauses(*([(int(rng.integers(4)), 1), (int(rng.integers(4)), -1)] for _ in range(2)))
    geometry: Any = FreeInputs(4)
    skeleton = Skeleton(network, geometry, {0: clash})
    function = Function.of(network, {0: Fraction(1), 1: Fraction(-1)}, Fraction(0), False)
    goal = Goal(skeleton, function, clauses())
    view = None if skeleton.empty else goal.view(np.zeros(skeleton.size, dtype=np.int8))
    if view is None:
        return 0
    tables, gates = goal.values.shape[0], goal.gate_variable.size
    first, second = np.nonzero(view.excluded)
    free = view.free.size
    open_ = np.isin(first // 2, view.free) & np.isin(second // 2, view.free)
    first, second = first[open_], second[open_]
    squares = bool(rng.integers(2))

    def some(*shape: int) -> np.ndarray:
        return rng.integers(-20, 21, shape)

    table, gate = some(tables, 2), some(gates, 4)
    by = np.flatnonzero(rng.integers(2, size=tables if view.signs.size else 0))
    split = some(by.size, 2)
    if not squares:
        table[:, 1] = gate[:, 1] = gate[:, 3] = split[:, 1] = 0
    numbers = Multipliers(
        3,
        np.arange(tables),
        table,
        goal.gate_variable,
        gate,
        np.full(free + 1, -3000) if squares else np.zeros(0, dtype=np.int64),
        first,
        second,
        some(first.size) if squares else np.abs(some(first.size)),
        by,
        rng.integers(max(1, view.signs.size), size=by.size),
        split,
    )
    bound = goal.bound(view, numbers)
    compared = 0
    for signs in (e for p in product((1, -1), repeat=4) for e in evaluations(network, p)):
        if allowed(clash, signs[0]):
            total = sum(w * int(s) for w, s in zip(function.weights, signs[-1], strict=True))
            f = Fraction(total, function.denominator)
            assert bound <= f + function.constant
            compared += 1
    return compared


def test_any_multipliers_give_a_bound() -> None:
    """Random numbers: the identity holds and the bound is below f at every pattern."""
    compared: list[int] = []

    @settings(max_examples=90, **QUIET)
    @given(st.integers(0, 10**6))
    def check(seed: int) -> None:
        compared.append(check_random_multipliers(seed))

    check()
    assert sum(map(bool, compared)) > len(compared) / 2


def test_pairs_that_leave_no_value() -> None:
    """Where x_3 = 1 no two of x_0, x_1, x_2 are equal, which cannot be."""
    network = bnncert.Network.from_arrays(
        [np.eye(4), np.array([[1.0, 1.0, 1.0, 0.0]]), np.array([[1.0], [-1.0]])],
        [np.zeros(4), np.zeros(1), np.zeros(2)],
    )
    geometry: Any = FreeInputs(4)
    function = Function.of(network, {0: Fraction(1), 1: Fraction(-1)}, Fraction(0), False)
    pairs = [(0, 1), (0, 2), (1, 2)]
    known = clauses(*([(i, s), (j, s), (3, 1)] for i, j in pairs for s in (1, -1)))
    goal = Goal(Skeleton(network, geometry, {}), function, known)
    assert goal.view(np.array([0, 0, 0, 1], dtype=np.int8)) is None
    assert goal.view(np.array([0, 0, 0, -1], dtype=np.int8)) is not None


def test_a_gate_against_its_inputs() -> None:
    """A hidden neuron that copies the majority of three inputs cannot oppose them."""
    network = bnncert.Network.from_arrays(
        [np.eye(3), np.ones((1, 3)), np.ones((1, 1)), np.array([[1.0], [-1.0]])],
        [np.zeros(3), np.zeros(1), np.zeros(1), np.zeros(2)],
    )
    geometry: Any = FreeInputs(3)
    function = Function.of(network, {0: Fraction(1), 1: Fraction(-1)}, Fraction(0), False)
    goal = Goal(Skeleton(network, geometry, {}), function, clauses())
    assert goal.view(np.array([1, 1, 0, -1], dtype=np.int8)) is None
    view = goal.view(np.array([1, 1, 0, 0], dtype=np.int8))
    assert view is not None and view.signs.tolist() == [1, 1, 0, 1]


@settings(max_examples=30, **QUIET)
@given(st.integers(0, 10**6))
def test_ranges(seed: int) -> None:
    """Bounds of sums hold for all signs that no excluded pair forbids."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    matrix = rng.integers(-4, 5, (3, n))
    excluded = rng.random((2 * n, 2 * n)) < 0.3
    excluded |= excluded.T
    one = np.arange(2 * n)
    excluded[one, one] = excluded[one, one ^ 1] = False
    signs = rng.integers(-1, 2, n).astype(np.int8) * (rng.random(n) < 0.3).astype(np.int8)
    low, high = Rows.of(SparseRows.of_dense(matrix)).ranges(signs, excluded)
    for x in product((1, -1), repeat=n):
        true = [2 * v + (s < 0) for v, s in enumerate(x)]
        if not excluded[np.ix_(true, true)].any() and all(
            a in (0, b) for a, b in zip(signs, x, strict=True)
        ):
            u = matrix @ np.array(x)
            assert np.all((low <= u) & (u <= high))


def test_closure() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        table = (rng.random((9, 9)) < 0.15) | np.eye(9, dtype=bool)
        slow = table.copy()
        for k, i, j in product(range(9), repeat=3):
            slow[i, j] |= slow[i, k] and slow[k, j]
        assert np.array_equal(_closure(table), slow)


@settings(max_examples=40, **QUIET)
@given(st.lists(st.integers(-(2**90), 2**90), min_size=1, max_size=6), st.data())
def test_digits(numbers: list[int], data: st.DataObject) -> None:
    parts = digits(np.array(numbers, dtype=object))
    assert [
        sum(int(p[k]) << (20 * i) for i, p in enumerate(parts)) for k in range(len(numbers))
    ] == numbers
    other = [data.draw(st.integers(-(2**70), 2**70)) for _ in numbers]
    rows = [part[None, :] for part in parts]
    assert dot(rows, digits(np.array(other, dtype=object))).tolist() == [
        sum(a * b for a, b in zip(numbers, other, strict=True))
    ]
    floats = [float(v) / 2**60 for v in numbers]
    for whole, shift in (scaled(np.array(floats)), common_shift([Fraction(v) for v in floats])):
        assert [Fraction(int(v), 1 << shift) for v in whole] == [Fraction(v) for v in floats]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6))
def test_floats_over_a_power_of_two(floats: list[float]) -> None:
    """Every float, subnormal ones and zeros included, and no power that is larger than needed."""
    whole, shift = scaled(np.array(floats))
    assert [Fraction(v, 1 << shift) for v in whole.tolist()] == [Fraction(v) for v in floats]
    assert shift == common_shift([Fraction(v) for v in floats])[1]


def _space(rng: np.random.Generator, kind: str) -> Space:
    grid = [[Fraction(int(v), 8) for v in rng.integers(-16, 17, 3)] for _ in range(2)]
    lower, upper = (
        [min(p) for p in zip(*grid, strict=True)],
        [max(p) for p in zip(*grid, strict=True)],
    )
    center = [(a + b) / 2 + (b - a) / 8 for a, b in zip(lower, upper, strict=True)]
    matrix, right = np.zeros((0, 3)), np.zeros(0)
    if kind == "polytope":
        matrix, right = rng.integers(-2, 3, (2, 3)).astype(float), rng.integers(-2, 6, 2) / 2
    norm = kind if kind in ("l1", "l2") else None
    ball = {"norm": norm, "center": center if norm else [], "radius": Fraction(3, 4)}
    return exact_space(lower, upper, matrix, right, **ball)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["box", "l1", "l2", "polytope"])
@pytest.mark.parametrize("weights", ["ternary", "real", "wild"])
def test_proved_clauses_hold_at_all_points(kind: str, weights: str) -> None:
    """No point of the region has all the signs of a clause."""
    rng = np.random.default_rng(len(kind) + 10 * len(weights))
    proved = checked = 0
    for _ in range(14):
        space = _space(rng, kind)
        matrix = rng.integers(-1, 2, (4, 3)).astype(float)
        if weights != "ternary":
            matrix = matrix * rng.random((4, 3))
        if weights == "wild":
            matrix = matrix * 2.0 ** rng.integers(-60, 60, (4, 3))
        bias = rng.integers(-4, 5, 4) / 4 * np.abs(matrix).max(axis=1)
        zero = ("plus", "minus", "either")[int(rng.integers(3))]
        network = bnncert.Network.from_arrays(
            [matrix, np.ones((2, 4))],
            [bias, np.zeros(2)],
            sign_zero=zero,  # type: ignore[arg-type]
        )
        geometry = Geometry(network.layers[0], space)
        sizes = rng.integers(1, 4, 40)
        neuron = rng.integers(-len(space.right), 4, int(sizes.sum()))
        sign = np.where(neuron < 0, 1, rng.choice([-1, 1], neuron.size))
        theta = rng.integers(0, 5, neuron.size) * 2 ** rng.integers(0, 40, neuron.size)
        found = Clauses(np.concatenate([[0], np.cumsum(sizes)]), neuron, sign, theta)
        holds = geometry.proved(found)
        proved += int(holds.sum())
        sides = zip(space.rationals(space.lower), space.rationals(space.upper), strict=True)
        for x in product(*([a, b, (a + b) / 2, a + (b - a) * Fraction(5, 8)] for a, b in sides)):
            point = list(x)
            if not space.contains(point):
                continue
            signs = signs_at(geometry, point, lcm(*(v.denominator for v in point)))
            exact = network.layers[0].exact_signs(point)
            assert signs.tolist() == exact.tolist()
            for k in np.flatnonzero(holds):
                part = found.part(int(k), int(k) + 1)
                real = part.neuron >= 0
                checked += 1
                # 0 is a tie that goes either way.
                assert any(
                    signs[j] == -s for j, s in zip(part.neuron[real], part.sign[real], strict=True)
                )
    assert proved > 10 and checked > 50


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_bound_over_a_ball_is_nearly_the_best(norm: str) -> None:
    """A ball cut by its box: the region's own support function is met but for rounding."""
    rng = np.random.default_rng(4)
    for _ in range(40):
        center, radius = rng.integers(-4, 5, 6) / 4, 1.0
        region = bnncert.Ball(norm, center, radius, center - rng.random(6), center + rng.random(6))  # type: ignore[arg-type]
        weights = rng.integers(-3, 4, (1, 6)).astype(float)
        top = float(region.support(weights)[0])
        low, high, middle = ([Fraction(v) for v in a] for a in (region.lo, region.hi, center))
        none = np.zeros((0, 6)), np.zeros(0)
        space = exact_space(low, high, *none, norm=norm, center=middle, radius=Fraction(1))
        for gap in (1e-6, -1e-6):
            network = bnncert.Network.from_arrays(
                [weights, np.ones((2, 1))], [np.array([-top - gap]), np.zeros(2)]
            )
            if np.any(weights):
                state = Geometry(network.layers[0], space).states()
                assert state.tolist() == [-1 if gap > 0 else 0]
