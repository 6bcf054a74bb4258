r"""Linear programs over the rationals: the basis of a float solver, solved and checked exactly.

    min c.z   s.t.   row_lower <= A z <= row_upper,   lower <= z <= upper

A basis is a set of variables and rows that are free; the others are at a bound.  The remaining
square system is solved in rational arithmetic, which gives an exact vertex and exact multipliers.
If the vertex is feasible and the multipliers have the right signs, it is optimal.  This check is
the proof: the float solver is not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.regions.linear_program import HighsModel, LinearProgram

Bound = Fraction | None


@dataclass(frozen=True)
class ExactProgram:
    """A program as above; a row is {column: coefficient}, and None is the absence of a bound."""

    cost: Sequence[Fraction]
    rows: Sequence[dict[int, Fraction]]
    row_lower: Sequence[Bound]
    row_upper: Sequence[Bound]
    lower: Sequence[Fraction]
    upper: Sequence[Fraction]


@dataclass(frozen=True)
class ExactOptimum:
    """An optimal vertex, its value, and one multiplier for each row."""

    point: tuple[Fraction, ...]
    value: Fraction
    multipliers: tuple[Fraction, ...]


def _to_floats(program: ExactProgram) -> LinearProgram:
    entries = [(float(c), i, j) for i, row in enumerate(program.rows) for j, c in row.items() if c]
    data, rows, columns = np.array(entries).reshape(-1, 3).T
    at = rows.astype(np.int64), columns.astype(np.int64)
    shape = (len(program.rows), len(program.cost))
    return LinearProgram(
        cost=np.array([float(c) for c in program.cost]),
        matrix=sp.coo_array((data, at), shape=shape).tocsr(),
        row_lower=np.array([-np.inf if b is None else float(b) for b in program.row_lower]),
        row_upper=np.array([np.inf if b is None else float(b) for b in program.row_upper]),
        lower=np.array([float(b) for b in program.lower]),
        upper=np.array([float(b) for b in program.upper]),
        integer=np.zeros(shape[1], dtype=bool),
    )


def _flint(value: Fraction) -> flint.fmpq:
    return flint.fmpq(value.numerator, value.denominator)


def _fraction(value: flint.fmpq) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def solve_exactly(program: ExactProgram, deadline: Deadline) -> ExactOptimum | None:
    """Return a proven optimum, or None if the basis of the float solver is not optimal."""
    floats = _to_floats(program)
    model = HighsModel(floats, {"presolve": "off", "solver": "simplex"})
    solution = model.solve(deadline)
    if solution.status != "optimal" or solution.point is None:
        return None
    columns, basic_rows = model.basis()
    basic = set(columns)
    tight = sorted(set(range(len(program.rows))) - set(basic_rows))
    if len(tight) != len(columns):
        return None
    point: list[Fraction] = []
    for j, (lo, hi) in enumerate(zip(program.lower, program.upper, strict=True)):
        at_upper = abs(solution.point[j] - float(hi)) < abs(solution.point[j] - float(lo))
        point.append(Fraction(0) if j in basic else hi if at_upper else lo)
    values = np.asarray(floats.matrix @ solution.point)
    at_lower = np.abs(values - floats.row_lower) <= np.abs(values - floats.row_upper)
    sides = []
    for i in tight:
        side = program.row_lower[i] if at_lower[i] else program.row_upper[i]
        if side is None:
            return None
        sides.append(side)
    multipliers = [Fraction(0)] * len(program.rows)
    if tight:
        place = {j: k for k, j in enumerate(columns)}
        square = flint.fmpq_mat(len(tight), len(columns))
        rest = flint.fmpq_mat(len(tight), 1)
        for r, i in enumerate(tight):
            total = sides[r]
            for j, c in program.rows[i].items():
                if j in place:
                    square[r, place[j]] = _flint(c)
                else:
                    total -= c * point[j]
            rest[r, 0] = _flint(total)
        costs = flint.fmpq_mat(len(columns), 1)
        for k, j in enumerate(columns):
            costs[k, 0] = _flint(program.cost[j])
        try:
            free = square.solve(rest)
            dual = square.transpose().solve(costs)
        except ZeroDivisionError:
            return None
        for k, j in enumerate(columns):
            point[j] = _fraction(free[k, 0])
        for r, i in enumerate(tight):
            multipliers[i] = _fraction(dual[r, 0])
    rows = [sum((c * point[j] for j, c in row.items()), Fraction(0)) for row in program.rows]
    if not _is_feasible(program, point, rows):
        return None
    if not _is_dual_feasible(program, point, rows, multipliers):
        return None
    value = sum((c * z for c, z in zip(program.cost, point, strict=True) if c), Fraction(0))
    return ExactOptimum(tuple(point), value, tuple(multipliers))


def _is_feasible(
    program: ExactProgram, point: Sequence[Fraction], values: Sequence[Fraction]
) -> bool:
    """Check all bounds of a point and of the values of its rows."""
    inside = all(
        lo <= z <= hi for z, lo, hi in zip(point, program.lower, program.upper, strict=True)
    )
    return inside and all(
        (lo is None or lo <= v) and (hi is None or v <= hi)
        for v, lo, hi in zip(values, program.row_lower, program.row_upper, strict=True)
    )


def _is_dual_feasible(
    program: ExactProgram,
    point: Sequence[Fraction],
    values: Sequence[Fraction],
    multipliers: Sequence[Fraction],
) -> bool:
    """Check the signs of multipliers and complementary slackness at a feasible point."""
    reduced = list(program.cost)
    for i, y in enumerate(multipliers):
        if y == 0:
            continue
        if y > 0 and values[i] != program.row_lower[i]:
            return False
        if y < 0 and values[i] != program.row_upper[i]:
            return False
        for j, c in program.rows[i].items():
            reduced[j] -= y * c
    return all(
        d == 0 or (d > 0 and z == lo) or (d < 0 and z == hi)
        for d, z, lo, hi in zip(reduced, point, program.lower, program.upper, strict=True)
    )
