r"""A reduced problem with some of its signs fixed.

Fixing x_a = s makes every literal that conflicts with it false.  A sum u = w.x then consists of a
constant and a free part; the remaining points of its lattice may fix the output of a gate.  This is
repeated until nothing changes.  Tables that have become constant are added to the constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.engine.presolve.conflicts import sum_ranges
from bnncert.engine.presolve.literals import both_literals, literal, variable_of
from bnncert.engine.presolve.triples import Triples
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem, packed, widen
from bnncert.engine.search.clauses import ClauseSet

#: With more variables the cubic table of triples is too large for memory.
MOST_CUBIC = 150

#: Tolerance for comparing integers that are stored as floats.
HALF = 0.5


@dataclass(frozen=True, eq=False)
class Restriction:
    """The restricted problem: `free` are its variables in the old one, `signs` all fixed signs.

    `tables` and `gates` are the numbers of the remaining ones in the old problem (a gate that
    became a table is numbered after the tables); the shifts are the parts of their sums that the
    fixed signs contribute.
    """

    problem: ReducedProblem
    free: IntArray
    signs: SignArray
    tables: IntArray
    table_shift: FloatArray
    gates: IntArray
    gate_shift: FloatArray


class Restrictor:
    """Restricts one problem to the nodes of a tree."""

    def __init__(self, problem: ReducedProblem) -> None:
        self.problem = problem
        self.excluded: BoolArray = problem.excluded.copy()
        self.triples: BoolArray | None = None
        if problem.triples.size and problem.size <= MOST_CUBIC:
            self.triples = Triples(problem.triples, problem.triples).table(problem.size)
        self.clauses = ClauseSet()

    def learn(self, literals: IntArray) -> bool:
        """Add a clause: literals that cannot all hold; False if it was known."""
        if literals.size != 2:
            return self.clauses.add(literals)
        first, second = literals.tolist()
        known = bool(self.excluded[first, second])
        self.excluded[first, second] = self.excluded[second, first] = True
        return not known

    def broken_by(self, patterns: SignArray, chosen: IntArray) -> BoolArray:
        """Return which rows of signs violate a clause, or a pair among the chosen variables."""
        holds = np.stack([patterns[:, chosen] > 0, patterns[:, chosen] < 0], axis=2)
        holds = holds.reshape(patterns.shape[0], 2 * chosen.size)
        literals = both_literals(chosen)
        excluded = self.excluded[np.ix_(literals, literals)].astype(np.float32)
        met = holds.astype(np.float32) @ excluded > 0
        return np.asarray(np.any(met & holds, axis=1) | self.clauses.broken_by(patterns))

    def propagate(self, signs: SignArray) -> SignArray | None:
        """Return all implied signs, or None for a contradiction."""
        signs = signs.copy()
        while True:
            before = signs.copy()
            fixed = np.flatnonzero(signs)
            true = literal(fixed, signs[fixed])
            excluded = self._given(true)
            false = np.asarray(excluded[true].any(axis=0))
            if false[true].any() or np.any(false[0::2] & false[1::2]):
                return None
            signs[false[1::2]] = 1
            signs[false[0::2]] = -1
            if not self.clauses.propagate(signs) or not self._gates(signs):
                return None
            if np.array_equal(signs, before):
                return signs

    def _given(self, true: IntArray) -> BoolArray:
        """Return which literals exclude each other if those in `true` hold."""
        if self.triples is None or not true.size:
            return self.excluded
        return np.asarray(self.excluded | self.triples[true].any(axis=0))

    def _gates(self, signs: SignArray) -> bool:
        gates = self.problem.gates
        if not gates.rows.shape[0]:
            return True
        shift = gates.rows @ signs
        reach = np.abs(gates.rows) @ (signs == 0)
        possible = np.abs(gates.points - shift[:, None]) <= reach[:, None] + HALF
        own = signs[self.problem.outputs]
        possible &= (own[:, None] == 0) | (self.problem.gate_signs == own[:, None])
        if not possible.any(axis=1).all():
            return False
        plus = (possible & (self.problem.gate_signs > 0)).any(axis=1)
        minus = (possible & (self.problem.gate_signs < 0)).any(axis=1)
        settled = (plus != minus) & (own == 0)
        signs[self.problem.outputs[settled]] = np.where(plus[settled], 1, -1)
        return True

    def restrict(self, signs: SignArray) -> Restriction | None:
        """Return the problem after fixing signs and all that they imply; None if they conflict."""
        known = self.propagate(signs)
        if known is None:
            return None
        problem = self.problem
        free = np.flatnonzero(known == 0)
        place = np.full(problem.size, -1, dtype=np.int64)
        place[free] = np.arange(free.size)
        constant = problem.constant + float(problem.linear @ known)
        fixed = np.flatnonzero(known)
        given = self._given(literal(fixed, known[fixed]))
        pairs = with_interior(given[np.ix_(both_literals(free), both_literals(free))])
        first, second = np.nonzero(np.triu(pairs, 1))
        distinct = variable_of(first) != variable_of(second)
        table = _restrict_lattice(problem.table, known, free, pairs)
        rows, points, values, tables, added = _live_tables(problem, table, problem.values)
        gates = self._restricted_gates(known, free, pairs)
        if added is None or gates is None:
            return None
        # A gate whose output is fixed still bounds its sum.
        width = points.shape[1]
        if problem.gates.rows.shape[0]:
            width = max(width, problem.gates.points.shape[1])
        idle = gates.idle
        left = ReducedProblem(
            variables=problem.variables[free],
            constant=constant + added,
            # Constants are summed once more; for integers both slacks are zero.
            slack=2 * problem.slack,
            linear=problem.linear[free],
            table=Lattice(
                np.vstack([rows, gates.idle_rows]),
                np.vstack([widen(points, width), widen(gates.idle_points, width)]),
            ),
            values=np.vstack([widen(values, width), np.zeros((idle.size, width))]),
            gates=gates.lattice,
            gate_signs=gates.signs,
            outputs=place[problem.outputs[gates.live]],
            pair_first=first[distinct].astype(np.int64),
            pair_second=second[distinct].astype(np.int64),
            cuts=None if problem.cuts is None else problem.cuts.restricted(known, free),
        )
        tables = np.append(tables, problem.table.rows.shape[0] + idle)
        shift = np.append(table[2][tables[: rows.shape[0]]], gates.shift[idle])
        return Restriction(left, free, known, tables, shift, gates.live, gates.shift[gates.live])

    def _restricted_gates(
        self, known: SignArray, free: IntArray, pairs: BoolArray
    ) -> _RestrictedGates | None:
        """Return the gates after fixing signs, or None if one has no possible sum."""
        gates, signs = self.problem.gates, self.problem.gate_signs
        possible, rows, shift = _restrict_lattice(gates, known, free, pairs)
        own = known[self.problem.outputs]
        possible &= (own[:, None] == 0) | (signs == own[:, None])
        if not possible.any(axis=1).all():
            return None
        live = np.flatnonzero(own == 0)
        idle = np.flatnonzero((own != 0) & (rows != 0).any(axis=1))

        def points(chosen: IntArray) -> FloatArray:
            return packed(gates.points[chosen] - shift[chosen, None], possible[chosen])

        lattice = Lattice(rows[live], points(live))
        live_signs = packed(signs[live], possible[live])
        return _RestrictedGates(live, idle, lattice, live_signs, rows[idle], points(idle), shift)


@dataclass(frozen=True, eq=False)
class _RestrictedGates:
    """Gates with a free output (`live`), and with a fixed one but free inputs (`idle`)."""

    live: IntArray
    idle: IntArray
    lattice: Lattice
    signs: FloatArray
    idle_rows: FloatArray
    idle_points: FloatArray
    shift: FloatArray


def with_interior(pairs: BoolArray) -> BoolArray:
    """Remove one of every two conflicting pairs that make variables equal or opposite.

    With both of them the set of moment matrices has no interior, which the solver needs.
    """
    size = pairs.shape[0] // 2
    kept: BoolArray = pairs.copy()
    for t, place in ((-1, 1), (1, 0)):
        both = pairs[0::2, place::2] & pairs[1::2, 1 - place :: 2]
        both &= np.triu(np.ones((size, size), dtype=bool), 1)
        a, b = np.nonzero(both)
        first, second = literal(a, -1), literal(b, -t)
        kept[first, second] = kept[second, first] = False
    return kept


def sum_of_minima(problem: ReducedProblem) -> float:
    """Return a lower bound of f: the sum of the least values of all its parts."""
    least = problem.values.min(axis=1, initial=np.inf).sum() if problem.values.size else 0.0
    size = float(np.abs(problem.values).max(axis=1, initial=0.0).sum()) + abs(problem.constant)
    size += float(np.abs(problem.linear).sum())
    rounding = (problem.values.shape[0] + problem.size + 8) * 2.0**-51 * size
    rounding = 0.0 if problem.slack == 0 else rounding
    total = problem.constant + float(least) - float(np.abs(problem.linear).sum())
    return total - rounding - problem.slack


def _restrict_lattice(
    lattice: Lattice, known: SignArray, free: IntArray, pairs: BoolArray
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return the remaining points, the rows over the free variables, and the fixed parts."""
    shift = lattice.rows @ known
    rows = lattice.rows[:, free]
    low, high = sum_ranges(sp.csr_array(rows), pairs)
    inner = lattice.points - shift[:, None]
    possible = (inner >= low[:, None] - HALF) & (inner <= high[:, None] + HALF)
    return possible, rows, shift


def _live_tables(
    problem: ReducedProblem,
    restricted: tuple[BoolArray, FloatArray, FloatArray],
    values: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray, float | None]:
    """Return the tables that are not constant, their numbers, and the sum of the constant ones."""
    possible, rows, shift = restricted
    if not possible.any(axis=1).all():
        return rows, problem.table.points, values, np.zeros(0, dtype=np.int64), None
    high = np.where(possible, values, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(possible, values, np.inf).min(axis=1, initial=np.inf)
    bounds_something = values.any(axis=1) == 0
    dead = (high == low) & ~bounds_something
    dead |= ~(rows != 0).any(axis=1)
    live = np.flatnonzero(~dead)
    points = packed(problem.table.points[live] - shift[live, None], possible[live])
    rest = float(low[dead].sum())
    return rows[live], points, packed(values[live], possible[live]), live, rest
