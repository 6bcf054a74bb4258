"""Conflict-driven search: decide, propagate, learn from conflicts, start again.

A conflict is resolved with reasons up to the first literal of its level that alone, together with
earlier levels, implies it (the first unique implication point).  The *glue* of a clause is the
number of levels of its literals.
"""

from __future__ import annotations

import numba
import numpy as np

from bnncert.engine.search.learning.explanation_loop import IN_CLAUSE, explain, minimise
from bnncert.engine.search.learning.solver_state import NONE
from bnncert.engine.search.learning.trail_loop import assign, go_back, most_active, propagate, rise

#: Answers of `search`: nothing is known yet, signs that satisfy everything, none exist, and there
#: is no room for another clause.
OPEN, SATISFIED, REFUTED, FULL = 0, 1, -1, 2

#: Clauses with at most this glue are kept for ever.
GOOD = 2

#: Uses of literals in rows that a search visits before it returns: some hundredths of a second.
VISITS = 10**7


@numba.njit(cache=True, nogil=True, _nrt=False)
def watch_clause(state, clause):
    """Let a clause watch its first two literals."""
    for k in range(2):
        node, literal = 2 * clause + k, state.literals[state.clause_start[clause] + k]
        state.watch[node, 0], state.watch[node, 1] = literal, state.first_watch[literal]
        state.first_watch[literal] = node


@numba.njit(cache=True, nogil=True, _nrt=False)
def add_clause(state, literals, size, glue):
    """Add a clause of at least two literals that watches the first two; return its number."""
    number = state.number
    clause, begin = number.clauses, number.literals
    for k in range(size):
        state.literals[begin + k] = literals[k]
    state.clause_start[clause], state.clause_size[clause] = begin, size
    state.clause_glue[clause], state.clause_place[clause] = glue, 0
    watch_clause(state, clause)
    number.clauses, number.literals = clause + 1, begin + size
    return clause


@numba.njit(cache=True, nogil=True, _nrt=False)
def state_clause(state, literals):
    """Add a clause that holds; all decisions are taken back.  Return False if none can hold."""
    go_back(state, np.int64(0))
    count = literals.size
    # Literals that may hold come first.
    free = 0
    for k in range(count):
        literal = literals[k]
        if state.value[literal] >= 0:
            literals[k], literals[free] = literals[free], literal
            free += 1
    if free > 1:
        add_clause(state, literals, count, np.int64(0))
    elif free == 1 and state.value[literals[0]] == 0:
        assign(state, literals[0], np.int64(NONE))
    return free > 0


@numba.njit(cache=True, nogil=True, _nrt=False)
def bump(state, variable):
    """Make a variable more active."""
    activity, number = state.activity, state.number
    activity[variable] += number.bump
    if activity[variable] > 1e100:
        activity *= 1e-100
        number.bump *= 1e-100
    if state.where[variable] >= 0:
        rise(state, np.int64(state.where[variable]))


@numba.njit(cache=True, nogil=True, _nrt=False)
def analyse(state, conflict):
    """Write the learned clause to `state.learned`, its own literal first; return its size and glue.

    The second literal is one of the level to go back to.
    """
    number, level, seen, reasons = state.number, state.level, state.seen, state.reasons
    learned, marked, trail, stamp = state.learned, state.marked, state.trail, state.stamp
    depth, size, open_, last, why = number.level, 1, 0, number.trail - 1, conflict
    holds = NONE
    while True:
        end = explain(state, np.int64(why), np.int64(holds), np.int64(0))
        for k in range(end):
            literal = reasons[k]
            variable = literal >> 1
            if seen[variable] == 0:
                seen[variable] = IN_CLAUSE
                bump(state, variable)
                if level[variable] == depth:
                    open_ += 1
                else:
                    learned[size] = literal
                    size += 1
        while seen[trail[last] >> 1] == 0:
            last -= 1
        holds = trail[last]
        last -= 1
        open_ -= 1
        if open_ == 0:
            break
        why = state.reason[holds >> 1]
    learned[0] = holds ^ 1
    for k in range(last + 1, number.trail):
        seen[trail[k] >> 1] = 0
    seen[holds >> 1] = IN_CLAUSE
    number.stamp += 1
    for k in range(size):
        marked[k] = learned[k] >> 1
        if k:
            stamp[level[marked[k]]] = number.stamp
    number.marked = size
    size = minimise(state, np.int64(size))
    for k in range(number.marked):
        seen[marked[k]] = 0
    glue, top, second = 1, 0, 1
    number.stamp += 1
    for k in range(1, size):
        own = level[learned[k] >> 1]
        if stamp[own] != number.stamp:
            stamp[own] = number.stamp
            glue += 1
        if own > top:
            top, second = own, k
    if size > 1:
        learned[1], learned[second] = learned[second], learned[1]
    return size, glue


@numba.njit(cache=True, nogil=True, _nrt=False)
def learn(state, size, glue):
    """Go back to where the learned clause implies its first literal, and assign it."""
    number, learned, log = state.number, state.learned, state.log
    if log.size:
        end = number.logged
        log[end] = size
        for k in range(size):
            log[end + 1 + k] = learned[k]
        number.logged = end + 1 + size
    if size == 1:
        go_back(state, np.int64(0))
        assign(state, learned[0], np.int64(NONE))
    else:
        go_back(state, np.int64(state.level[learned[1] >> 1]))
        assign(state, learned[0], 2 * add_clause(state, learned, size, glue))
    number.bump *= number.decay
    number.learned += 1
    number.since += 1
    number.recent += number.recently * (glue - number.recent)
    # In the beginning the average of all is that of those so far.
    number.always += max(number.ever, 1.0 / number.learned) * (glue - number.always)


@numba.njit(cache=True, nogil=True, _nrt=True)
def reduce_clauses(state):
    """Forget half of the learned clauses, those of large glue, and those that always hold.

    All decisions have been taken back, so that no clause is a reason that is needed.
    """
    number, literals = state.number, state.literals
    first, count = number.first, number.clauses
    glues = np.sort(state.clause_glue[first:count])
    cut = max(GOOD, glues[int(glues.size * state.number.kept)]) if glues.size else GOOD
    middle = first + int((count - first) * (state.number.kept))
    new, end = 0, 0
    for clause in range(count):
        glue, begin = state.clause_glue[clause], state.clause_start[clause]
        size = state.clause_size[clause]
        if clause >= first and (glue > cut or (glue == cut and cut > GOOD and clause < middle)):
            continue
        satisfied = False
        for k in range(begin, begin + size):
            if state.value[literals[k]] > 0:
                satisfied = True
                break
        if satisfied:
            if clause < first:
                number.first -= 1
            continue
        # The first two of its literals that may hold are watched.
        watched = 0
        for k in range(size):
            literals[end + k] = literals[begin + k]
        for k in range(end, end + size):
            literal = literals[k]
            if watched < 2 and state.value[literal] == 0:
                literals[k], literals[end + watched] = literals[end + watched], literal
                watched += 1
        state.clause_start[new], state.clause_size[new] = end, size
        state.clause_glue[new], state.clause_place[new] = glue, 0
        end += size
        new += 1
    number.clauses, number.literals = new, end
    state.first_watch[:] = NONE
    for clause in range(new):
        watch_clause(state, clause)


@numba.njit(cache=True, nogil=True, _nrt=False)
def search(state, conflicts):
    """Search until so many conflicts have been found; return one of the answers above.

    In large networks it returns earlier, after about `VISITS` visits of rows.
    """
    number = state.number
    variables = state.level.size
    most_clauses, most_literals = (state.clause_start.size - 1, state.literals.size - variables - 1)
    most_logged = state.log.size - variables - 2
    last = number.conflicts + conflicts
    assigned, most_assigned = 0, VISITS * variables // (state.use_row.size + 1)
    while True:
        before = number.trail
        conflict = propagate(state)
        assigned += number.trail - before
        full = number.clauses >= most_clauses or number.literals >= most_literals
        if conflict != NONE:
            number.conflicts += 1
            if number.level == 0:
                return REFUTED
            if full or number.logged > most_logged > 0:
                # The conflict comes again after clauses have been forgotten or the log is empty.
                go_back(state, np.int64(0))
                if not full:
                    return OPEN
                continue
            size, glue = analyse(state, conflict)
            learn(state, size, glue)
            continue
        if full or (number.recent > number.worse * number.always and number.since > number.fewest):
            go_back(state, np.int64(0))
            number.since = 0
            often = number.reduce + number.reduce_more * number.reductions
            if full or number.learned - number.reduced > often:
                number.reduced = number.learned
                number.reductions += 1
                reduce_clauses(state)
            if number.clauses > most_clauses // 2 or number.literals > most_literals // 2:
                return FULL
            continue
        if number.conflicts >= last or assigned > most_assigned:
            return OPEN
        variable = NONE
        while number.heap > 0:
            top = most_active(state)
            if state.value[2 * top] == 0:
                variable = top
                break
        if variable == NONE:
            return SATISFIED
        number.level += 1
        state.limit[number.level] = number.trail
        assign(state, np.int32(2 * variable + state.phase[variable]), np.int64(NONE))
