"""Which clauses are active, and which are violated."""

from __future__ import annotations

import numpy as np

from bnncert.deadline import Deadline
from bnncert.engine.search.elimination.bound import EliminationLimits, prepare
from bnncert.engine.search.elimination.elimination_search import ClausePool


def test_violated_clauses_are_those_whose_literals_all_hold() -> None:
    rng = np.random.default_rng(0)
    pool = ClausePool()
    assert pool.violated(np.ones(3, dtype=np.int8)) == []
    for _ in range(30):
        own = rng.permutation(6)[: int(rng.integers(1, 4))]
        clause = 2 * own + rng.integers(0, 2, own.size)
        known = any(np.array_equal(np.sort(clause), c) for c in pool.clauses)
        assert pool.add(clause) is not known
    for _ in range(50):
        signs = rng.choice([-1, 1], 6).astype(np.int8)
        expected = [
            i
            for i, clause in enumerate(pool.clauses)
            if all(signs[c >> 1] == (-1 if c & 1 else 1) for c in clause.tolist())
        ]
        assert pool.violated(signs) == expected


def test_long_clauses_are_activated_where_no_short_one_is_violated() -> None:
    pool = ClausePool([np.arange(0, 2 * n, 2) for n in (6, 3, 2, 5)])
    pool.activate([0, 1, 2, 3])
    assert pool.active == [2, 1]
    pool.activate([1])
    assert pool.active == [1, 2]
    pool.activate([0, 3])
    assert pool.active == [1, 2, 3]


def test_clauses_inside_a_bucket_are_free() -> None:
    tables = [(0, 1, 2), (2, 3), (3, 4), (4, 5)]
    clauses = [(0, 2), (0, 5), (3, 4), (1, 9)]
    narrow = prepare(tables, clauses, 1, EliminationLimits(), Deadline(None), active=())
    assert narrow.clauses == (0, 2)
    assert narrow.plan.width == 2
    wide = prepare(tables, clauses, 1, EliminationLimits(), Deadline(None), active=(1,))
    assert wide.clauses == (1, 0, 2)
    assert wide.components == 1 and wide.plan.is_exact
