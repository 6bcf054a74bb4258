"""The state of the solver as arrays, which its compiled loops read and change.

Literal 2v says that variable v is +1 and 2v + 1 that it is -1, as in `presolve.literals`.  A *row*
says that its head, a literal, holds, or else a linear inequality  sum_i a_i [l_i holds] >= d  with
integers a_i > 0; a row without a head is the inequality.  A clause is a list of literals of which
one holds.

What implied a literal is one number: 2c for clause c, 2r + 1 for row r, and NONE for a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray

#: No reason, no clause, no lemma.
NONE = -1

#: Heads (NONE: no head), where each row begins, literals, coefficients, and limits d.
Rows: TypeAlias = tuple[IntArray, IntArray, IntArray, IntArray, IntArray]

#: The numbers of a state: sizes of its lists, and counts.
COUNTS = [
    "trail",
    "level",
    "head",
    "queue",
    "heap",
    "clauses",
    "literals",
    "first",
    "conflicts",
    "since",
    "reduced",
    "learned",
    "stamp",
    "logged",
    "reductions",
    "marked",
]

#: The increment of activities, averages of glues, recent and of all time, and the settings: the
#: growth of the increment with each conflict; the weight of a new glue in both averages; by which
#: factor recent glues are larger and how many conflicts have passed before a restart; the conflicts
#: before clauses are forgotten, how this number grows, and the share that is kept.
REALS = {
    **{"bump": 1.0, "recent": 0.0, "always": 0.0, "decay": 1 / 0.95, "recently": 1 / 32},
    **{"ever": 1 / 8192, "worse": 1.15, "fewest": 10.0, "reduce": 3000.0, "reduce_more": 400.0},
    "kept": 0.5,
}

#: Bytes of a state for each literal of a row.
PER_ENTRY = 28

#: Entries of the buffer for the log of learned clauses.
BUFFER = 2**20

#: The longest chain of implications by which a literal is found to be superfluous.
LONGEST_CHAIN = 60


class SolverState(NamedTuple):
    """All arrays; numba compiles the access to a field."""

    number: Any  #: a record of the numbers above
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
    kinds = [(name, np.int64) for name in COUNTS] + [(name, np.float64) for name in REALS]
    number = np.rec.array([(0,) * len(COUNTS) + tuple(REALS.values())], dtype=kinds)[0]
    # Every row is looked at in the beginning.
    number.queue, number.heap = count, variables
    longest = int(np.diff(start).max(initial=0))

    def of(length: int, kind: Any = np.int32) -> Any:
        return np.zeros(length, dtype=kind)

    return SolverState(
        number=number,
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


@dataclass(eq=False)
class ProofLog:
    """All learned clauses so far, in the order in which each follows from those before it.

    The solver writes into a small buffer, which is emptied between slices.
    """

    parts: list[IntArray] = field(default_factory=list)
    entries: int = 0
    lost: bool = False

    def take(self, state: SolverState, most: float) -> None:
        """Empty the buffer of the solver; a log of more than `most` bytes is given up."""
        self.entries += int(state.number.logged)
        if 4.0 * self.entries > most:
            self.parts, self.lost = [], True
        elif not self.lost:
            self.parts.append(state.log[: state.number.logged].copy())
        state.number.logged = 0

    def lemmas(self) -> list[IntArray]:
        """Return the learned clauses."""
        found = []
        for part in self.parts:
            place = 0
            while place < part.size:
                found.append(part[place + 1 : place + 1 + part[place]])
                place += 1 + part[place]
        return found
