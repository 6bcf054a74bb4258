"""Many clauses at once: what one clause after the other would say."""

from __future__ import annotations

from itertools import product

import numpy as np

from bnncert.engine.search.clauses import ClauseSet


def test_propagation_agrees_with_all_assignments() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        size = 5
        clauses, parts = ClauseSet(), []
        for _ in range(int(generator.integers(1, 6))):
            chosen = generator.choice(size, int(generator.integers(1, 4)), replace=False)
            literals = 2 * chosen + generator.integers(0, 2, chosen.size)
            parts.append(literals)
            clauses.add(literals)
        everything = np.array(list(product((1, -1), repeat=size)), dtype=np.int8)
        broken = np.zeros(everything.shape[0], dtype=bool)
        for literals in parts:
            holds = everything[:, literals // 2] == 1 - 2 * (literals % 2)
            broken |= holds.all(axis=1)
        np.testing.assert_array_equal(clauses.broken_by(everything), broken)
        signs = generator.integers(-1, 2, size).astype(np.int8)
        left = everything[~broken & np.all((signs == 0) | (everything == signs), axis=1)]
        derived = signs.copy()
        while True:
            before = derived.copy()
            if not clauses.propagate(derived):
                assert not left.size
                break
            if np.array_equal(before, derived):
                assert np.all(left[:, derived != 0] == derived[derived != 0])
                break


def test_the_same_clause_is_kept_once_and_counted() -> None:
    clauses = ClauseSet()
    assert clauses.add(np.array([4, 1, 7]))
    used = clauses.bytes
    assert not clauses.add(np.array([7, 4, 1]))
    assert (len(clauses), clauses.bytes) == (1, used)
    assert used > 0
