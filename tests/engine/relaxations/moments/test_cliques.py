"""Cliques: numbers and sizes of the paper's theorem, and running intersection."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert import Box, Network, Options, bound
from bnncert.engine.relaxations.moments.polynomial import Polynomial, PolynomialProblem
from bnncert.engine.relaxations.moments.relaxation import (
    Clique,
    Sparsity,
    chordal_cliques,
    layered_cliques,
    pairwise_cliques,
)


def running_intersection(family: Sequence[Clique]) -> bool:
    """Whether each clique meets the union of the earlier ones inside one of them."""
    seen: set[int] = set()
    earlier: list[frozenset[int]] = []
    for clique in family:
        members = frozenset(clique)
        shared = members & seen
        if earlier and shared and not any(shared <= other for other in earlier):
            return False
        seen |= members
        earlier.append(members)
    return True


def layers_of(sizes: list[int]) -> list[tuple[int, ...]]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [tuple(range(a, b)) for a, b in pairwise(ends)]


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_layered_cliques_match_the_theorem(sizes: list[int]) -> None:
    family = layered_cliques(layers_of(sizes))
    n, depth = sizes, len(sizes) - 1
    if depth == 1:
        assert len(family) == n[0]
        assert {len(c) for c in family} == {n[1] + 1}
    elif depth == 2:
        assert len(family) == n[0] + n[2]
        assert {len(c) for c in family} == {n[1] + 1}
    else:
        assert len(family) == depth - 2 + n[0] + n[depth]
        widest = max(n[1] + 1, n[depth - 1] + 1, *(n[j] + n[j + 1] for j in range(1, depth - 1)))
        assert max(map(len, family)) == widest
    assert running_intersection(family)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_pairwise_cliques_are_all_adjacent_pairs(sizes: list[int]) -> None:
    family = pairwise_cliques(layers_of(sizes))
    assert len(family) == sum(a * b for a, b in pairwise(sizes))
    assert {len(c) for c in family} == {2}


def test_pairwise_cliques_with_a_cycle_do_not_have_running_intersection() -> None:
    # x0,1 - x1,1 - x0,2 - x1,2 - x0,1 is a cycle without a chord.
    assert not running_intersection(pairwise_cliques(layers_of([2, 2])))


@pytest.mark.parametrize("sparsity", ["layered", "pairwise", "chordal", "dense"])
def test_a_neuron_above_an_empty_layer_is_in_a_clique(sparsity: Sparsity) -> None:
    """Its sum is constant and meets the threshold, and sign(0) may be either."""
    weights = [np.array([[1.0], [0.0]]), np.array([[0.0, 0.0]]), np.array([[1.0], [-1.0]])]
    for depth in (1, 2):
        # The neuron without inputs is in the first layer, or above a layer that never changes.
        used = weights if depth == 2 else [weights[0][1:], weights[-1]]
        biases = [np.zeros(w.shape[0]) for w in used]
        biases[0][:1] += 9.0 if depth == 2 else 0.0
        net = Network.from_arrays(used, biases, sign_zero="either")
        for method in ("sdp-standard", "sdp-tight"):
            options = Options(sparsity=sparsity)
            found = bound(net, Box([-1.0], [1.0]), 0, method=method, options=options)
            assert -2.001 < found.lower <= -2.0


@given(
    count=st.integers(2, 9),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.1, 0.3, 0.6]),
)
@settings(max_examples=40)
def test_chordal_cliques_cover_all_products_and_have_running_intersection(
    count: int, seed: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.uniform() < density]
    constraints = tuple(Polynomial({e: 1.0}) for e in edges)
    problem = PolynomialProblem((tuple(range(count)),), Polynomial.affine({0: 1.0}), constraints)
    family = [frozenset(c) for c in chordal_cliques(problem)]
    assert frozenset().union(*family) == frozenset(range(count))
    assert all(any({a, b} <= c for c in family) for a, b in edges)
    assert not any(a < b for a in family for b in family)
    assert running_intersection([tuple(sorted(c)) for c in family])


def test_running_intersection_refuses_a_chordless_cycle() -> None:
    assert running_intersection([(0, 1), (1, 2), (2, 3)])
    assert not running_intersection([(0, 1), (1, 2), (2, 3), (0, 3)])
