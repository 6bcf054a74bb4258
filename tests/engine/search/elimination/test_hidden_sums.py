"""Ranges of hidden sums against all patterns, and all inputs of tiny networks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import hidden_sums
from benchmarks.hidden_sums import HiddenPresolve, HiddenSums, eliminated_sum_ranges

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.presolve.conflicts import ConflictingPairs, sum_ranges
from bnncert.engine.presolve.pipeline import Presolved, presolve
from bnncert.engine.search.elimination.bound import EliminationLimits
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.engine.search.elimination.test_search import SIGN_RULES, later_signs
from tests.random_questions import random_region

FOREVER = Deadline(None)

REGIONS = ("linf", "polytope", "linf", "box", "l1")


def pooled_network(rng: np.random.Generator, sign_zero: str) -> TinyNetwork:
    """Return two convolutions along a line with pooling in between, and 2 classes."""
    first = np.zeros((6, 3))
    for row in range(6):
        first[row, row % 2 : row % 2 + 2] = rng.choice([-1.0, 1.0], 2)
    sizes = [6, 3, 4, *([3] if rng.random() < 0.5 else [])]
    weights, biases = [first], [rng.integers(-3, 4, 6) / 2]
    for number, (below, above) in enumerate(pairwise(sizes)):
        window = np.zeros((above, below))
        for row in range(above):
            start = 2 * row if number == 0 else row % (below - 1)
            # Pooling is the maximum: -1 only if all inputs are.
            signs = [1, 1] if number == 0 else rng.choice([-1, 0, 1], 2, p=[0.45, 0.1, 0.45])
            window[row, start : start + 2] = signs
        weights.append(window)
        biases.append(np.ones(above) if number == 0 else rng.integers(-3, 4, above) / 2)
    weights.append(rng.choice([-1.0, 1.0], (2, sizes[-1])))
    biases.append(rng.integers(-3, 4, 2) / 2)
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)  # type: ignore[arg-type]


def check_ranges(presolved: Presolved, signs: list[np.ndarray]) -> None:
    """Compare bounds and states with the sums and signs of all inputs."""
    for number in range(1, presolved.network.depth):
        weights, bounds = presolved.network.layers[number].weights, presolved.bounds[number]
        for y in signs:
            sums = weights @ y.astype(np.int64)
            assert np.all(bounds.lower <= sums) and np.all(sums <= bounds.upper)
        signs = later_signs(presolved, number, signs)
        for y in signs:
            assert np.all((bounds.state == 0) | (bounds.state == y))


def narrower(before: Presolved, after: Presolved) -> tuple[int, int]:
    """Return how many neurons are fixed, and how many bounds are tighter, than before."""
    fixed = ends = 0
    for old, new in zip(before.bounds, after.bounds, strict=True):
        assert np.all((old.state == 0) | (old.state == new.state))
        assert np.all(new.lower >= old.lower) and np.all(new.upper <= old.upper)
        fixed += old.unstable.size - new.unstable.size
        ends += np.count_nonzero(new.lower > old.lower) + np.count_nonzero(new.upper < old.upper)
    return fixed, ends


@pytest.mark.parametrize("rule", SIGN_RULES)
def test_ranges_contain_the_sums_of_all_inputs(rule: str) -> None:
    rng = np.random.default_rng(SIGN_RULES.index(rule))
    narrow = HiddenSums(limits=EliminationLimits(seconds=0.0))
    gains: Counter[str] = Counter()
    with mock.patch.object(hidden_sums, "LOCAL", 1.0):
        for number in range(50):
            net = pooled_network(rng, rule)
            region = random_region(rng, REGIONS[number % 5], 3)
            network = net.build()
            before = presolve(network, region)
            signs: list[np.ndarray] = []
            for kind, sums in (("exact", HiddenSums()), ("narrow", narrow)):
                after = HiddenPresolve(network, region, sums).run()
                assert not after.contradiction
                fixed, ends = narrower(before, after)
                gains[kind] += fixed
                # What is as before is a matter of the tests of presolve.
                if ends:
                    signs = signs or [np.array(p) for p in reachable_first_layers(net, region)]
                    check_ranges(after, signs)
    assert gains["exact"] > 5
    assert gains["exact"] >= gains["narrow"]


def test_dense_layers_and_late_rows_count_in_full() -> None:
    rng = np.random.default_rng(3)
    weights = [rng.choice([-1.0, 1.0], shape) for shape in ((6, 3), (5, 6), (4, 5), (2, 4))]
    network = bnncert.Network.from_arrays(weights, [np.zeros(w.shape[0]) for w in weights])
    region = bnncert.Ball("linf", np.zeros(3), 1.0)
    before, after = presolve(network, region), HiddenPresolve(network, region, HiddenSums()).run()
    for old, new in zip(before.bounds, after.bounds, strict=True):
        assert np.array_equal(old.lower, new.lower) and np.array_equal(old.upper, new.upper)
    with mock.patch.object(hidden_sums, "LOCAL", 1.0):
        late = HiddenSums()(_below(before), before.layers[1].rows, Deadline(1e-9))
    reach = abs(before.layers[1].rows).sum(axis=1)
    assert np.array_equal(late[0], -reach) and np.array_equal(late[1], reach)


def _below(presolved: Presolved) -> Presolved:
    return replace(presolved, layers=presolved.layers[:1])


def test_ranges_are_those_of_all_patterns_without_a_violated_clause() -> None:
    rng = np.random.default_rng(0)
    tighter = 0
    for _ in range(40):
        count = 7
        dense = rng.integers(-3, 4, (5, count)) * (rng.random((5, count)) < 0.8)
        dense[1] = -2 * dense[0]
        clauses = [
            np.asarray(2 * own + rng.integers(0, 2, own.size), dtype=np.int64)
            for own in (rng.permutation(count)[: int(rng.integers(2, 4))] for _ in range(6))
        ]
        rows = sp.csr_array(dense)
        low, high = eliminated_sum_ranges(rows, clauses, EliminationLimits(), FOREVER)
        for j, row in enumerate(dense):
            used = np.flatnonzero(row)
            own = [c for c in clauses if np.isin(c >> 1, used).all()]
            sums = [
                int(row[used] @ x)
                for x in product((1, -1), repeat=used.size)
                for signs in [dict(zip(used.tolist(), x, strict=True))]
                if not any(all(signs[c >> 1] == 1 - 2 * (c & 1) for c in k.tolist()) for k in own)
            ]
            assert (low[j], high[j]) == (min(sums), max(sums))
        pairs = np.array([c for c in clauses if c.size == 2]).reshape(-1, 2)
        excluded = ConflictingPairs(pairs[:, 0], pairs[:, 1], np.zeros(len(pairs))).matrix(count)
        greedy = sum_ranges(rows, excluded)
        narrow = eliminated_sum_ranges(rows, list(pairs), EliminationLimits(seconds=0.0), FOREVER)
        exact = eliminated_sum_ranges(rows, list(pairs), EliminationLimits(), FOREVER)
        assert np.all(exact[0] >= greedy[0]) and np.all(exact[1] <= greedy[1])
        assert np.all(exact[0] >= narrow[0]) and np.all(exact[1] <= narrow[1])
        tighter += int(np.sum(exact[0] > greedy[0]))
    assert tighter > 5
    full = np.abs(dense).sum(axis=1)
    late = eliminated_sum_ranges(rows, clauses, EliminationLimits(), Deadline(1e-9))
    assert np.array_equal(late, (-full, full))
