"""Bounds of signed sums under clashes, against all sign vectors that satisfy them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bnncert.engine.presolve.conflicts import ConflictingPairs, sum_ranges
from tests.strategies import few

FEW = few(40)

Array = npt.NDArray[Any]


@st.composite
def sums(draw: st.DrawFn, *, conflicts: bool = True) -> tuple[Array, ConflictingPairs]:
    """Integer rows with weights up to 5 in size, and clashes among their signs."""
    n = draw(st.integers(1, 6))
    rows = draw(st.integers(1, 4))
    entry = st.sampled_from([0, 0, 1, -1, 1, -1, 2, -2, 3, -5])
    weights = np.array(draw(st.lists(entry, min_size=rows * n, max_size=rows * n)))
    literals = st.integers(0, 2 * n - 1)
    pair = st.tuples(literals, literals).filter(lambda p: p[0] // 2 != p[1] // 2)
    pairs = draw(st.lists(pair, max_size=12)) if conflicts and n > 1 else []
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return weights.reshape(rows, n), ConflictingPairs(
        table[:, 0], table[:, 1], np.zeros(len(pairs))
    )


def satisfying(conflicts: ConflictingPairs, n: int) -> Array:
    x = np.array(list(product((1, -1), repeat=n)))
    fine = np.ones(x.shape[0], dtype=bool)
    for a, b in zip(conflicts.first.tolist(), conflicts.second.tolist(), strict=True):
        left = x[:, a // 2] == (-1 if a % 2 else 1)
        fine &= ~(left & (x[:, b // 2] == (-1 if b % 2 else 1)))
    return x[fine]


@given(case=sums())
@FEW
def test_every_allowed_sum_lies_in_its_range(case: tuple[Array, ConflictingPairs]) -> None:
    weights, conflicts = case
    n = weights.shape[1]
    low, high = sum_ranges(sp.csr_array(weights), conflicts.matrix(n))
    reach = np.abs(weights).sum(axis=1)
    assert low.shape == high.shape == (weights.shape[0],)
    u = satisfying(conflicts, n) @ weights.T
    if u.shape[0]:
        assert np.all(low <= u.min(axis=0)) and np.all(u.max(axis=0) <= high)
    assert np.all(low >= -reach) and np.all(high <= reach)
    # The ends are values that a sum of these weights can have.
    np.testing.assert_array_equal((high - reach) % 2, 0)
    np.testing.assert_array_equal((low - reach) % 2, 0)


@given(case=sums(conflicts=False))
@FEW
def test_without_pairs_the_range_is_the_norm(case: tuple[Array, ConflictingPairs]) -> None:
    weights, _ = case
    n = weights.shape[1]
    reach = np.abs(weights).sum(axis=1)
    for table in (np.zeros((2 * n, 2 * n), dtype=bool), np.zeros((2 * n, 0), dtype=bool)):
        low, high = sum_ranges(sp.csr_array(weights), table)
        np.testing.assert_array_equal(high, reach)
        np.testing.assert_array_equal(low, -reach)


@given(case=sums(), extra=st.integers(0, 10**6))
@FEW
def test_rows_do_not_influence_each_other(case: tuple[Array, ConflictingPairs], extra: int) -> None:
    weights, conflicts = case
    n = weights.shape[1]
    table = conflicts.matrix(n)
    low, high = sum_ranges(sp.csr_array(weights), table)
    for j in range(weights.shape[0]):
        one = sum_ranges(sp.csr_array(weights[[j]]), table)
        assert (one[0][0], one[1][0]) == (low[j], high[j])
    # -w has the opposite range.
    low_, high_ = sum_ranges(sp.csr_array(-weights), table)
    np.testing.assert_array_equal(low_, -high)
    np.testing.assert_array_equal(high_, -low)


@given(st.integers(0, 10**6))
@FEW
def test_signs_that_all_exclude_each_other_give_the_exact_range(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    weights = rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], n)
    up = 2 * np.arange(n) + (weights < 0)
    i, j = np.triu_indices(n, 1)
    conflicts = ConflictingPairs(up[i], up[j], np.zeros(i.size))
    low, high = sum_ranges(sp.csr_array(weights[None, :]), conflicts.matrix(n))
    u = satisfying(conflicts, n) @ weights
    assert (low[0], high[0]) == (u.min(), u.max())
    assert high[0] == 2 * np.abs(weights).max() - np.abs(weights).sum()


@given(st.integers(0, 10**6))
@FEW
def test_one_pair_of_two_weights_is_used_in_full(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.choice([-3, -2, -1, 1, 2, 3], 4)
    a, b = rng.choice(4, 2, replace=False)
    conflicts = ConflictingPairs(
        np.array([2 * a + rng.integers(2)]), np.array([2 * b + rng.integers(2)]), np.zeros(1)
    )
    low, high = sum_ranges(sp.csr_array(weights[None, :]), conflicts.matrix(4))
    u = satisfying(conflicts, 4) @ weights
    assert (low[0], high[0]) == (u.min(), u.max())


def test_rows_without_entries() -> None:
    conflicts = ConflictingPairs(np.array([0]), np.array([2]), np.zeros(1)).matrix(2)
    low, high = sum_ranges(sp.csr_array(np.zeros((2, 2), dtype=np.int64)), conflicts)
    assert low.tolist() == high.tolist() == [0.0, 0.0]
    low, high = sum_ranges(sp.csr_array(np.array([[0, 0], [1, 1]])), conflicts)
    assert (low.tolist(), high.tolist()) == ([0.0, -2.0], [0.0, 0.0])
    low, high = sum_ranges(sp.csr_array((3, 0), dtype=np.int64), np.zeros((0, 0), dtype=bool))
    assert low.tolist() == high.tolist() == [0.0, 0.0, 0.0]


@given(case=sums(), data=st.data())
@FEW
def test_a_variable_without_conflicts_adds_its_weight(
    case: tuple[Array, ConflictingPairs], data: st.DataObject
) -> None:
    weights, conflicts = case
    rows, n = weights.shape
    low, high = sum_ranges(sp.csr_array(weights), conflicts.matrix(n))
    entry = st.integers(-6, 6)
    own = np.array(data.draw(st.lists(entry, min_size=rows, max_size=rows)))
    wider = sp.csr_array(np.column_stack([weights, own]))
    wider_low, wider_high = sum_ranges(wider, conflicts.matrix(n + 1))
    np.testing.assert_array_equal(wider_low, low - np.abs(own))
    np.testing.assert_array_equal(wider_high, high + np.abs(own))
