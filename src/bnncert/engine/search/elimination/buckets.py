r"""Elimination of variables, and the pattern that attains the minimum.

In the order of elimination, h(x_N) = min over x_v of the sum of the tables that contain v.  In the
reverse order, every variable takes the sign that attains its minimum, given the variables that were
eliminated later.

Costs move between the mini-buckets of one variable.  Let I be the variables that all mini-buckets
g_1, .., g_r share, and mu_m(x_I) the minimum of g_m over its other variables.  Adding  share_m(x_I)
- mu_m(x_I)  to g_m, where the shares sum to sum_m mu_m, changes no sum g_1 + .. + g_r and makes the
mini-buckets agree on which x_I is best: the bound min g_1 + .. + min g_r usually grows.  Shares are
integers, so everything stays exact.

Tables have integers over sign patterns, for several objectives at once.  The table of a scope (v_1,
.., v_k) is an array of shape (2, .., 2, R): axis i is the sign of v_i (place 0 for +1 and place 1
for -1), and the last axis has one entry for each of R objectives, whose tables have the same
scopes.  Entries are integers, or +infinity for patterns that cannot occur, stored in a
floating-point type in which all sums are exact.

The steps of an elimination are planned before any table is computed.  The *bucket* of a variable v
contains the tables and clauses in which v is the first variable to be eliminated.  Their sum,
minimised over x_v, is a new table (a *message*) over their other variables. If their number exceeds
a limit, the bucket is split into *mini-buckets* whose scopes fit, each of which is minimised on its
own:

    min_v (g + h)  >=  min_v g + min_v h,

so that the result is a lower bound of the minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import variable_of

#: The width of an elimination that never splits a bucket.
UNLIMITED = 10**6


@dataclass(frozen=True)
class MiniBucket:
    """Tables that are summed and minimised over `variable`."""

    variable: int
    #: The variable and then the others, in the order of elimination.
    scope: tuple[int, ...]
    #: Numbers of tables (those of the model, then messages) and of clauses.
    tables: tuple[int, ...]
    clauses: tuple[int, ...]
    #: The number of the table that results.
    message: int


@dataclass(frozen=True, eq=False)
class EliminationPlan:
    """The buckets in the order of elimination."""

    order: tuple[int, ...]
    buckets: tuple[tuple[MiniBucket, ...], ...]
    #: The largest number of variables of a message.
    width: int
    #: Entries of all tables that are summed, for one objective.
    entries: int
    #: How many buckets are split.
    split: int
    #: How many clauses do not fit into their bucket or any of its mini-buckets.
    dropped: int

    @property
    def is_exact(self) -> bool:
        """Whether no bucket is split and no clause is left out."""
        return self.split == 0 and self.dropped == 0


@dataclass(eq=False)
class _Group:
    """A mini-bucket that is being filled."""

    variables: set[int]
    tables: list[int]
    clauses: list[int]

    def fits(self, scope: tuple[int, ...], limit: int) -> bool:
        return len(self.variables.union(scope)) <= limit + 1


def make_plan(
    tables: Sequence[tuple[int, ...]],
    clauses: Sequence[tuple[int, ...]],
    order: Sequence[int],
    limit: int = UNLIMITED,
) -> EliminationPlan:
    """Return the plan for tables and clauses of these scopes.

    Messages have at most `limit` variables, unless a table of the model has more.
    """
    rank = {v: i for i, v in enumerate(order)}
    scopes = list(tables)
    waiting: list[list[int]] = [[] for _ in order]
    clauses_of: list[list[int]] = [[] for _ in order]
    for number, scope in enumerate(scopes):
        if scope:
            waiting[min(rank[v] for v in scope)].append(number)
    for number, scope in enumerate(clauses):
        clauses_of[min(rank[v] for v in scope)].append(number)
    buckets, width, entries, split, dropped = [], 0, 0, 0, 0
    for place, variable in enumerate(order):
        groups, left_out = _groups(
            [(n, scopes[n]) for n in waiting[place]],
            [(n, clauses[n]) for n in clauses_of[place]],
            variable,
            limit,
        )
        split += len(groups) > 1
        dropped += left_out
        made = []
        for group in groups:
            scope = tuple(sorted(group.variables, key=rank.__getitem__))
            made.append(
                MiniBucket(variable, scope, tuple(group.tables), tuple(group.clauses), len(scopes))
            )
            if len(scope) > 1:
                waiting[rank[scope[1]]].append(len(scopes))
            scopes.append(scope[1:])
            width = max(width, len(scope) - 1)
            entries += 2 ** len(scope)
        buckets.append(tuple(made))
    return EliminationPlan(tuple(order), tuple(buckets), width, entries, split, dropped)


def _groups(
    tables: list[tuple[int, tuple[int, ...]]],
    clauses: list[tuple[int, tuple[int, ...]]],
    variable: int,
    limit: int,
) -> tuple[list[_Group], int]:
    """Split a bucket so that every part fits; return the parts and how many clauses do not."""
    every = set().union({variable}, *(scope for _, scope in (*tables, *clauses)))
    if len(every) <= limit + 1:
        return [_Group(every, [n for n, _ in tables], [n for n, _ in clauses])], 0
    groups: list[_Group] = []
    # First fit, beginning with the largest table.
    for number, scope in sorted(tables, key=lambda item: (-len(item[1]), item[0])):
        group = next((g for g in groups if g.fits(scope, limit)), None)
        if group is None:
            group = _Group({variable}, [], [])
            groups.append(group)
        group.variables.update(scope)
        group.tables.append(number)
    dropped = 0
    for number, scope in sorted(clauses, key=lambda item: (len(item[1]), item[0])):
        inside = [g for g in groups if g.variables.issuperset(scope)]
        # A clause may be used in several mini-buckets: infinity plus infinity is infinity.
        for group in inside:
            group.clauses.append(number)
        if inside:
            continue
        group = next((g for g in groups if g.fits(scope, limit)), None)
        if group is None:
            dropped += 1
            continue
        group.variables.update(scope)
        group.clauses.append(number)
    return groups or [_Group({variable}, [], [])], dropped


#: Integers below these sizes, and sums that stay below them, are exact in float32 and float64.
EXACT32, EXACT64 = 2**24, 2**53

TableArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Table:
    """A function of the signs of the variables in `scope`; |finite values| are at most `reach`."""

    scope: tuple[int, ...]
    values: TableArray
    reach: int


@dataclass(frozen=True, eq=False)
class Model:
    """Minimise the sum of the tables over the patterns that violate no clause.

    A clause is an array of literals that cannot all hold.
    """

    tables: tuple[Table, ...]
    clauses: tuple[IntArray, ...]
    objectives: int

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the variables of every table, then those of every clause."""
        clauses = [tuple(variable_of(clause).tolist()) for clause in self.clauses]
        return [table.scope for table in self.tables] + clauses


class InexactTableError(ArithmeticError):
    """A sum of table entries may be too large to be exact in floating point."""


def sign_patterns(count: int) -> SignArray:
    """Return all patterns of some signs, one for each row, in the order of a table's entries."""
    numbers = np.arange(2**count)[:, None] >> np.arange(count - 1, -1, -1)[None, :]
    return np.asarray(1 - 2 * (numbers & 1), dtype=np.int8)


def float_type(reach: int) -> type[np.floating[Any]]:
    """Return the smaller type in which integers up to `reach` are exact."""
    if reach < EXACT32:
        return np.float32
    if reach < EXACT64:
        return np.float64
    raise InexactTableError(f"sums of {reach} are not exact in floating point")


def spread(values: TableArray, own: tuple[int, ...], scope: tuple[int, ...]) -> TableArray:
    """Return values over `own` as an array that broadcasts over a larger scope."""
    inside = set(own)
    shape = [2 if v in inside else 1 for v in scope]
    # This is a view also if the values are transposed: only axes of length 1 are inserted.
    return values.reshape((*shape, values.shape[-1]))


def ordered(table: Table, rank: dict[int, int]) -> Table:
    """Return the table with its variables in the order of elimination."""
    places = sorted(range(len(table.scope)), key=lambda i: rank[table.scope[i]])
    if places == list(range(len(places))):
        return table
    values = np.transpose(table.values, (*places, len(places)))
    return Table(tuple(table.scope[i] for i in places), values, table.reach)


def forbid(total: TableArray, scope: tuple[int, ...], clause: IntArray) -> None:
    """Make the patterns infinite in which all literals of a clause hold."""
    places: list[Any] = [slice(None)] * (len(scope) + 1)
    for literal in clause.tolist():
        places[scope.index(literal >> 1)] = literal & 1
    total[tuple(places)] = np.inf


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
