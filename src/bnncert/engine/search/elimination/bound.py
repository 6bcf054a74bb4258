"""The minimum of a model, or a lower bound of it within limits of memory and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.elimination.buckets import eliminate
from bnncert.engine.search.elimination.elimination_plan import EliminationPlan, make_plan
from bnncert.engine.search.elimination.order import components, min_fill_order, neighbourhoods
from bnncert.engine.search.elimination.tables import Model, Table

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
