"""The loop over the clauses of a refutation, compiled by numba.

Literals that are false are taken off the slacks of their inequalities, and added again when they
are forgotten.  A clause of two or more literals is watched by the first two of them, which are not
both false unless the other literals are; every literal has a linked list of the clauses that it
watches.  What is known without any assumption is never forgotten.

`tables` are the inequalities by rows (start, literals, weights, the heaviest one) and by literals
(start, rows, weights).  `state` are the values of
literals (1: true, -1: false), the trail, the slacks, the first watch of each literal and counters;
`kept` are the literals of clauses, where each begins, and the watch that follows each.
"""

from __future__ import annotations

import numba

from bnncert.kernel.budget import CompiledFunction

#: Places of the counters: the literals of the trail, those that are propagated, those without an
#: assumption, the number of kept clauses, their literals, the clause that is read, what is done
#: with it, and whether there is a contradiction.
TRAIL, DONE, ROOT, CLAUSES, LITERALS, CLAUSE, STAGE, REFUTED, COUNTERS = range(9)

#: Stages: all inequalities are looked at, a clause is assumed to be false, propagation from that,
#: the clause is known.
BEGIN, ASSUME, REFUTE, KNOWN = range(4)

#: Answers: a clause does not follow, all do, or there is more to do.
OPEN, FINE, PAUSE = range(3)

#: Steps after which the clock is read.
STEPS = 2**23


@numba.njit(cache=True, nogil=True)
def _set(state, true):
    value, trail, _, _, counters = state
    value[true], value[true ^ 1] = 1, -1
    trail[counters[TRAIL]] = true
    counters[TRAIL] += 1


@numba.njit(cache=True, nogil=True)
def _look(tables, state, row):
    """Set the literals of an inequality that have to be true; False: it cannot hold."""
    (start, literals, weights), value, slack = tables[:3], state[0], state[2][row]
    for k in range(start[row], start[row + 1]):
        if weights[k] <= slack:
            break
        if value[literals[k]] == 0:
            _set(state, literals[k])
    return slack >= 0


@numba.njit(cache=True, nogil=True)
def _visit(state, kept, false):
    """Look at the clauses that a false literal watches; return the steps, negative if one fails."""
    value, first, (literals, start, following) = state[0], state[3], kept
    steps, before, watch = 1, -1, first[false]
    while watch >= 0:
        clause, after = watch >> 1, following[watch]
        begin = start[clause]
        other, found = literals[begin + 1 - (watch & 1)], False
        steps += 1
        if value[other] != 1:
            for k in range(begin + 2, start[clause + 1]):
                steps += 1
                if value[literals[k]] >= 0:
                    # That literal watches the clause instead.
                    new, found = literals[k], True
                    literals[k], literals[begin + (watch & 1)] = false, new
                    following[watch], first[new] = first[new], watch
                    if before < 0:
                        first[false] = after
                    else:
                        following[before] = after
                    break
            if not found and value[other] < 0:
                return -steps
            if not found:
                _set(state, other)
        before, watch = before if found else watch, after
    return steps


@numba.njit(cache=True, nogil=True)
def _propagate(tables, state, kept, limit):
    """Propagate until nothing follows (OPEN), a conflict (FINE) or PAUSE; tell the steps, too."""
    heaviest, occurs, rows, costs = tables[3:]
    (_, trail, slack, _, counters), steps = state, 0
    while counters[DONE] < counters[TRAIL]:
        if steps > limit:
            return PAUSE, steps
        true = trail[counters[DONE]]
        visited = _visit(state, kept, true ^ 1)
        if visited < 0:
            return FINE, steps - visited
        counters[DONE] += 1
        begin, end, fine = occurs[true ^ 1], occurs[(true ^ 1) + 1], True
        steps += visited + end - begin
        for k in range(begin, end):
            row = rows[k]
            slack[row] -= costs[k]
            if slack[row] < heaviest[row] and fine:
                fine = _look(tables, state, row)
        if not fine:
            return FINE, steps
    return OPEN, steps


@numba.njit(cache=True, nogil=True)
def _undo(tables, state):
    """Forget what follows from an assumption."""
    occurs, rows, costs = tables[4:]
    value, trail, slack, _, counters = state
    for place in range(counters[ROOT], counters[TRAIL]):
        false = trail[place] ^ 1
        value[false] = value[false ^ 1] = 0
        if place < counters[DONE]:
            for k in range(occurs[false], occurs[false + 1]):
                slack[rows[k]] += costs[k]
    counters[TRAIL], counters[DONE] = counters[ROOT], min(counters[DONE], counters[ROOT])


@numba.njit(cache=True, nogil=True)
def _assume(state, kept, clause):
    """Write a clause without literals that are false, and set the opposites of the others."""
    (literals, start, _), value, counters = kept, state[0], state[4]
    place, counters[ROOT] = counters[LITERALS], counters[TRAIL]
    for literal in clause:
        if value[literal] == 1:
            return False
        if value[literal] == 0:
            literals[place] = literal
            place += 1
            _set(state, literal ^ 1)
    start[counters[CLAUSES] + 1] = place
    return True


@numba.njit(cache=True, nogil=True)
def _keep(state, kept):
    """Keep the clause that was written after the last one, whose literals are all open."""
    (literals, start, following), first, counters = kept, state[3], state[4]
    begin, clause = counters[LITERALS], counters[CLAUSES]
    size = start[clause + 1] - begin
    if size == 0:
        counters[REFUTED] = 1
    elif size == 1:
        _set(state, literals[begin])
    else:
        for side in range(2):
            literal, watch = literals[begin + side], 2 * clause + side
            following[watch], first[literal] = first[literal], watch
        counters[LITERALS], counters[CLAUSES] = begin + size, clause + 1


@numba.njit(cache=True, nogil=True)
def follow(tables, state, kept, start, literals, proved):
    """Add clauses in turn, until one does not follow or the clock should be read.

    Without `proved` they are known to hold.
    """
    counters, left = state[4], STEPS
    if counters[STAGE] == BEGIN:
        for row in range(tables[0].size - 1):
            if not _look(tables, state, row):
                counters[REFUTED] = 1
        counters[STAGE], counters[CLAUSE] = KNOWN, -1
    while not counters[REFUTED]:
        if counters[STAGE] == KNOWN:
            answer, steps = _propagate(tables, state, kept, left)
            left -= steps
            if answer == PAUSE:
                return PAUSE
            counters[REFUTED] = answer == FINE
            counters[STAGE] = ASSUME
            counters[CLAUSE] += 1
        elif counters[CLAUSE] == start.size - 1:
            break
        elif counters[STAGE] == ASSUME:
            clause = literals[start[counters[CLAUSE]] : start[counters[CLAUSE] + 1]]
            left -= clause.size
            counters[STAGE] = REFUTE
            if not _assume(state, kept, clause):
                _undo(tables, state)
                counters[STAGE] = KNOWN
        else:
            if proved:
                answer, steps = _propagate(tables, state, kept, left)
                left -= steps
                if answer != FINE:
                    return answer
            _undo(tables, state)
            _keep(state, kept)
            counters[STAGE] = KNOWN
    return FINE


#: `follow`, whose first call keeps the time limit.
timely_follow = CompiledFunction(follow)
