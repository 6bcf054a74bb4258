"""Why a literal holds: literals that failed before it and are enough for its row or clause.

A row  sum_i a_i [l_i holds] >= d  with the sum A of its coefficients implies its head as soon as
failed literals have coefficients of more than A - d in total, and, if the head fails, literal l of
coefficient a as soon as they have more than A - d - a.  Reasons are found when they are needed.
They cost nothing if they are fixed without decisions or are in the clause anyway; literals without
which the others do not suffice are necessary; of the rest those are taken that failed first.
"""

from __future__ import annotations

import numba
import numpy as np

from bnncert.engine.search.learning.solver_state import NONE

#: Marks of variables: in the clause that is being learned, implied by it, or not implied by it.
IN_CLAUSE, IMPLIED, NOT_IMPLIED = 1, 2, 3


@numba.njit(cache=True, nogil=True, _nrt=False)
def explain(state, reason, holds, first):
    """Write the failed literals that imply `holds` (NONE: a conflict); return where they end.

    They are written to `state.reasons` from place `first` on, without those fixed at level 0.
    """
    value, level, place, out = state.value, state.level, state.place, state.reasons
    if reason & 1 == 0:
        start = state.clause_start[reason >> 1]
        for k in range(start, start + state.clause_size[reason >> 1]):
            literal = state.literals[k]
            if literal != holds and level[literal >> 1] > 0:
                out[first] = literal
                first += 1
        return first
    row, row_literal, row_size = reason >> 1, state.row_literal, state.row_size
    row_start, chosen = state.row_start, state.chosen
    need, count, total, head = state.room[row] + 1, 0, 0, state.row_head[row]
    before = value.size if holds == NONE else place[holds >> 1]
    if head != NONE and head != holds and level[head >> 1] > 0:
        out[first] = head
        first += 1
    for k in range(row_start[row], row_start[row + 1]):
        literal = row_literal[k]
        if value[literal] < 0:
            variable = literal >> 1
            if place[variable] < before:
                if level[variable] == 0:
                    need -= row_size[k]
                else:
                    chosen[count] = k
                    count += 1
                    total += row_size[k]
        elif literal == holds:
            need -= row_size[k]
    # Literals that are necessary, or are in the clause anyway.
    kept, spare = 0, total - need
    for a in range(count):
        k = chosen[a]
        literal, size = row_literal[k], row_size[k]
        kind = state.seen[literal >> 1]
        if size > spare or kind == IN_CLAUSE or kind == IMPLIED:  # noqa: SIM109
            need -= size
            out[first] = literal
            first += 1
        else:
            chosen[kept] = k
            kept += 1
    # Of the others those that failed first: parts before and after a middle one, in turn.
    low, high = 0, kept
    while need > 0 and low < high:
        last, half = high - 1, (low + high) >> 1
        middle = chosen[half]
        chosen[half] = chosen[last]
        limit, cut, taken = place[row_literal[middle] >> 1], low, 0
        for a in range(low, last):
            k = chosen[a]
            if place[row_literal[k] >> 1] < limit:
                chosen[a] = chosen[cut]
                chosen[cut] = k
                cut += 1
                taken += row_size[k]
        chosen[last] = chosen[cut]
        chosen[cut] = middle
        if taken >= need:
            high = cut
        else:
            for a in range(low, cut + 1):
                out[first] = row_literal[chosen[a]]
                first += 1
            need -= taken + row_size[middle]
            low = cut + 1
    return first


@numba.njit(cache=True, nogil=True, _nrt=False)
def mark(number, seen, marked, variable, kind):
    """Mark a variable that is not in the clause."""
    if seen[variable] == 0:
        seen[variable] = kind
        marked[number.marked] = variable
        number.marked += 1


@numba.njit(cache=True, nogil=True, _nrt=False)
def minimise(state, size):
    """Remove literals of the learned clause that others imply; return how many are left.

    A literal is implied if all literals of its reason are in the clause or implied.  Each step of
    a chain of reasons is a row (variable, next reason to look at, end of its reasons): numba's
    cache has no functions that call themselves.
    """
    number, level, seen, reasons = state.number, state.level, state.seen, state.reasons
    reason, learned, marked, chain = state.reason, state.learned, state.marked, state.chain
    kept, now, longest = 1, number.stamp, reasons.size - state.chosen.size - seen.size
    for place_in_clause in range(1, size):
        literal = own = learned[place_in_clause]
        steps, begin = 0, 0
        while literal != NONE:
            variable = literal >> 1
            # A level of which the clause has no literal leads to its decision.
            if (
                seen[variable] == NOT_IMPLIED
                or reason[variable] == NONE
                or state.stamp[level[variable]] != now
                or steps == chain.shape[0]
                or begin > longest
            ):
                break
            why, holds = np.int64(reason[variable]), np.int64(literal ^ 1)
            end = explain(state, why, holds, np.int64(begin))
            chain[steps, 0], chain[steps, 1], chain[steps, 2] = variable, begin, end
            steps += 1
            literal = NONE
            while steps > 0 and literal == NONE:
                top = steps - 1
                if chain[top, 1] == chain[top, 2]:
                    mark(number, seen, marked, chain[top, 0], IMPLIED)
                    steps -= 1
                    continue
                below = reasons[chain[top, 1]]
                chain[top, 1] += 1
                kind = seen[below >> 1]
                if kind != IN_CLAUSE and kind != IMPLIED:
                    literal, begin = below, chain[top, 2]
        if literal == NONE:
            continue
        for k in range(steps):
            mark(number, seen, marked, chain[k, 0], NOT_IMPLIED)
        learned[kept] = own
        kept += 1
    return kept
