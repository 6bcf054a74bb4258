r"""Elimination of variables, and the pattern that attains the minimum.

In the order of elimination, h(x_N) = min over x_v of the sum of the tables that contain v.  In the
reverse order, every variable takes the sign that attains its minimum, given the variables that
were eliminated later.

Costs move between the mini-buckets of one variable.  Let I be the variables that all mini-buckets
g_1, .., g_r share, and mu_m(x_I) the minimum of g_m over its other variables.  Adding  share_m(x_I)
- mu_m(x_I)  to g_m, where the shares sum to sum_m mu_m, changes no sum g_1 + .. + g_r and makes the
mini-buckets agree on which x_I is best: the bound min g_1 + .. + min g_r usually grows.  Shares are
integers, so everything stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.elimination.elimination_plan import EliminationPlan, MiniBucket
from bnncert.engine.search.elimination.tables import (
    Model,
    Table,
    TableArray,
    float_type,
    forbid,
    ordered,
    spread,
)

Part = tuple[tuple[int, ...], TableArray, int]


def match_costs(parts: list[Part]) -> list[Part]:
    """Return the mini-buckets (scope, values, reach) after moving costs between them."""
    shared = set(parts[0][0]).intersection(*(scope for scope, _, _ in parts[1:]))
    common = tuple(v for v in parts[0][0] if v in shared)
    least = []
    for scope, values, _ in parts:
        others = tuple(i for i, v in enumerate(scope) if v not in shared)
        least.append(values.min(axis=others).astype(np.float64))
    possible = np.all(np.isfinite(np.broadcast_arrays(*least)), axis=0)
    finite = [np.where(possible, mu, 0.0) for mu in least]
    total = sum(finite[1:], finite[0])
    share = np.floor(total / len(parts))
    moved = []
    for number, ((scope, values, reach), mu) in enumerate(zip(parts, finite, strict=True)):
        # The first part gets the remainder of the division.
        own = share if number else total - share * (len(parts) - 1)
        change = own - mu
        wider = reach + int(np.abs(change).max(initial=0))
        kind = float_type(wider)
        # A pattern that one part excludes is excluded in all of them.
        change = np.where(possible, change, np.inf).astype(kind)
        moved.append((scope, values.astype(kind) + spread(change, common, scope), wider))
    return moved


@dataclass(frozen=True, eq=False)
class Choice:
    """How the sign of a variable follows from those that are eliminated later.

    `costs` are the tables of its mini-buckets.  For a bucket that is not split only `minus` is
    kept: whether -1 is better than +1.
    """

    variable: int
    scopes: tuple[tuple[int, ...], ...]
    minus: TableArray | None
    costs: tuple[TableArray, ...] = ()


@dataclass(frozen=True, eq=False)
class Eliminated:
    """The minimum for each objective, or a lower bound of it, and how its pattern is found.

    A minimum of +infinity means that every pattern violates a clause.
    """

    minimum: FloatArray
    choices: tuple[Choice, ...]

    def patterns(self) -> dict[int, SignArray]:
        """Return the sign of every variable in the minimising pattern of each objective."""
        count = self.minimum.size
        every = np.arange(count)
        places: dict[int, np.ndarray] = {}
        for choice in reversed(self.choices):
            minus: np.ndarray
            if choice.minus is not None:
                (scope,) = choice.scopes
                at = (*(places[v] for v in scope[1:]), every)
                minus = choice.minus[at]
            else:
                plus_cost, minus_cost = np.zeros(count), np.zeros(count)
                for scope, costs in zip(choice.scopes, choice.costs, strict=True):
                    at = (*(places[v] for v in scope[1:]), every)
                    plus_cost += costs[0][at]
                    minus_cost += costs[1][at]
                minus = minus_cost < plus_cost
            places[choice.variable] = minus.astype(np.int64)
        return {v: (1 - 2 * place).astype(np.int8) for v, place in places.items()}


def eliminate(
    model: Model, plan: EliminationPlan, deadline: Deadline, *, patterns: bool = True
) -> Eliminated:
    """Eliminate all variables in the order of a plan; `patterns` keeps the minimising patterns.

    Raises OutOfTimeError if the deadline passes, and InexactTableError if a sum might not be exact.
    """
    rank = {v: i for i, v in enumerate(plan.order)}
    # Tables are dropped as soon as they are used.
    tables: list[Table | None] = [ordered(table, rank) for table in model.tables]
    minimum = np.zeros(model.objectives)
    for table in tables:
        if table is not None and not table.scope:
            minimum = minimum + table.values
    choices = []
    for bucket in plan.buckets:
        parts = [_total(model, mini, tables, deadline) for mini in bucket]
        if len(parts) > 1:
            deadline.check()
            parts = match_costs(parts)
        for scope, values, reach in parts:
            message = np.minimum(values[0], values[1])
            if len(scope) == 1:
                minimum = minimum + message
            tables.append(Table(scope[1:], message, reach))
        if patterns:
            scopes, costs, _ = zip(*parts, strict=True)
            if len(parts) == 1:
                choices.append(Choice(bucket[0].variable, scopes, costs[0][1] < costs[0][0]))
            else:
                choices.append(Choice(bucket[0].variable, scopes, None, costs))
    return Eliminated(minimum, tuple(choices))


def _total(
    model: Model, mini: MiniBucket, tables: list[Table | None], deadline: Deadline
) -> tuple[tuple[int, ...], TableArray, int]:
    """Return the sum of a mini-bucket's tables, infinite where a clause is violated."""
    own = [table for table in (tables[k] for k in mini.tables) if table is not None]
    for number in mini.tables:
        tables[number] = None
    reach = sum(table.reach for table in own)
    kind = float_type(reach)
    rank = {v: i for i, v in enumerate(mini.scope)}
    scope: tuple[int, ...] = ()
    total: TableArray = np.zeros(1, dtype=kind)
    # Small tables are added first, so that most sums are over few variables.
    for table in sorted(own, key=lambda table: len(table.scope)):
        deadline.check()
        union = tuple(sorted({*scope, *table.scope}, key=rank.__getitem__))
        parts = spread(total, scope, union), spread(table.values, table.scope, union)
        if union == scope and total.shape[-1] == model.objectives:
            total += parts[1]
        else:
            scope, total = union, np.add(*parts, dtype=kind)
    deadline.check()
    shape = (*(2,) * len(mini.scope), model.objectives)
    if total.shape != shape:
        total = np.broadcast_to(spread(total, scope, mini.scope), shape).copy()
    for clause in mini.clauses:
        forbid(total, mini.scope, model.clauses[clause])
    return mini.scope, total, reach
