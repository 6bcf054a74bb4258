"""Trimming of a refutation backwards, compiled by numba: only what the last conflict needs is kept.

First all clauses are added in order, with what they imply without any assumption, until there is a
conflict.  Then they are taken away in the opposite order.  One that is marked has to follow from
those before it: propagation from the opposites of its literals ends with a conflict, and every
clause that this conflict depends on is marked.  Clauses without a mark are never looked at.

Propagation is that of `kernel.refutation_loop`, whose tables it takes, with a reason for every
literal: 2 r for inequality r, 2 c + 1 for clause c, and NONE for an assumption.  Clauses that are
not marked come last, so that few more become marked.  `state` are the values of literals, the
trail, the place of each variable in it, the reasons, the slacks now and without an assumption, and
the first watches of each literal (row 1: of marked clauses).  `clauses` are their literals, where
each begins, the watch that follows each, the length of the trail before each, and marks.  `cone`
are two marks of each variable: its reason is needed, and all that its reason needs is marked
already.
"""

from __future__ import annotations

import numba

NONE = -1

#: Places of the counters: the literals of the trail, those that are propagated, those that are
#: propagated in clauses without a mark, the active clauses, the stage, and the steps that are left
#: before the clock should be read.
TRAIL, DONE, LATE, ACTIVE, STAGE, LEFT, COUNTERS = range(7)

#: Stages: clauses are added, clauses are taken away.
BEGIN, FORWARDS, BACKWARDS = range(3)

#: Answers: a clause does not follow, all is done, or there is more to do.
OPEN, FINE, PAUSE = range(3)

#: Steps after which the clock is read.
STEPS = 2**23


@numba.njit(cache=True, nogil=True, _nrt=False)
def _set(state, counters, true, reason):
    value, trail, place, reasons = state[:4]
    value[true], value[true ^ 1] = 1, -1
    trail[counters[TRAIL]] = true
    place[true >> 1], reasons[true >> 1] = counters[TRAIL], reason
    counters[TRAIL] += 1


@numba.njit(cache=True, nogil=True, _nrt=False)
def _look(tables, state, counters, row):
    """Set the literals of an inequality that have to be true; False: it cannot hold."""
    (start, literals, weights), value, slack = tables[:3], state[0], state[4][row]
    for k in range(start[row], start[row + 1]):
        if weights[k] <= slack:
            break
        if value[literals[k]] == 0:
            _set(state, counters, literals[k], 2 * row)
    return slack >= 0


@numba.njit(cache=True, nogil=True, _nrt=False)
def _visit(state, counters, clauses, false, mark):
    """Look at the clauses that a false literal watches; return one that fails, or NONE."""
    value, first = state[0], state[6]
    literals, start, following, _, marks = clauses
    before, watch = -1, first[mark, false]
    while watch >= 0:
        clause, after, stays, failed = watch >> 1, following[watch], False, False
        counters[LEFT] -= 1
        if clause < counters[ACTIVE]:
            begin = start[clause]
            other, new = literals[begin + 1 - (watch & 1)], false
            if value[other] != 1:
                for k in range(begin + 2, start[clause + 1]):
                    counters[LEFT] -= 1
                    if value[literals[k]] >= 0:
                        new = literals[k]
                        literals[k], literals[begin + (watch & 1)] = false, new
                        break
                if new == false:
                    failed = value[other] < 0
                    if not failed:
                        _set(state, counters, other, 2 * clause + 1)
            stays = new == false and marks[clause] == mark
            if not stays:
                following[watch], first[marks[clause], new] = first[marks[clause], new], watch
        if not stays and before < 0:
            first[mark, false] = after
        elif not stays:
            following[before] = after
        if failed:
            return clause
        before, watch = watch if stays else before, after
    return NONE


@numba.njit(cache=True, nogil=True, _nrt=False)
def _propagate(tables, state, counters, clauses):
    """Return the reason of a conflict, or NONE."""
    start, _, weights, occurs, rows, costs = tables
    trail, slack = state[1], state[4]
    while counters[LATE] < counters[TRAIL]:
        if counters[DONE] == counters[TRAIL]:
            failed = _visit(state, counters, clauses, trail[counters[LATE]] ^ 1, 0)
            if failed >= 0:
                return 2 * failed + 1
            counters[LATE] += 1
            continue
        true = trail[counters[DONE]]
        counters[DONE] += 1
        begin, end, failed = occurs[true ^ 1], occurs[(true ^ 1) + 1], NONE
        counters[LEFT] -= end - begin
        for k in range(begin, end):
            row = rows[k]
            slack[row] -= costs[k]
            # The heaviest literal comes first.
            if (
                slack[row] < weights[start[row]]
                and failed < 0
                and not _look(tables, state, counters, row)
            ):
                failed = row
        if failed >= 0:
            return 2 * failed
        failed = _visit(state, counters, clauses, true ^ 1, 1)
        if failed >= 0:
            return 2 * failed + 1
    return NONE


@numba.njit(cache=True, nogil=True, _nrt=False)
def _undo(tables, state, counters, cone, size):
    """Forget the literals after the first `size`."""
    occurs, rows, costs = tables[3:]
    value, trail, slack = state[0], state[1], state[4]
    for place in range(size, counters[TRAIL]):
        false = trail[place] ^ 1
        value[false] = value[false ^ 1] = 0
        cone[1, false >> 1] = 0
        if place < counters[DONE]:
            for k in range(occurs[false], occurs[false + 1]):
                slack[rows[k]] += costs[k]
    for k in (TRAIL, DONE, LATE):
        counters[k] = min(counters[k], size)


@numba.njit(cache=True, nogil=True, _nrt=False)
def _need_row(tables, state, cone, row, true, limit, root):
    """Mark literals of an inequality, false before place `limit`, that make it set a literal.

    They lose more than the slack without an assumption, less the weight of that literal (NONE: of
    nothing, for a conflict).  What is needed anyway or assumed comes first, then the first `root`
    literals, which need no assumption.
    """
    start, literals, weights = tables[:3]
    value, _, place, reasons, _, full, _ = state
    need = full[row]
    for k in range(start[row], start[row + 1]):
        if literals[k] == true:
            need -= weights[k]
    for turn in range(3):
        for k in range(start[row], start[row + 1]):
            if need < 0:
                return
            variable = literals[k] >> 1
            if value[literals[k]] < 0 and place[variable] < limit:
                free = cone[0, variable] or cone[1, variable] or reasons[variable] == NONE
                if turn == (0 if free else 1 if place[variable] < root else 2):
                    need -= weights[k]
                    cone[0, variable] = 1


@numba.njit(cache=True, nogil=True, _nrt=False)
def _need(tables, state, clauses, cone, reason, true, limit, root):
    """Mark what a literal (or a conflict, NONE) at place `limit` follows from by its reason."""
    (literals, start, _, _, marks), number = clauses, reason >> 1
    if reason & 1 == 0:
        _need_row(tables, state, cone, number, true, limit, root)
        return
    marks[number] = 1
    for k in range(start[number], start[number + 1]):
        if literals[k] != true:
            cone[0, literals[k] >> 1] = 1


@numba.njit(cache=True, nogil=True, _nrt=False)
def _explain(tables, state, counters, clauses, cone, conflict, root):
    """Mark all clauses that a conflict depends on."""
    trail, reasons = state[1], state[3]
    _need(tables, state, clauses, cone, conflict, NONE, counters[TRAIL], root)
    for place in range(counters[TRAIL] - 1, -1, -1):
        variable = trail[place] >> 1
        if not cone[0, variable]:
            continue
        cone[0, variable] = 0
        if place < root:
            if cone[1, variable]:
                continue
            cone[1, variable] = 1
        if reasons[variable] != NONE:
            _need(tables, state, clauses, cone, reasons[variable], trail[place], place, root)
    counters[LEFT] -= counters[TRAIL]


@numba.njit(cache=True, nogil=True, _nrt=False)
def _add(state, counters, clauses):
    """Make the next clause active; return the reason of a conflict, or NONE."""
    value, first = state[0], state[6]
    literals, start, following, before = clauses[:4]
    clause, found = counters[ACTIVE], 0
    before[clause] = counters[TRAIL]
    counters[ACTIVE] += 1
    begin, end = start[clause], start[clause + 1]
    for k in range(begin, end):
        if value[literals[k]] == 1:
            # It is true as long as it is active.
            return NONE
        if value[literals[k]] == 0 and found < 2:
            literals[begin + found], literals[k] = literals[k], literals[begin + found]
            found += 1
    if found == 0:
        return 2 * clause + 1
    if found == 1:
        _set(state, counters, literals[begin], 2 * clause + 1)
    else:
        for side in range(2):
            literal, watch = literals[begin + side], 2 * clause + side
            following[watch], first[0, literal] = first[0, literal], watch
    return NONE


@numba.njit(cache=True, nogil=True, _nrt=False)
def _check(tables, state, counters, clauses, cone, clause):
    """Whether a clause follows from the active ones; mark those that it depends on."""
    (literals, start), value, root = clauses[:2], state[0], counters[TRAIL]
    conflict = NONE
    for k in range(start[clause], start[clause + 1]):
        if value[literals[k]] == 1:
            # The opposite was assumed: the clause is always true.
            _undo(tables, state, counters, cone, root)
            return True
        if value[literals[k]] == 0:
            _set(state, counters, literals[k] ^ 1, NONE)
    conflict = _propagate(tables, state, counters, clauses)
    if conflict != NONE:
        _explain(tables, state, counters, clauses, cone, conflict, root)
    _undo(tables, state, counters, cone, root)
    return conflict != NONE


@numba.njit(cache=True, nogil=True, _nrt=False)
def trim(tables, state, counters, clauses, cone):
    """Mark what a contradiction needs, until all is done or the clock should be read."""
    start, before, marks = clauses[1], clauses[3], clauses[4]
    counters[LEFT] = STEPS
    if counters[STAGE] == BEGIN:
        counters[STAGE] = FORWARDS
        for row in range(tables[0].size - 1):
            if not _look(tables, state, counters, row):
                return FINE
    while counters[STAGE] == FORWARDS:
        conflict = _propagate(tables, state, counters, clauses)
        if conflict == NONE:
            if counters[ACTIVE] == start.size - 1:
                return OPEN
            conflict = _add(state, counters, clauses)
        if conflict != NONE:
            root = counters[TRAIL]
            _explain(tables, state, counters, clauses, cone, conflict, root)
            counters[STAGE] = BACKWARDS
        if counters[LEFT] < 0:
            return PAUSE
    while counters[ACTIVE] > 0:
        counters[ACTIVE] -= 1
        clause = counters[ACTIVE]
        _undo(tables, state, counters, cone, before[clause])
        if marks[clause] and not _check(tables, state, counters, clauses, cone, clause):
            return OPEN
        if counters[LEFT] < 0:
            return PAUSE
    return FINE
