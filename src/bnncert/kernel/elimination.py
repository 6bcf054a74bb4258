r"""Elimination of variables: the minimum of functions that are sums of functions of few variables.

A function of the scores is f = constant + sum_p g_p(x_S), where g_p sums the last-layer neurons
that read the variables S: a *table* with one entry for each of the 2^|S| patterns of signs.  A
hidden neuron above the first layer is a variable x_v itself; a table of 0 and infinity states which
x_v its inputs allow.  For each variable v, in the order of the file, the tables that contain v are
added up, entries that violate a clash or a clause become infinite, and

    h(x_N) = min over x_v of the sum,     N the other variables of the sum,

is a new table, which replaces those that contain v.  When no variable is left, the sum of the
remaining tables is the minimum over all patterns.  A bucket (the tables that contain v) may be
split into parts, each of which is minimised on its own: min (g + h) >= min g + min h.  Before that,
costs are moved between the parts; their sum stays the same, so any amounts are valid.

All numbers are integers below 2^53, or infinity, so that float64 sums and products are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bnncert.arrays import BoolArray, FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.levels import Scores
from bnncert.kernel.section_reading import Clauses
from bnncert.kernel.skeleton import MOST_REACH, Skeleton
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction

#: A neuron that reads more variables has no table: in the last layer it takes its worse sign, and
#: below it may have any sign.
MOST_INPUTS = 16

#: Signs of last-layer neurons in all tables together; neurons beyond this limit have no table.
MOST_SIGNS = 2**26

#: Parts of all buckets, variables of one part, and entries of all tables that exist at one time.
MOST_PARTS, MOST_SCOPE, MOST_LIVE = 2**16, 24, 2**26

#: Entries that are computed at once.
BLOCK = 2**21

#: Integers up to this size are exact in float64.
EXACT = 2**53

#: The first variable of a table without variables.
NONE = -1

Scope = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SignTable:
    """Values for all signs of some variables, +1 first, for one or more functions (last axis).

    Finite values are at most `reach` in size.
    """

    scope: Scope
    values: FloatArray
    reach: int


@dataclass(frozen=True, eq=False)
class SplitOrder:
    """The buckets in the order of elimination, each with the variables of its parts."""

    buckets: dict[int, list[Scope]]
    rank: dict[int, int]

    @staticmethod
    def of(parts: Sequence[Scope]) -> SplitOrder:
        """Sort the parts into buckets; the first variable of a part is eliminated."""
        buckets: dict[int, list[Scope]] = {}
        for part in parts:
            buckets.setdefault(part[0], []).append(part)
        made = SplitOrder(buckets, {v: k for k, v in enumerate(buckets)})
        for v, own in timed(buckets.items()):
            own[:] = [made.sorted(part) for part in own]
            if any(part[0] != v or len(set(part)) < len(part) for part in own):
                raise RejectedError("a part of a bucket has a variable twice, or out of order")
        return made

    def sorted(self, scope: Scope) -> Scope:
        """Sort variables in the order of elimination."""
        if any(v not in self.rank for v in scope):
            raise RejectedError("a variable is not eliminated")
        return tuple(sorted(scope, key=self.rank.__getitem__))


class Elimination:
    """Proves several targets by one order of elimination."""

    def __init__(
        self,
        skeleton: Skeleton,
        clauses: Clauses,
        targets: Sequence[Sequence[ScoreFunction]],
    ) -> None:
        self.skeleton, self.targets = skeleton, len(targets)
        last = skeleton.layers[-1]
        members = np.flatnonzero(last.state == 0)
        self.scores = Scores.of(skeleton, members, targets)
        if len(skeleton.layers) > 1:
            self.rows, self.plus, self.minus = _thresholds(skeleton, -1, members)
        else:
            # The functions are linear in the variables.
            each = np.arange(skeleton.size)
            shape = (skeleton.size, skeleton.size)
            self.rows = SparseRows.of_entries(each, each, np.ones_like(each), shape)
            self.plus, self.minus = np.ones(each.size), -np.ones(each.size)
        #: The neurons of each table, and those without a table.
        self.groups: dict[Scope, list[int]] = {}
        self.loose: list[int] = []
        self._group()
        self.clauses = skeleton.literal_table(clauses)
        self.parts: list[Scope] = []
        # An elimination has no clauses and no leaves.
        self.learned: list[Clauses] = []
        self.leaves = 0

    def _group(self) -> None:
        """Group the neurons by the variables that they read."""
        signs = 0
        for j, size in enumerate(self.rows.sizes.tolist()):
            scope = tuple(self.rows.columns[self.rows.start[j] : self.rows.start[j + 1]].tolist())
            if size > MOST_INPUTS or signs + 2**size > MOST_SIGNS:
                self.loose.append(j)
            else:
                signs += 2**size
                self.groups.setdefault(scope, []).append(j)

    def gate(self, variable: int) -> tuple[Integers, Integers, float, float]:
        """Find the inputs of a hidden neuron, their weights, and its thresholds."""
        layer, neuron = self.skeleton.owner[variable]
        rows, plus, minus = _thresholds(self.skeleton, layer, np.array([neuron]))
        return rows.columns, rows.values, float(plus[0]), float(minus[0])

    # -- the file -----------------------------------------------------------------------------

    def take(self, section: Section) -> None:
        """Read the parts of buckets: the variable that is eliminated, then the others."""
        sizes, variables = section.integers("sizes"), section.integers("scopes")
        if np.any((sizes < 1) | (sizes > variables.size)) or int(sizes.sum()) != variables.size:
            raise UnreadableError("section buckets: sizes do not add up")
        if len(self.parts) + sizes.size > MOST_PARTS or np.any(sizes > MOST_SCOPE):
            raise RejectedError(
                f"more than {MOST_PARTS} parts of buckets, or one with more than {MOST_SCOPE} "
                "variables"
            )
        if np.any((variables < 0) | (variables >= self.skeleton.size)):
            raise RejectedError("a bucket has a variable that does not exist")
        ends = np.cumsum(sizes)
        self.parts += [
            tuple(variables[end - size : end].tolist())
            for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
        ]

    def finish(self) -> None:
        """Reject an elimination that does not prove all targets."""
        if not self.skeleton.empty and not self.excluded().all():
            raise RejectedError("the minimum of an elimination does not exclude a target")

    # -- the elimination ------------------------------------------------------------------------

    def excluded(self) -> BoolArray:
        """Decide which targets the minimum of one of their functions excludes."""
        order = SplitOrder.of(self.parts)
        together, proved = MOST_LIVE // self.peak(order), np.zeros(self.targets, dtype=bool)
        if not together:
            raise RejectedError(f"the tables of an elimination have more than {MOST_LIVE} entries")
        for k in range(0, self.scores.enough.size, together):
            chosen = slice(k, k + together)
            enough = self._least(order, self.scores.weights[chosen].T) >= self.scores.enough[chosen]
            proved[self.scores.target[chosen][enough]] = True
        return proved

    def peak(self, order: SplitOrder) -> int:
        """Count the entries of all tables of one function at one time, at most."""
        waiting: dict[int, list[Scope]] = {v: [] for v in (NONE, *order.buckets)}
        gates = ((*self.gate(v)[0].tolist(), v) for v in self._gates(order))
        for scope in [*self.groups, *gates]:
            own = order.sorted(scope)
            waiting[_first(own)].append(own)
        live: int = sum(2 ** len(scope) for own in waiting.values() for scope in own)
        most = live
        for v, parts in timed(order.buckets.items()):
            # The sums and their minima, and copies of them if costs are moved.
            copies = 2 if len(parts) == 1 else 4
            most = max(most, live + copies * sum(2 ** len(scope) for scope in parts))
            live -= sum(2 ** len(scope) for scope in waiting[v])
            for scope in parts:
                live += 2 ** (len(scope) - 1)
                waiting[_first(scope[1:])].append(scope[1:])
        return max(1, most)

    def _least(self, order: SplitOrder, weights: FloatArray) -> FloatArray:
        """Bound the minimum of weights.x from below, one column for each function."""
        clauses = self._clauses_by_bucket(order)
        waiting: dict[int, list[SignTable]] = {v: [] for v in (NONE, *order.buckets)}
        for table in (*self._tables(order, weights), *self._gate_tables(order)):
            waiting[_first(table.scope)].append(table)
        for v, parts in timed(order.buckets.items()):
            sums = [
                self._sum(scope, own, clauses.get(v, []), weights.shape[1])
                for scope, own in _divided(parts, waiting.pop(v))
            ]
            for table in _messages(sums):
                waiting[_first(table.scope)].append(table)
        loose = np.abs(weights[self.loose]).sum(axis=0)
        # Every component of the graph leaves one number.
        _refuse_inexact(int(loose.max()) + sum(table.reach for table in waiting[NONE]))
        least: FloatArray = sum((table.values for table in waiting[NONE]), -loose)
        return least

    def _tables(self, order: SplitOrder, weights: FloatArray) -> Iterator[SignTable]:
        """Yield the tables of the last layer's neurons."""
        for group, own in self.groups.items():
            scope, functions = order.sorted(group), weights[own]
            patterns = _patterns(len(scope))
            place = np.searchsorted(group, scope)
            sums = np.stack([self.rows.values[self.rows.start[j] + place] for j in own])
            values = np.zeros((patterns.shape[0], weights.shape[1]))
            step = max(1, BLOCK // patterns.shape[0])
            for k in timed(range(0, len(own), step)):
                part, mine = slice(k, k + step), own[k : k + step]
                u = patterns @ sums[part].T.astype(np.float64)
                signs = (u >= self.plus[mine]).astype(np.float64) - (u <= self.minus[mine])
                # If both signs are allowed, the worse one is used.
                values += signs @ functions[part] - (signs == 0) @ np.abs(functions[part])
            reach = int(np.abs(functions).sum(axis=0).max())
            _refuse_inexact(reach)
            yield SignTable(scope, values.reshape((2,) * len(scope) + (-1,)), reach)

    def _gates(self, order: SplitOrder) -> list[int]:
        """List the variables above the first layer whose inputs are all eliminated as well."""
        above = [v for v in order.buckets if self.skeleton.owner[v][0] > 0]
        inputs = {v: self.gate(v)[0].tolist() for v in timed(above)}
        return [
            v
            for v, own in inputs.items()
            if len(own) <= MOST_INPUTS and all(u in order.rank for u in own)
        ]

    def _gate_tables(self, order: SplitOrder) -> Iterator[SignTable]:
        """Yield a table of 0 and infinity for each hidden neuron above the first layer."""
        for v in timed(self._gates(order)):
            columns, weights, plus, minus = self.gate(v)
            scope = order.sorted((*columns.tolist(), v))
            weight = dict(zip(columns.tolist(), weights.tolist(), strict=True))
            patterns = _patterns(len(scope))
            u = patterns @ np.array([weight.get(w, 0) for w in scope], dtype=np.float64)
            allowed = np.where(patterns[:, scope.index(v)] > 0, u >= plus, u <= minus)
            values = np.where(allowed, 0.0, np.inf)
            yield SignTable(scope, values.reshape((2,) * len(scope) + (1,)), 0)

    def _clauses_by_bucket(self, order: SplitOrder) -> dict[int, list[Scope]]:
        """Sort the literals of every clause by the variable that is eliminated first."""
        made: dict[int, list[Scope]] = {}
        start, columns = self.clauses.start.tolist(), self.clauses.columns.tolist()
        for first, last in timed(pairwise(start)):
            literals = tuple(columns[first:last])
            if literals and all(k // 2 in order.rank for k in literals):
                made.setdefault(order.sorted((*(k // 2 for k in literals),))[0], []).append(
                    literals
                )
        return made

    def _sum(
        self, scope: Scope, tables: list[SignTable], clauses: list[Scope], functions: int
    ) -> SignTable:
        """Add up a part's tables, infinite where signs exclude each other."""
        axes, reach = (2,) * len(scope), sum(table.reach for table in tables)
        _refuse_inexact(reach)
        total = np.zeros((*axes, functions))
        for table in timed(tables):
            total += _spread(table.values, table.scope, scope)
        impossible = np.zeros(axes, dtype=bool)
        mine = [own for own in timed(clauses) if {k // 2 for k in own} <= set(scope)]
        for own in (2 * scope[0], 2 * scope[0] + 1):
            others = [2 * v + s for v in scope[1:] for s in (0, 1)]
            mine += [(own, k) for k in others if self.skeleton.excluded[own, k]]
        for literals in timed(mine):
            place: list[int | slice] = [slice(None)] * len(scope)
            for k in literals:
                place[scope.index(k // 2)] = k % 2
            impossible[tuple(place)] = True
        total[impossible] = np.inf
        return SignTable(scope, total, reach)


def _thresholds(
    skeleton: Skeleton, number: int, neurons: Integers
) -> tuple[SparseRows, FloatArray, FloatArray]:
    """Take sums of neurons and thresholds: +1 needs u >= plus, and -1 needs u <= minus."""
    layer = skeleton.layers[number]
    # No sum exceeds MOST_REACH, so larger thresholds may be clipped.
    most = MOST_REACH + 2
    plus, minus = (np.clip(n[neurons], -most, most) for n in (layer.plus, layer.minus))
    return layer.rows.matrix.take(neurons), plus.astype(np.float64), minus.astype(np.float64)


def _first(scope: Scope) -> int:
    return scope[0] if scope else NONE


def _patterns(count: int) -> FloatArray:
    """List all patterns of some signs, one in each row, in the order of a table's entries."""
    numbers = np.arange(2**count)[:, None] >> np.arange(count - 1, -1, -1)[None, :]
    return (1 - 2 * (numbers & 1)).astype(np.float64)


def _spread(values: FloatArray, own: Scope, scope: Scope) -> FloatArray:
    """Shape values over some variables of a scope so that they broadcast over all."""
    return values.reshape([2 if v in own else 1 for v in scope] + [values.shape[-1]])


def _refuse_inexact(reach: int) -> None:
    if reach >= EXACT:
        raise RejectedError("the sums of an elimination are too large")


def _divided(
    parts: list[Scope], tables: list[SignTable]
) -> Iterator[tuple[Scope, list[SignTable]]]:
    """Yield the parts of a bucket with their tables, each in the first part that covers it."""
    own: list[list[SignTable]] = [[] for _ in parts]
    for table in tables:
        place = next((k for k, s in enumerate(parts) if set(s) >= set(table.scope)), None)
        if place is None:
            raise RejectedError("a table fits into no part of its bucket")
        own[place].append(table)
    yield from zip(parts, own, strict=True)


def _messages(parts: list[SignTable]) -> list[SignTable]:
    """Minimise each part over the first variable."""
    parts = _moved(parts) if len(parts) > 1 else parts
    return [SignTable(p.scope[1:], np.minimum(p.values[0], p.values[1]), p.reach) for p in parts]


def _moved(parts: list[SignTable]) -> list[SignTable]:
    """Move costs between parts so that they agree on the signs of their common variables.

    With mu_m the minimum of part m given these signs, -mu_m and an equal share of sum_m mu_m are
    added to every part; the first part also gets the remainder of the division.
    """
    common = tuple(v for v in parts[0].scope if all(v in p.scope for p in parts))
    least = []
    for part in parts:
        others = tuple(k for k, v in enumerate(part.scope) if v not in common)
        least.append(part.values.min(axis=others))
    # A pattern that one part excludes is excluded in all of them.
    impossible = np.any(np.isinf(least), axis=0)
    least = [np.where(impossible, 0.0, mu) for mu in least]
    _refuse_inexact(4 * sum(part.reach for part in parts))
    total = np.sum(least, axis=0)
    shares = [np.floor(total / len(parts))] * len(parts)
    shares[0] = total - shares[0] * (len(parts) - 1)
    made = []
    for part, mu, share in zip(parts, least, shares, strict=True):
        change = np.where(impossible, np.inf, share - mu)
        values = part.values + _spread(change, common, part.scope)
        reach = int(np.abs(values).max(initial=0, where=np.isfinite(values)))
        made.append(SignTable(part.scope, values, reach))
    return made
