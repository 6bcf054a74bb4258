"""The solver against enumeration: random rows and clauses over few variables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bnncert.engine.search.learning.conflict_loop import REFUTED, SATISFIED, search, state_clause
from bnncert.engine.search.learning.solver_state import NONE, ProofLog, SolverState, make_state
from bnncert.kernel.refutation import Facts, _clauses
from bnncert.kernel.sparse import SparseRows
from tests.kernel.refutations import outcome, starts

VARIABLES = 7

Row = tuple[int, list[tuple[int, int]], int]


def random_question(rng: np.random.Generator) -> tuple[list[Row], list[list[int]]]:
    """Return rows (head, literals with coefficients, limit) and clauses."""
    rows: list[Row] = []
    for _ in range(int(rng.integers(1, 9))):
        chosen = rng.permutation(VARIABLES)[: int(rng.integers(2, VARIABLES + 1))]
        literals = (2 * chosen + rng.integers(0, 2, chosen.size)).tolist()
        head = literals.pop() if rng.random() < 0.8 else NONE
        sizes = rng.integers(1, 2 if rng.random() < 0.5 else 5, len(literals)).tolist()
        limit = int(rng.integers(1, sum(sizes) + 2))
        rows.append((head, list(zip(literals, sizes, strict=True)), limit))
    clauses = []
    for _ in range(int(rng.integers(0, 8))):
        chosen = rng.permutation(VARIABLES)[: int(rng.integers(1, 4))]
        clauses.append((2 * chosen + rng.integers(0, 2, chosen.size)).tolist())
    return rows, clauses


def holds(signs: tuple[int, ...], literal: int) -> bool:
    """Whether a literal holds; signs[v] is its sign bit."""
    return signs[literal >> 1] == literal & 1


def solutions(rows: list[Row], clauses: list[list[int]]) -> list[tuple[int, ...]]:
    """Return all sign bits that satisfy everything, from the definition."""
    return [
        signs
        for signs in product((0, 1), repeat=VARIABLES)
        if all(any(holds(signs, x) for x in clause) for clause in clauses)
        and all(
            (head != NONE and holds(signs, head))
            or sum(size for x, size in terms if holds(signs, x)) >= limit
            for head, terms, limit in rows
        )
    ]


def started(rows: list[Row], *, log: int, clauses: int = 64) -> SolverState:
    """Return the state of the solver for rows."""
    start = np.cumsum([0, *(len(terms) for _, terms, _ in rows)])
    made = (
        np.array([head for head, _, _ in rows], dtype=np.int64),
        start,
        np.array([x for _, terms, _ in rows for x, _ in terms], dtype=np.int64),
        np.array([size for _, terms, _ in rows for _, size in terms], dtype=np.int64),
        np.array([limit for _, _, limit in rows], dtype=np.int64),
    )
    phase = np.zeros(VARIABLES, dtype=np.int64)
    return make_state(
        VARIABLES, made, phase, np.zeros(VARIABLES), clauses=clauses, literals=1024, log=log
    )


def facts_of(rows: list[Row], clauses: list[list[int]]) -> Facts:
    """Return rows and clauses as the checker's."""
    parts = [_clauses(*starts(clauses))]
    for head, terms, limit in rows:
        literals, sizes = (np.array(part, dtype=np.int64) for part in zip(*terms, strict=True))
        start = np.array([0, literals.size])
        line = SparseRows(start, literals >> 1, np.where(literals & 1, -sizes, sizes), VARIABLES)
        # sum a [l] >= d for w.x = 2 sum a [l] - sum a.
        least = np.array([2 * limit - int(sizes.sum())])
        parts.append((line, least, np.array([head if head == NONE else head ^ 1])))
    return Facts.of(VARIABLES, parts)


@pytest.mark.parametrize("log", [0, 4096], ids=["plain", "logging"])
def test_answers_are_those_of_enumeration(log: int) -> None:
    """Also every lemma of a refutation follows, and they end with a contradiction."""
    rng, refuted, satisfied = np.random.default_rng(7), 0, 0
    for _ in range(1500):
        rows, clauses = random_question(rng)
        state, known = started(rows, log=log), solutions(rows, clauses)
        fine = all(state_clause(state, np.array(c, dtype=np.int32)) for c in clauses)
        answer = REFUTED
        while fine and (answer := search(state, 1)) not in (REFUTED, SATISFIED):
            pass
        if answer == SATISFIED:
            bits = tuple((state.value[2 * v] < 0) * 1 for v in range(VARIABLES))
            assert bits in known
            satisfied += 1
            continue
        assert not known
        refuted += 1
        if log:
            taken = ProofLog()
            taken.take(state, np.inf)
            lemmas = [lemma.tolist() for lemma in taken.lemmas()]
            assert outcome(facts_of(rows, clauses), lemmas, compiled=False) == "refuted"
    assert refuted > 200 and satisfied > 200


def test_all_solutions_are_found_one_after_the_other() -> None:
    """Each solution is excluded by a clause; the search ends when there is none left."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        rows, clauses = random_question(rng)
        state, known, found = started(rows, log=0, clauses=1024), solutions(rows, clauses), set()
        fine = all(state_clause(state, np.array(c, dtype=np.int32)) for c in clauses)
        while fine:
            answer = search(state, 10)
            if answer == REFUTED:
                break
            if answer == SATISFIED:
                bits = tuple((state.value[2 * v] < 0) * 1 for v in range(VARIABLES))
                assert bits not in found
                found.add(bits)
                other = np.array([2 * v + 1 - b for v, b in enumerate(bits)], dtype=np.int32)
                fine = state_clause(state, other)
        assert found == set(known)


def test_forgetting_clauses_changes_no_answer() -> None:
    """Eight pigeons, seven holes, with room for few clauses only."""
    pigeons, holes = 6, 5
    place = np.arange(pigeons * holes).reshape(pigeons, holes)
    rows = [(NONE, [(2 * v, 1) for v in line.tolist()], 1) for line in place]
    rows += [(NONE, [(2 * v + 1, 1) for v in line.tolist()], pigeons - 1) for line in place.T]
    start = np.cumsum([0, *(len(terms) for _, terms, _ in rows)])
    literals = np.array([x for _, terms, _ in rows for x, _ in terms], dtype=np.int64)
    made = (
        np.full(len(rows), NONE, dtype=np.int64),
        start,
        literals,
        np.ones(literals.size, dtype=np.int64),
        np.array([limit for _, _, limit in rows], dtype=np.int64),
    )
    count = pigeons * holes
    state = make_state(
        count, made, np.zeros(count, dtype=np.int64), np.zeros(count),
        clauses=40, literals=900, log=0,
    )  # fmt: skip
    state.number.first = 0
    answers = [search(state, 50)]
    while answers[-1] != REFUTED and len(answers) < 4000:
        answers.append(search(state, 50))
    assert answers[-1] == REFUTED
