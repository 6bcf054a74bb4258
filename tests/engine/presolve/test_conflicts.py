"""The closure of clashes, against all sign vectors that satisfy them."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from bnncert.engine.presolve.conflicts import ConflictingPairs, close
from bnncert.engine.presolve.literals import literal
from tests.strategies import few

FEW = few(35)

Array = npt.NDArray[Any]


def make(pairs: list[tuple[int, int]]) -> ConflictingPairs:
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
    return ConflictingPairs(table[:, 0], table[:, 1], np.linspace(0.25, 0.75, len(pairs)))


@st.composite
def pair_sets(draw: st.DrawFn, most: int = 5) -> tuple[ConflictingPairs, int]:
    """Any pairs of literals of different neurons; sometimes many, so that they contradict."""
    n = draw(st.integers(1, most))
    literals = st.integers(0, 2 * n - 1)
    pair = st.tuples(literals, literals).filter(lambda p: p[0] // 2 != p[1] // 2)
    pairs = draw(st.lists(pair, max_size=draw(st.sampled_from([2, 5, 10])))) if n > 1 else []
    return make(pairs), n


def is_true(x: Array, which: int) -> npt.NDArray[np.bool_]:
    """Return for every row whether the literal holds."""
    return np.asarray(x[:, which // 2] == (-1 if which % 2 else 1))


def satisfying(conflicts: ConflictingPairs, n: int) -> Array:
    """Return all sign vectors that satisfy every clash."""
    x = np.array(list(product((1, -1), repeat=n)))
    fine = np.ones(x.shape[0], dtype=bool)
    for a, b in zip(conflicts.first.tolist(), conflicts.second.tolist(), strict=True):
        fine &= ~(is_true(x, a) & is_true(x, b))
    return x[fine]


@given(case=pair_sets())
@FEW
def test_the_closure_is_what_all_solutions_have_in_common(
    case: tuple[ConflictingPairs, int],
) -> None:
    conflicts, n = case
    x, closure = satisfying(conflicts, n), close(conflicts, n)
    assert closure.contradiction == (x.shape[0] == 0)
    if closure.contradiction:
        assert closure.pairs.size == 0
        return
    for j in range(n):
        values = set(x[:, j].tolist())
        assert int(closure.state[j]) == (values.pop() if len(values) == 1 else 0)
    open_ = np.flatnonzero(closure.state == 0).tolist()
    for a in open_:
        # The representative is open, leads itself, and comes first in its class.
        leader = int(closure.representative[a])
        assert leader <= a
        assert closure.state[leader] == 0
        assert closure.representative[leader] == leader and closure.sign[leader] == 1
        for b in open_:
            same, opposite = np.all(x[:, a] == x[:, b]), np.all(x[:, a] == -x[:, b])
            assert (closure.representative[b] == leader) == (same or opposite)
            if same or opposite:
                assert closure.sign[a] * closure.sign[b] == (1 if same else -1)
    for a in set(range(n)) - set(open_):
        assert closure.representative[a] == a and closure.sign[a] == 1
    leaders = [j for j in open_ if closure.representative[j] == j]
    expected = {
        frozenset((a, b))
        for i, j in combinations(leaders, 2)
        for a, b in product((2 * i, 2 * i + 1), (2 * j, 2 * j + 1))
        if not np.any(is_true(x, a) & is_true(x, b))
    }
    found = closure.pairs
    ends = zip(found.first.tolist(), found.second.tolist(), strict=True)
    assert {frozenset(pair) for pair in ends} == expected
    assert found.size == len(expected)
    assert np.all(found.first < found.second)
    again = close(found, n)
    assert not again.contradiction
    # What was fixed or merged has left the clashes, so nothing more is fixed or merged.
    assert not again.state.any()
    np.testing.assert_array_equal(again.representative, np.arange(n))
    np.testing.assert_array_equal(again.sign, np.ones(n))
    for name in ("first", "second", "theta"):
        np.testing.assert_array_equal(getattr(again.pairs, name), getattr(found, name))
    # A proof is kept, and an implied pair has none.
    proofs: dict[tuple[int, int], set[float]] = {}
    for a, b, theta in zip(conflicts.first, conflicts.second, conflicts.theta, strict=True):
        proofs.setdefault((int(a), int(b)), set()).add(float(theta))
        proofs.setdefault((int(b), int(a)), set()).add(1.0 - float(theta))
    for a, b, theta in zip(found.first, found.second, found.theta, strict=True):
        known = proofs.get((int(a), int(b)))
        assert np.isnan(theta) if known is None else float(theta) in known


@given(st.integers(0, 10**6))
@few(20)
def test_long_chains_close(seed: int) -> None:
    """A ring of implications makes all of its neurons equal, however long it is."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    order, sign = rng.permutation(n), rng.choice([-1, 1], n)
    # x_i = s_i implies x_next = s_next, all around: a clash of (i, s_i) and (next, -s_next).
    around = np.roll(order, -1)
    first = literal(order, sign[order])
    second = literal(around, -sign[around])
    closure = close(ConflictingPairs(first, second, np.full(n, 0.5)), n)
    assert not closure.contradiction and not closure.state.any()
    np.testing.assert_array_equal(closure.representative, np.zeros(n))
    np.testing.assert_array_equal(closure.sign, sign * sign[0])
    # Cut open, the ring is a chain: no two are equal, and each implies all that follow.
    chain = close(ConflictingPairs(first[:-1], second[:-1], np.full(n - 1, 0.5)), n)
    np.testing.assert_array_equal(chain.representative, np.arange(n))
    assert chain.pairs.size == n * (n - 1) // 2


def test_literals_are_numbered_by_neuron_and_sign() -> None:
    numbers = literal(np.array([0, 0, 3]), np.array([1, -1, -1], dtype=np.int8))
    assert numbers.tolist() == [0, 1, 7]
    table = make([(0, 3)]).matrix(2)
    assert np.argwhere(table).tolist() == [[0, 3], [3, 0]]


def test_a_neuron_without_a_sign_is_a_contradiction() -> None:
    # x_0 = + excludes both signs of x_1, and so does x_0 = -.
    assert close(make([(0, 2), (0, 3), (1, 2), (1, 3)]), 2).contradiction
    closure = close(make([(0, 2), (0, 3)]), 2)
    assert not closure.contradiction and closure.state.tolist() == [-1, 0]
