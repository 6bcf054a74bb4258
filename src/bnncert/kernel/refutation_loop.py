"""The loop over the clauses of a refutation, for Python and, with arrays, for numba.

A literal that becomes false is taken off the slacks of its inequalities, and added again when it is
forgotten.  A clause of two or more literals is watched by the first two of them, which are not both
false unless the other literals are; every literal has a linked list of the clauses that it watches.
What is known without any assumption is never forgotten.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from bnncert.kernel.budget import CompiledFunction

#: Places of the counters: the literals of the trail, those that are propagated, those without an
#: assumption, the clauses that are kept, the clause that is read (-1: none yet), whether it is
#: assumed to be false, whether there is a contradiction, and the steps until the clock is read.
TRAIL, DONE, ROOT, CLAUSES, CLAUSE, ASSUMED, REFUTED, LEFT, COUNTERS = range(9)

#: Answers: a clause does not follow, all do, or there is more to do.
OPEN, FINE, PAUSE = range(3)


class State(NamedTuple):
    """Lists of Python's integers, or arrays."""

    start: Any  #: where each inequality begins
    literals: Any  #: those of inequalities, the heaviest first
    weights: Any
    occurs: Any  #: where the inequalities of each literal begin
    rows: Any  #: the inequalities of literals
    costs: Any  #: the weights of literals in them
    slack: Any
    value: Any  #: 1 if the literal is true, -1 if it is false
    trail: Any  #: true literals, one after the other
    first: Any  #: the first watch of each literal; watch 2 c + k is literal k of clause c
    counters: Any
    begin: Any  #: where each clause begins
    members: Any  #: the literals of clauses
    following: Any  #: the watch that follows each


def _set(s: Any, true: Any) -> None:
    s.value[true], s.value[true ^ 1] = 1, -1
    s.trail[s.counters[TRAIL]] = true
    s.counters[TRAIL] += 1


def _look(s: Any, row: Any) -> Any:
    """Set the literals of an inequality that have to be true; False: it cannot hold."""
    for k in range(s.start[row], s.start[row + 1]):
        if s.weights[k] <= s.slack[row]:
            break
        if s.value[s.literals[k]] == 0:
            _set(s, s.literals[k])
    return s.slack[row] >= 0


def _visit(s: Any, false: Any) -> Any:
    """Look at the clauses that a false literal watches; False: one cannot hold."""
    watch, s.first[false], fine = s.first[false], -1, True
    while watch >= 0:
        begin, end = s.begin[watch >> 1], s.begin[(watch >> 1) + 1]
        mine, other, new = begin + (watch & 1), s.members[begin + 1 - (watch & 1)], false
        s.counters[LEFT] -= 1
        if s.value[other] != 1:
            for k in range(begin + 2, end):
                s.counters[LEFT] -= 1
                if s.value[s.members[k]] >= 0:
                    # That literal watches the clause instead.
                    new = s.members[k]
                    s.members[k], s.members[mine] = false, new
                    break
            if new == false and s.value[other] == 0:
                _set(s, other)
            fine = fine and (new != false or s.value[other] == 1)
        after, s.following[watch], s.first[new] = s.following[watch], s.first[new], watch
        watch = after
    return fine


def _propagate(s: Any) -> Any:
    """Propagate until nothing follows (OPEN), a conflict (FINE), or no steps are left (PAUSE)."""
    counters, fine = s.counters, True
    while fine and counters[DONE] < counters[TRAIL]:
        if counters[LEFT] < 0:
            return PAUSE
        false = s.trail[counters[DONE]] ^ 1
        fine = _visit(s, false)
        if fine:
            counters[DONE] += 1
            counters[LEFT] -= s.occurs[false + 1] - s.occurs[false]
            for k in range(s.occurs[false], s.occurs[false + 1]):
                s.slack[s.rows[k]] -= s.costs[k]
                fine = fine and _look(s, s.rows[k])
    return OPEN if fine else FINE


def _undo(s: Any) -> None:
    """Forget what follows from an assumption."""
    counters = s.counters
    for place in range(counters[ROOT], counters[TRAIL]):
        false = s.trail[place] ^ 1
        s.value[false] = s.value[false ^ 1] = 0
        if place < counters[DONE]:
            for k in range(s.occurs[false], s.occurs[false + 1]):
                s.slack[s.rows[k]] += s.costs[k]
    counters[TRAIL], counters[DONE] = counters[ROOT], min(counters[DONE], counters[ROOT])


def _assume(s: Any, clause: Any) -> None:
    """Write a clause without literals that are false, and set the opposites of the others."""
    counters = s.counters
    place, counters[ROOT], counters[ASSUMED] = s.begin[counters[CLAUSES]], counters[TRAIL], 1
    for literal in clause:
        if s.value[literal] == 1:
            # It holds already, or has two opposite literals.
            counters[ASSUMED] = 0
            _undo(s)
            break
        if s.value[literal] == 0:
            s.members[place] = literal
            place += 1
            _set(s, literal ^ 1)
    s.begin[counters[CLAUSES] + 1] = place


def _keep(s: Any) -> None:
    """Keep the clause that was written after the last one, whose literals are all open."""
    clause = s.counters[CLAUSES]
    begin = s.begin[clause]
    if s.begin[clause + 1] == begin + 1:
        _set(s, s.members[begin])
    else:
        for watch in range(2 * clause, 2 * clause + 2):
            literal = s.members[begin + (watch & 1)]
            s.following[watch], s.first[literal] = s.first[literal], watch
        s.counters[CLAUSES] += 1


def follow(s: Any, start: Any, literals: Any, steps: Any) -> Any:
    """Keep clauses in turn, until one does not follow or the clock should be read."""
    counters = s.counters
    counters[LEFT] = steps
    if counters[CLAUSE] < 0:
        counters[CLAUSE] = 0
        for row in range(len(s.start) - 1):
            if not _look(s, row):
                counters[REFUTED] = 1
    while not counters[REFUTED]:
        answer = _propagate(s)
        if answer == PAUSE or (answer == OPEN and counters[ASSUMED]):
            return answer
        if counters[ASSUMED]:
            counters[ASSUMED] = 0
            _undo(s)
            _keep(s)
        elif answer == FINE:
            counters[REFUTED] = 1
        elif counters[CLAUSE] == len(start) - 1:
            break
        else:
            clause = literals[start[counters[CLAUSE]] : start[counters[CLAUSE] + 1]]
            counters[CLAUSE] += 1
            counters[LEFT] -= len(clause)
            _assume(s, clause)
    return FINE


@cache
def compiled_follow() -> CompiledFunction:
    """Compile `follow` for arrays; its first call keeps the time limit."""
    # Imported on use: numba takes a third of a second to import.
    from numba import njit
    from numba.extending import register_jitable

    for part in (_set, _look, _visit, _propagate, _undo, _assume, _keep):
        register_jitable(part)
    return CompiledFunction(njit(cache=True, nogil=True)(follow))
