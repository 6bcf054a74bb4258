"""The trail of signs that hold: implications by rows and clauses, and the way back.

A row  sum_i a_i [l_i holds] >= d  has as much *room* as the sum over literals that do not fail is
above d.  Without room its head has to hold; if the head fails, that is a conflict, and a literal
with a coefficient above the room has to hold.  So sums decide gates, and a decided gate without
slack decides its inputs.  Each assignment changes the room of the rows that lose a literal by it.
The *gap* of a row is its room without the largest coefficient: nothing follows from a gap >= 0.
"""

from __future__ import annotations

import numba

from bnncert.engine.search.learning.solver_state import HEAD, HEAP, LEVEL, NONE, QUEUE, TRAIL


# Arrays are parameters of their own where a function is called often: numba counts the references
# to each array that it takes out of a tuple.  Numbers are passed as int64: for each other type of
# a number, also for each constant, numba compiles a function again.
@numba.njit(cache=True, nogil=True, forceinline=True)
def put(value, level, place, reason, trail, literal, depth, size, why):
    """Make a literal hold at a level and a place of the trail; return the place after it."""
    variable = literal >> 1
    value[literal], value[literal ^ 1] = 1, -1
    level[variable], place[variable], reason[variable] = depth, size, why
    trail[size] = literal
    return size + 1


@numba.njit(cache=True, nogil=True)
def assign(state, literal, why):
    """Make a literal hold at the level of the search."""
    state.number[TRAIL] = put(
        state.value, state.level, state.place, state.reason, state.trail, literal,
        state.number[LEVEL], state.number[TRAIL], why,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def propagate(
    number, value, level, place, reason, trail, row_head, row_start, row_literal, row_size,
    use_start, use_row, use_size, gap, largest, queue, queued, clause_start, clause_size,
    clause_place, literals, watch, first_watch,
):  # fmt: skip
    """Assign all that follows; return what is in conflict (as a reason), or NONE."""
    depth, size, head, waiting = number[LEVEL], number[TRAIL], number[HEAD], number[QUEUE]
    found = NONE
    while found == NONE:
        if head < size:
            false = trail[head] ^ 1
            head += 1
            for use in range(use_start[false], use_start[false + 1]):
                row = use_row[use]
                left = gap[row] - use_size[use]
                gap[row] = left
                if left < 0 and queued[row] == 0:
                    queued[row] = 1
                    queue[waiting] = row
                    waiting += 1
            before, node = NONE, first_watch[false]
            while node >= 0 and found == NONE:
                after, other = watch[node, 1], watch[node ^ 1, 0]
                if value[other] > 0:
                    before, node = node, after
                    continue
                clause = node >> 1
                start, length, k = clause_start[clause], clause_size[clause], clause_place[clause]
                literal, fails = other, True
                for _ in range(length):
                    literal = literals[start + k]
                    if value[literal] >= 0 and literal != other:
                        fails = False
                        break
                    k = k + 1 if k + 1 < length else 0
                if not fails:
                    clause_place[clause] = k
                    watch[node, 0], watch[node, 1] = literal, first_watch[literal]
                    first_watch[literal] = node
                    if before < 0:
                        first_watch[false] = after
                    else:
                        watch[before, 1] = after
                elif value[other] < 0:
                    found = 2 * clause
                else:
                    size = put(value, level, place, reason, trail, other, depth, size, 2 * clause)
                    before = node
                node = after
        elif waiting > 0:
            waiting -= 1
            row = queue[waiting]
            queued[row] = 0
            left, top = gap[row] + largest[row], row_head[row]
            state = NONE if top == NONE else value[top]
            if state > 0:
                continue
            if left < 0:
                if state < 0:
                    found = 2 * row + 1
                else:
                    size = put(value, level, place, reason, trail, top, depth, size, 2 * row + 1)
                continue
            if state == 0:
                continue
            for k in range(row_start[row], row_start[row + 1]):
                if row_size[k] <= left:
                    break
                literal = row_literal[k]
                if value[literal] == 0:
                    why = 2 * row + 1
                    size = put(value, level, place, reason, trail, literal, depth, size, why)
        else:
            break
    number[TRAIL], number[HEAD], number[QUEUE] = size, head, waiting
    return found


@numba.njit(cache=True, nogil=True)
def go_back(state, depth):
    """Take back all decisions after the first `depth`."""
    number, gap = state.number, state.gap
    if depth >= number[LEVEL]:
        return
    while number[QUEUE] > 0:
        number[QUEUE] -= 1
        state.queued[state.queue[number[QUEUE]]] = 0
    begin, head = state.limit[depth + 1], number[HEAD]
    trail, value, phase, where = state.trail, state.value, state.phase, state.where
    use_start, use_row, use_size = state.use_start, state.use_row, state.use_size
    heap, activity = state.heap, state.activity
    for k in range(number[TRAIL] - 1, begin - 1, -1):
        literal = trail[k]
        variable, false = literal >> 1, literal ^ 1
        value[literal], value[false] = 0, 0
        phase[variable] = literal & 1
        if k < head:
            for use in range(use_start[false], use_start[false + 1]):
                gap[use_row[use]] += use_size[use]
        if where[variable] < 0:
            insert(heap, where, activity, number, variable)
    number[TRAIL] = begin
    number[HEAD] = min(head, begin)
    number[LEVEL] = depth


@numba.njit(cache=True, nogil=True)
def insert(heap, where, activity, number, variable):
    """Add a variable to the heap."""
    where[variable] = number[HEAP]
    heap[number[HEAP]] = variable
    number[HEAP] += 1
    rise(heap, where, activity, where[variable])


@numba.njit(cache=True, nogil=True)
def rise(heap, where, activity, place):
    """Restore the order of the heap after the variable at a place became more active."""
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


@numba.njit(cache=True, nogil=True)
def most_active(heap, where, activity, number):
    """Remove the most active variable from the heap and return it."""
    top = heap[0]
    where[top] = NONE
    number[HEAP] -= 1
    size = number[HEAP]
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
