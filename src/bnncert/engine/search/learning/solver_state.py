"""The state of the solver as arrays, which its compiled loops read and change.

Literal 2v says that variable v is +1 and 2v + 1 that it is -1, as in `presolve.literals`.  A *row*
says that its head, a literal, holds, or else a linear inequality  sum_i a_i [l_i holds] >= d  with
integers a_i > 0; a row without a head is the inequality.  A clause is a list of literals of which
one holds.

What implied a literal is one number: 2c for clause c, 2r + 1 for row r, and NONE for a decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray

#: No reason, no clause, no lemma.
NONE = -1

#: Heads (NONE: no head), where each row begins, literals, coefficients, and limits d.
Rows: TypeAlias = tuple[IntArray, IntArray, IntArray, IntArray, IntArray]

#: Places of numbers of the state: sizes of the lists, and counts.
TRAIL, LEVEL, HEAD, QUEUE, HEAP, CLAUSES, LITERALS, FIRST = range(8)
CONFLICTS, SINCE, REDUCED, LEARNED, STAMP, LOGGED, REDUCTIONS, MARKED = range(8, 16)
NUMBERS = 16

#: Places of floats: the increment of activities, averages of glues, recent and of all time, and the
#: settings.
BUMP, RECENT, ALWAYS, DECAY, RECENTLY, EVER, WORSE, FEWEST, REDUCE, REDUCE_MORE, KEPT = range(11)

#: The growth of the increment with each conflict; the weight of a new glue in both averages; by
#: which factor recent glues are larger and how many conflicts have passed before a restart; the
#: conflicts before clauses are forgotten, how this number grows, and the share that is kept.
SETTINGS = [1 / 0.95, 1 / 32, 1 / 8192, 1.15, 10, 3000, 400, 0.5]

#: Bytes of a state for each literal of a row.
PER_ENTRY = 28

#: The longest chain of implications by which a literal is found to be superfluous.
LONGEST_CHAIN = 60


class SolverState(NamedTuple):
    """All arrays; numba compiles the access to a field."""

    number: Any  #: see above
    real: Any
    value: Any  #: of each literal: 1 holds, -1 does not hold, 0 open
    level: Any  #: of each variable: the number of decisions before it
    place: Any  #: of each variable: its place in the trail
    reason: Any
    trail: Any  #: literals that hold, in the order of time
    limit: Any  #: where each level begins in the trail
    phase: Any  #: of each variable: the sign bit that a decision takes
    activity: Any
    heap: Any  #: variables, the most active one first
    where: Any  #: of each variable: its place in the heap, or NONE
    row_head: Any  #: of each row, or NONE
    row_start: Any
    row_literal: Any  #: of each row, largest coefficients first
    row_size: Any
    use_start: Any  #: of each literal: its uses in rows, with coefficient 0 as a head
    use_row: Any
    use_size: Any
    gap: Any  #: of each row: how much of the sum may be lost before a literal is implied
    room: Any  #: of each row: how much of the sum may be lost before any decision
    largest: Any  #: of each row: its largest coefficient
    queue: Any  #: rows that may imply something
    queued: Any
    clause_start: Any
    clause_size: Any
    clause_glue: Any
    clause_place: Any  #: where the last search for a literal that may hold ended
    literals: Any  #: of all clauses
    watch: Any  #: rows (literal, next watch), two for each clause one after the other
    first_watch: Any  #: of each literal
    seen: Any
    stamp: Any
    reasons: Any  #: the literals of an explanation, and of those below it
    chosen: Any  #: candidates for an explanation
    chain: Any  #: reasons of reasons that are looked at, in a chain
    learned: Any  #: the clause that is being learned
    marked: Any  #: variables whose marks are removed in the end
    log: Any  #: all learned clauses, each after its size, until they are taken


def make_state(
    variables: int,
    rows: Rows,
    phase: IntArray,
    activity: FloatArray,
    *,
    clauses: int,
    literals: int,
    log: int,
) -> SolverState:
    """Return the state before the first decision.

    Parameters
    ----------
    rows
        The rows; the coefficients of each sum up to less than 2^30.
    phase, activity
        The sign bit that each variable takes first, and its activity.
    clauses, literals, log
        The room for clauses, for their literals, and for the log of the proof (0 for none), which
        has room for one clause more.
    """
    head, start, literal, size, limit = rows
    count = limit.size
    owner = np.repeat(np.arange(count), np.diff(start))
    # A coefficient above d has the same effect as d.
    size = np.minimum(size, limit[owner])
    order = np.lexsort((-size, owner))
    literal, size = literal[order], size[order]
    sums, largest = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(sums, owner, size)
    np.maximum.at(largest, owner, size)
    headed = np.flatnonzero(head >= 0)
    used = np.concatenate([literal, head[headed]])
    by_literal = np.argsort(used, kind="stable")
    uses = np.concatenate([[0], np.cumsum(np.bincount(used, minlength=2 * variables))])
    heap = np.argsort(-activity, kind="stable").astype(np.int32)
    where = np.empty(variables, dtype=np.int32)
    where[heap] = np.arange(variables)
    number = np.zeros(NUMBERS, dtype=np.int64)
    # Every row is looked at in the beginning.
    number[[QUEUE, HEAP]] = count, variables
    longest = int(np.diff(start).max(initial=0))

    def of(length: int, kind: Any = np.int32) -> Any:
        return np.zeros(length, dtype=kind)

    return SolverState(
        number=number,
        real=np.array([1.0, 0.0, 0.0, *SETTINGS]),
        value=of(2 * variables, np.int8),
        level=of(variables),
        place=of(variables),
        reason=np.full(variables, NONE, dtype=np.int32),
        trail=of(variables + 1),
        limit=of(variables + 2),
        phase=phase.astype(np.int8),
        activity=activity.astype(np.float64),
        heap=heap,
        where=where,
        row_head=head.astype(np.int32),
        row_start=start.astype(np.int32),
        row_literal=literal.astype(np.int32),
        row_size=size.astype(np.int32),
        use_start=uses.astype(np.int32),
        use_row=np.concatenate([owner, headed])[by_literal].astype(np.int32),
        use_size=np.concatenate([size, 0 * headed])[by_literal].astype(np.int32),
        gap=(sums - limit - largest).astype(np.int32),
        room=(sums - limit).astype(np.int32),
        largest=largest.astype(np.int32),
        queue=np.arange(count, dtype=np.int32),
        queued=np.ones(count, dtype=np.int8),
        clause_start=of(clauses),
        clause_size=of(clauses),
        clause_glue=of(clauses),
        clause_place=of(clauses),
        literals=of(literals),
        watch=np.zeros((2 * clauses, 2), dtype=np.int32),
        first_watch=np.full(2 * variables, NONE, dtype=np.int32),
        seen=of(variables, np.int8),
        stamp=of(variables + 2, np.int64),
        reasons=of(8 * (variables + longest) + 1024),
        chosen=of(longest + 1),
        chain=np.zeros((LONGEST_CHAIN, 3), dtype=np.int32),
        learned=of(variables + 2),
        marked=of(2 * variables + 2),
        log=of(log + variables + 3 if log else 0),
    )


def with_more_room(state: SolverState) -> SolverState:
    """Return the state with twice the room for clauses."""

    def grown(array: Any) -> Any:
        more = np.zeros((2 * array.shape[0], *array.shape[1:]), dtype=array.dtype)
        more[: array.shape[0]] = array
        return more

    names = ("start", "size", "glue", "place")
    fields = {f"clause_{name}": grown(getattr(state, f"clause_{name}")) for name in names}
    return state._replace(**fields, literals=grown(state.literals), watch=grown(state.watch))
