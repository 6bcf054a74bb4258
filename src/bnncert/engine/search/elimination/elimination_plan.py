r"""The steps of an elimination, made before any table is computed.

The *bucket* of a variable v contains the tables and clauses in which v is the first variable to be
eliminated.  Their sum, minimised over x_v, is a new table (a *message*) over their other variables.
If their number exceeds a limit, the bucket is split into *mini-buckets* whose scopes fit, each of
which is minimised on its own:

    min_v (g + h)  >=  min_v g + min_v h,

so that the result is a lower bound of the minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
