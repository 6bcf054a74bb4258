r"""The minimum of a model, or a lower bound of it within limits of memory and time.

The bound depends on the order in which variables are eliminated.  Eliminating v joins its
neighbours with each other: the *fill* of v is the number of edges that this adds.  The next
variable is always one of least fill (*min-fill*), and of least degree among these. The largest
number of neighbours that a variable has when its turn comes is the *width*: tables have 2^width
entries.

Neighbourhoods are integers used as bit sets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.elimination.buckets import (
    EliminationPlan,
    Model,
    Table,
    eliminate,
    make_plan,
)

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


#: Widths that are tried in turn if the exact elimination exceeds the limits.
WIDTHS = (22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 1)

#: With more clauses, an order is kept while its tables have at most this many times the entries.
GROWTH = 1.5

#: Entries of a message for all objectives together: the deadline is checked between two messages.
MOST_AT_ONCE = 2**24

#: Approximate bytes of a table entry, including what is kept of it to find the pattern.
BYTES = 8

#: Approximate seconds for an entry of a table, and for a bucket.
ENTRY_SECONDS, BUCKET_SECONDS = 6e-9, 6e-5


@dataclass(frozen=True)
class EliminationLimits:
    """Limits of one elimination of all objectives."""

    #: Gigabytes of all tables together.
    memory: float = 1.0
    #: Estimated seconds for all objectives together.
    seconds: float = 10.0

    def allow(self, plan: EliminationPlan, objectives: int) -> bool:
        """Whether a plan is within the limits; objectives may be eliminated in turn."""
        fits = plan.entries * BYTES <= self.memory * 2**30 and 2**plan.width <= MOST_AT_ONCE
        seconds = plan.entries * objectives * ENTRY_SECONDS + len(plan.order) * BUCKET_SECONDS
        return fits and seconds <= self.seconds

    def together(self, plan: EliminationPlan) -> int:
        """Return how many objectives are eliminated at once, within memory and MOST_AT_ONCE."""
        in_memory = int(self.memory * 2**30 / (BYTES * max(plan.entries, 1)))
        return max(1, min(in_memory, MOST_AT_ONCE >> plan.width))


@dataclass(frozen=True, eq=False)
class Minimum:
    """Minima, or lower bounds of them, and a pattern for each objective.

    `patterns` has a row of signs for each objective; its columns are `variables`.
    """

    values: FloatArray
    variables: IntArray
    patterns: SignArray


@dataclass(frozen=True, eq=False)
class Prepared:
    """The plan of a model, how many components its graph has, and the clauses of the plan.

    `clauses` are numbers in the list of clauses that the plan was made for.
    """

    plan: EliminationPlan
    components: int
    clauses: tuple[int, ...]


def prepare(
    tables: Sequence[tuple[int, ...]],
    clauses: Sequence[tuple[int, ...]],
    objectives: int,
    limits: EliminationLimits,
    deadline: Deadline,
    active: Sequence[int] | None = None,
    before: Prepared | None = None,
) -> Prepared:
    """Choose the order and, if the limits require it, the width.

    Parameters
    ----------
    active
        The clauses that are always used (default: all).  The others are used only if they do not
        widen any table.
    before
        The plan for fewer active clauses; its order is kept if the tables grow little.

    Raises OutOfTimeError if the deadline passes.
    """
    chosen = range(len(clauses)) if active is None else active
    near = neighbourhoods([*tables, *(clauses[i] for i in chosen)])
    parts = components(near)
    order: list[int] = []
    if before is not None and before.plan.is_exact:
        plan = make_plan(tables, [clauses[i] for i in chosen], before.plan.order)
        if plan.entries <= GROWTH * before.plan.entries and limits.allow(plan, objectives):
            order = list(before.plan.order)
    if not order:
        for part in parts:
            order += min_fill_order({v: near[v] for v in part}, deadline)
    used = _with_free(tables, clauses, chosen, order)
    plan = _plan_within(tables, [clauses[i] for i in used], order, objectives, limits, deadline)
    return Prepared(plan, len(parts), tuple(used))


def _with_free(
    tables: Sequence[tuple[int, ...]],
    clauses: Sequence[tuple[int, ...]],
    chosen: Sequence[int],
    order: list[int],
) -> list[int]:
    """Return the chosen clauses and those whose variables are in one bucket without them."""
    if len(chosen) == len(clauses):
        return list(chosen)
    rank = {v: i for i, v in enumerate(order)}
    plan = make_plan(tables, [clauses[i] for i in chosen], order)
    together = [set(bucket[0].scope) for bucket in plan.buckets]
    known = set(chosen)
    free = [
        i
        for i, scope in enumerate(clauses)
        if i not in known
        and all(v in rank for v in scope)
        and together[min(rank[v] for v in scope)].issuperset(scope)
    ]
    return [*chosen, *free]


def _plan_within(
    tables: Sequence[tuple[int, ...]],
    clauses: Sequence[tuple[int, ...]],
    order: list[int],
    objectives: int,
    limits: EliminationLimits,
    deadline: Deadline,
) -> EliminationPlan:
    """Return the widest plan within the limits, or the narrowest plan if none is."""
    plan = make_plan(tables, clauses, order)
    for width in WIDTHS:
        if limits.allow(plan, objectives):
            break
        if width < plan.width:
            deadline.check()
            plan = make_plan(tables, clauses, order, width)
    return plan


def minimise(
    model: Model, plan: EliminationPlan, limits: EliminationLimits, deadline: Deadline
) -> Minimum:
    """Eliminate all variables, for as many objectives at once as memory allows.

    Raises OutOfTimeError if the deadline passes, and InexactTableError if a sum might not be exact.
    """
    size, variables = limits.together(plan), sorted(plan.order)
    values = np.zeros(model.objectives)
    patterns = np.zeros((model.objectives, len(variables)), dtype=np.int8)
    for start in range(0, model.objectives, size):
        own = np.arange(start, min(start + size, model.objectives))
        made = eliminate(columns(model, own), plan, deadline)
        values[own], signs = made.minimum, made.patterns()
        for place, v in enumerate(variables):
            patterns[own, place] = signs[v]
    return Minimum(values, np.array(variables, dtype=np.int64), patterns)


def columns(model: Model, chosen: IntArray) -> Model:
    """Return the model of some of the objectives, in the order of `chosen`."""
    if np.array_equal(chosen, np.arange(model.objectives)):
        return model
    tables = [_columns(table, chosen) for table in model.tables]
    return replace(model, tables=tuple(tables), objectives=int(chosen.size))


def _columns(table: Table, chosen: IntArray) -> Table:
    if table.scope and table.values.shape[-1] == 1:
        # The table of a gate is the same for all objectives.
        return table
    return replace(table, values=table.values[..., chosen])
