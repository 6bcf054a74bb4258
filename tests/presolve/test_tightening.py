"""Bounds by linear programs: valid at every reachable pattern, proved, and on the lattice."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert.presolve.conflicts import ConflictingPairs
from bnncert.presolve.pipeline import Presolved, presolve
from bnncert.presolve.ranges import sum_ranges
from bnncert.presolve.tightening import (
    Gates,
    clique_cover,
    inequalities,
    proved_maximum,
    tighten,
)
from tests.brute_force import TinyNetwork
from tests.presolve.test_conflicts import pair_sets, satisfying
from tests.presolve.test_pipeline import (
    check_layers,
    check_step,
    reachable_patterns,
    same_array,
    wide_networks,
)
from tests.strategies import NORMS, regions, tiny_networks

FEW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

Array = npt.NDArray[Any]


def check_presolve(net: TinyNetwork, region: bnncert.Region) -> None:
    """Every claim holds with the programs, and no bound is wider than without them."""
    patterns = list(reachable_patterns(net, region))
    built = net.build()
    plain, sharp = presolve(built, region), presolve(built, region, tighten=True)
    if not patterns:
        return
    assert not sharp.contradiction
    depth = len(net.weights) - 1
    signs = [np.array([p[i] for p in patterns]) for i in range(depth)]
    sums = [signs[0]] + [signs[i - 1] @ net.weights[i].T for i in range(1, depth)]
    for step in sharp.record.steps:
        check_step(step, signs, sums, sharp.layers)
    check_layers(sharp, signs, sums)
    for old, new in zip(plain.layers, sharp.layers, strict=True):
        assert np.all(new.bounds.lower >= old.bounds.lower)
        assert np.all(new.bounds.upper <= old.bounds.upper)


@given(data=st.data(), kind=st.sampled_from([*NORMS, "l2"]))
@FEW
def test_every_claim_holds_at_every_reachable_pattern(data: st.DataObject, kind: str) -> None:
    net = data.draw(tiny_networks(exact_ties=kind != "l2", max_depth=4))
    check_presolve(net, data.draw(regions(kind)))


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@given(data=st.data())
@FEW
def test_every_claim_holds_where_neurons_merge(sign_zero: str, data: st.DataObject) -> None:
    net = data.draw(wide_networks(sign_zero))
    check_presolve(net, data.draw(regions(data.draw(st.sampled_from(["box", "linf"])))))


@given(data=st.data())
@settings(FEW, max_examples=40)
def test_it_is_deterministic(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(max_depth=4)).build()
    region = data.draw(regions("box"))
    one, two = presolve(net, region, tighten=True), presolve(net, region, tighten=True)
    for p, q in zip(one.layers, two.layers, strict=True):
        assert same_array(p.bounds.lower, q.bounds.lower)
        assert same_array(p.bounds.upper, q.bounds.upper)
        assert same_array(p.bounds.state, q.bounds.state)
        assert same_array(p.variable, q.variable)
    assert one.record.counts() == two.record.counts()


@given(made=pair_sets(most=6))
@FEW
def test_cliques_hold_every_pair_and_nothing_else(made: tuple[ConflictingPairs, int]) -> None:
    pairs, n = made
    table = pairs.matrix(n)
    seen = np.zeros_like(table)
    for clique in clique_cover(pairs, n):
        for a, b in product(clique, clique):
            assert a == b or table[a, b]
            seen[a, b] = a != b
    np.testing.assert_array_equal(seen, table)


@given(made=pair_sets(most=6), seed=st.integers(0, 10**6))
@FEW
def test_bounds_hold_for_all_signs_that_pairs_allow(
    made: tuple[ConflictingPairs, int], seed: int
) -> None:
    pairs, n = made
    rng = np.random.default_rng(seed)
    weights = sp.csr_array(rng.integers(-3, 4, (4, n)))
    weights.eliminate_zeros()
    low, high = sum_ranges(weights, pairs.matrix(n))
    wanted = np.arange(4)
    found = tighten(weights, low, high, wanted, pairs, Gates.none(n))
    assert np.all(found[0] >= low) and np.all(found[1] <= high)
    x = satisfying(pairs, n)
    if x.shape[0]:
        u = x @ weights.toarray().T
        assert np.all((found[0] <= u) & (u <= found[1]))
    reach = abs(weights.toarray()).sum(axis=1)
    changed = np.concatenate([found[0][found[0] > low] - reach[found[0] > low]])
    assert np.all(changed % 2 == 0)


@given(seed=st.integers(0, 10**6))
@FEW
def test_any_multipliers_prove_a_bound(seed: int) -> None:
    """The formula with random multipliers, good or bad, in exact rationals."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    matrix = sp.csr_array(rng.integers(-3, 4, (m, n)))
    x = np.array(list(product((1, -1), repeat=n)))
    right = np.asarray(matrix @ x[int(rng.integers(len(x)))]) + rng.integers(0, 3, m)
    row = rng.integers(-4, 5, n)
    y = rng.normal(size=m) * 10.0 ** rng.integers(-3, 3)
    bound = proved_maximum(row, matrix, right, y)
    fine = np.all(matrix @ x.T <= right[:, None], axis=0)
    assert bound >= (x[fine] @ row).max()
    exact = [Fraction(round(max(v, 0.0) * 2**20), 2**20) for v in y.tolist()]
    rest = [
        Fraction(int(row[i])) - sum(int(matrix[k, i]) * exact[k] for k in range(m))
        for i in range(n)
    ]
    total = sum((int(b) * v for b, v in zip(right, exact, strict=True)), Fraction(0))
    total += sum((abs(v) for v in rest), Fraction(0))
    assert bound == total // 1


def test_multipliers_beyond_the_integers_prove_nothing() -> None:
    matrix = sp.csr_array(np.array([[1, 1]]))
    right = np.array([0])
    row = np.array([1, 1])
    assert proved_maximum(row, matrix, right, np.array([1e300])) == np.inf
    assert proved_maximum(row, matrix, right, np.array([np.nan])) == 2.0
    assert proved_maximum(row, matrix, right, np.array([-5.0])) == 2.0
    assert proved_maximum(row, matrix, right, np.array([1.0])) == 0.0


def test_odd_cycles_are_seen_through_the_lattice() -> None:
    """Of five signs in a cycle of clashes at most two are +1: u <= -1, where pairs say u <= 1."""
    first = np.array([0, 2, 4, 6, 0])
    second = np.array([2, 4, 6, 8, 8])
    pairs = ConflictingPairs(first, second, np.zeros(5))
    weights = sp.csr_array(np.ones((1, 5), dtype=np.int64))
    low, high = sum_ranges(weights, pairs.matrix(5))
    assert high[0] == 1
    found = tighten(weights, low, high, np.array([0]), pairs, Gates.none(5))
    assert (found[0][0], found[1][0]) == (-5, -1)


def test_gates_bound_the_layer_above() -> None:
    """x_3 = sign(x_0 + x_1 + x_2): then x_0 + x_1 + x_2 - 3 x_3 is at most 2, hence 2."""
    rows = sp.csr_array(np.array([[1, 1, 1, 0]]))
    gates = Gates(
        rows,
        np.array([3]),
        np.array([-3.0]),
        np.array([3.0]),
        np.array([1.0]),
        np.array([-1.0]),
    )
    weights = sp.csr_array(np.array([[1, 1, 1, -3], [-1, -1, -1, 3]]))
    reach = np.array([6.0, 6.0])
    found = tighten(weights, -reach, reach, np.arange(2), ConflictingPairs.none(), gates)
    assert found[1].tolist() == [2.0, 2.0] and found[0].tolist() == [-2.0, -2.0]


@given(seed=st.integers(0, 10**6))
@FEW
def test_gate_inequalities_hold_at_every_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    weights = rng.integers(-2, 3, n)
    reach = int(np.abs(weights).sum())
    plus = reach % 2 + 2 * int(rng.integers(-2, 3))
    minus = plus - 2 if rng.random() < 0.7 else plus
    x = np.array(list(product((1, -1), repeat=n)))
    u = x @ weights
    patterns = [[*row, 1] for row, v in zip(x.tolist(), u, strict=True) if v >= plus]
    patterns += [[*row, -1] for row, v in zip(x.tolist(), u, strict=True) if v <= minus]
    rows = sp.csr_array(np.append(weights, 0)[None, :])
    gates = Gates(
        rows,
        np.array([n]),
        np.array([float(-reach)]),
        np.array([float(reach)]),
        np.array([float(plus)]),
        np.array([float(minus)]),
    )
    matrix, right = inequalities(ConflictingPairs.none(), gates, n + 1)
    assert np.all(matrix @ np.array(patterns).T <= right[:, None])


def test_the_number_of_programs_is_limited() -> None:
    pairs = ConflictingPairs(np.array([0, 2, 4, 6, 0]), np.array([2, 4, 6, 8, 8]), np.zeros(5))
    weights = sp.csr_array(np.array([[1, 1, 1, 1, 1], [-1, -1, -1, -1, -1], [1, 1, 1, 1, 3]]))
    low, high = sum_ranges(weights, pairs.matrix(5))
    wanted = np.arange(3)
    none = tighten(weights, low, high, wanted, pairs, Gates.none(5), most=1)
    np.testing.assert_array_equal(none, (low, high))
    # A row and its negative share their programs; the third row is beyond the limit.
    some = tighten(weights, low, high, wanted, pairs, Gates.none(5), most=2)
    assert some[1][0] == -1 and some[0][1] == 1
    assert (some[0][2], some[1][2]) == (low[2], high[2])


def deep(seed: int) -> tuple[Presolved, Presolved]:
    rng = np.random.default_rng(seed)
    sizes = [40, 20, 20, 20, 3]
    weights = [
        rng.choice([-1.0, 0.0, 1.0], p=[0.3, 0.4, 0.3], size=(b, a)) for a, b in pairwise(sizes)
    ]
    biases = [rng.uniform(-1, 1, 20), *(np.rint(rng.uniform(-2, 2, n)) for n in (20, 20, 3))]
    network = bnncert.Network.from_arrays(weights, biases)
    region = bnncert.Ball("linf", rng.uniform(-1, 1, 40), 0.03, -1.0, 1.0)
    return presolve(network, region), presolve(network, region, tighten=None)


def test_it_fixes_neurons_of_deep_networks() -> None:
    before, after = zip(*(deep(seed) for seed in range(4)), strict=True)
    count = [sum(p.bounds[2].unstable.size for p in side) for side in (before, after)]
    assert count[1] < count[0]
    # The second layer is left alone.
    for p, q in zip(before, after, strict=True):
        np.testing.assert_array_equal(p.bounds[1].upper, q.bounds[1].upper)
