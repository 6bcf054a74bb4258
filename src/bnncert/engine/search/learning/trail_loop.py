"""The trail of signs that hold: implications by rows and clauses, and the way back.

A row  sum_i a_i [l_i holds] >= d  has as much *room* as the sum over literals that do not fail is
above d.  Without room its head has to hold; if the head fails, that is a conflict, and a literal
with a coefficient above the room has to hold.  So sums decide gates, and a decided gate without
slack decides its inputs.  Each assignment changes the room of the rows that lose a literal by it.
The *gap* of a row is its room without the largest coefficient: nothing follows from a gap >= 0.
"""

from __future__ import annotations

import numba
import numpy as np

from bnncert.engine.search.learning.solver_state import NONE


# Without `nrt` numba counts no references to the arrays that a function takes out of the state,
# which would double the time; such a function cannot make arrays.  Numbers are passed as int64:
# for each other type of a number, also for each constant, numba compiles a function again.
@numba.njit(cache=True, nogil=True, _nrt=False)
def assign(state, literal, why):
    """Make a literal hold at the level of the search."""
    variable, number = literal >> 1, state.number
    state.value[literal], state.value[literal ^ 1] = 1, -1
    state.level[variable], state.place[variable] = number.level, number.trail
    state.reason[variable], state.trail[number.trail] = why, literal
    number.trail += 1


@numba.njit(cache=True, nogil=True, _nrt=False)
def propagate(state):
    """Assign all that follows; return what is in conflict (as a reason), or NONE."""
    number, value, gap, queue = state.number, state.value, state.gap, state.queue
    watch, first_watch, literals = state.watch, state.first_watch, state.literals
    found = np.int64(NONE)
    while found == NONE:
        if number.head < number.trail:
            false = state.trail[number.head] ^ 1
            number.head += 1
            for use in range(state.use_start[false], state.use_start[false + 1]):
                row = state.use_row[use]
                gap[row] -= state.use_size[use]
                if gap[row] < 0 and state.queued[row] == 0:
                    state.queued[row] = 1
                    queue[number.queue] = row
                    number.queue += 1
            before, node = NONE, first_watch[false]
            while node >= 0 and found == NONE:
                after, other = watch[node, 1], watch[node ^ 1, 0]
                if value[other] > 0:
                    before, node = node, after
                    continue
                clause = np.int64(node >> 1)
                start, length = state.clause_start[clause], state.clause_size[clause]
                literal, fails, k = other, True, state.clause_place[clause]
                for _ in range(length):
                    literal = literals[start + k]
                    if value[literal] >= 0 and literal != other:
                        fails = False
                        break
                    k = k + 1 if k + 1 < length else 0
                if not fails:
                    state.clause_place[clause] = k
                    watch[node, 0], watch[node, 1] = literal, first_watch[literal]
                    first_watch[literal] = node
                    if before < 0:
                        first_watch[false] = after
                    else:
                        watch[before, 1] = after
                elif value[other] < 0:
                    found = 2 * clause
                else:
                    assign(state, other, 2 * clause)
                    before = node
                node = after
        elif number.queue > 0:
            number.queue -= 1
            row = np.int64(queue[number.queue])
            state.queued[row] = 0
            left, top = gap[row] + state.largest[row], state.row_head[row]
            holds = NONE if top == NONE else value[top]
            if left < 0 and holds < 0:
                found = 2 * row + 1
            elif left < 0 and holds == 0:
                assign(state, top, 2 * row + 1)
            elif left >= 0 and holds < 0:
                for k in range(state.row_start[row], state.row_start[row + 1]):
                    if state.row_size[k] <= left:
                        break
                    if value[state.row_literal[k]] == 0:
                        assign(state, state.row_literal[k], 2 * row + 1)
        else:
            break
    return found


@numba.njit(cache=True, nogil=True, _nrt=False)
def go_back(state, depth):
    """Take back all decisions after the first `depth`."""
    number, value = state.number, state.value
    if depth >= number.level:
        return
    while number.queue > 0:
        number.queue -= 1
        state.queued[state.queue[number.queue]] = 0
    begin = state.limit[depth + 1]
    for k in range(number.trail - 1, begin - 1, -1):
        literal = state.trail[k]
        variable, false = literal >> 1, literal ^ 1
        value[literal], value[false] = 0, 0
        state.phase[variable] = literal & 1
        if k < number.head:
            for use in range(state.use_start[false], state.use_start[false + 1]):
                state.gap[state.use_row[use]] += state.use_size[use]
        if state.where[variable] < 0:
            # Back to the heap of variables.
            state.heap[number.heap] = variable
            number.heap += 1
            rise(state, number.heap - 1)
    number.trail, number.head = begin, min(number.head, begin)
    number.level = depth


@numba.njit(cache=True, nogil=True, _nrt=False)
def rise(state, place):
    """Restore the order of the heap after the variable at a place became more active."""
    heap, where, activity = state.heap, state.where, state.activity
    variable = heap[place]
    while place > 0:
        above = (place - 1) >> 1
        if activity[heap[above]] >= activity[variable]:
            break
        heap[place] = heap[above]
        where[heap[place]] = place
        place = above
    heap[place] = variable
    where[variable] = place


@numba.njit(cache=True, nogil=True, _nrt=False)
def most_active(state):
    """Remove the most active variable from the heap and return it."""
    heap, where, activity, number = state.heap, state.where, state.activity, state.number
    top = heap[0]
    where[top] = NONE
    number.heap -= 1
    size = number.heap
    if size == 0:
        return top
    variable, place = heap[size], 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and activity[heap[below + 1]] > activity[heap[below]]:
            below += 1
        if activity[heap[below]] <= activity[variable]:
            break
        heap[place] = heap[below]
        where[heap[place]] = place
        place = below
    heap[place] = variable
    where[variable] = place
    return top
