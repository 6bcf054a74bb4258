r"""The order in which variables are eliminated.

Eliminating v joins its neighbours with each other: the *fill* of v is the number of edges that this
adds.  The next variable is always one of least fill (*min-fill*), and of least degree among these.
The largest number of neighbours that a variable has when its turn comes is the *width*: tables have
2^width entries.

Neighbourhoods are integers used as bit sets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from bnncert.deadline import Deadline

#: Above this degree no table fits in memory: the rest is ordered by degree, which is faster.
MOST_FILLED = 40

#: Variables eliminated between two checks of the deadline.
STEPS_PER_LOOK = 16


def members(bits: int) -> Iterator[int]:
    """Yield the numbers of a bit set, the smallest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def neighbourhoods(scopes: Iterable[Iterable[int]]) -> dict[int, int]:
    """Return the neighbours of each variable: those that share a scope with it."""
    near: dict[int, int] = {}
    for scope in scopes:
        own = list(scope)
        together = 0
        for v in own:
            together |= 1 << v
        for v in own:
            near[v] = near.get(v, 0) | (together & ~(1 << v))
    return near


def components(near: dict[int, int]) -> list[list[int]]:
    """Return the connected components, the smallest first."""
    left = set(near)
    found = []
    while left:
        reached = frontier = 1 << left.pop()
        while frontier:
            wider = reached
            for v in members(frontier):
                wider |= near[v]
            frontier, reached = wider & ~reached, wider
        part = list(members(reached))
        left.difference_update(part)
        found.append(part)
    return sorted(found, key=lambda part: (len(part), part))


def min_fill_order(near: dict[int, int], deadline: Deadline) -> list[int]:
    """Return a min-fill order; raise OutOfTimeError if the deadline passes."""
    near = dict(near)
    fills = {v: _fill(near, v) for v in near}
    heap = [(fill, near[v].bit_count(), v) for v, fill in fills.items()]
    heapq.heapify(heap)
    order: list[int] = []
    while near:
        if len(order) % STEPS_PER_LOOK == 0:
            deadline.check()
        fill, degree, v = heapq.heappop(heap)
        if v not in near or (fill, degree) != (fills[v], near[v].bit_count()):
            continue
        if degree > MOST_FILLED:
            return order + _min_degree_order(near, deadline)
        around = near[v]
        # A new edge changes the fill of every variable that is adjacent to both ends.
        changed = around
        if fill:
            for u in members(around):
                changed |= near[u]
        order.append(v)
        _remove(near, v)
        for u in members(changed & ~(1 << v)):
            fills[u] = _fill(near, u)
            heapq.heappush(heap, (fills[u], near[u].bit_count(), u))
    return order


def _min_degree_order(near: dict[int, int], deadline: Deadline) -> list[int]:
    """Return the rest of an order; the next variable is always one of least degree."""
    order: list[int] = []
    while near:
        if len(order) % STEPS_PER_LOOK == 0:
            deadline.check()
        v = min(near, key=lambda u: (near[u].bit_count(), u))
        order.append(v)
        _remove(near, v)
    return order


def _remove(near: dict[int, int], v: int) -> None:
    """Eliminate v: join its neighbours with each other."""
    around = near.pop(v)
    for u in members(around):
        near[u] = (near[u] | around) & ~(1 << u) & ~(1 << v)


def _fill(near: dict[int, int], v: int) -> int:
    """Return the number of pairs of neighbours of v that are not joined."""
    around = near[v]
    missing = sum((around & ~near[u]).bit_count() for u in members(around))
    # Every neighbour counts itself, and every pair is counted twice.
    return (missing - around.bit_count()) // 2
