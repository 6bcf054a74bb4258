"""Ranges of sums against all patterns."""

from __future__ import annotations

from itertools import product

import numpy as np
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.presolve.conflicts import ConflictingPairs
from bnncert.presolve.ranges import sum_ranges
from bnncert.search.elimination.bound import EliminationLimits
from bnncert.search.elimination.sums import eliminated_sum_ranges

FOREVER = Deadline(None)


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
