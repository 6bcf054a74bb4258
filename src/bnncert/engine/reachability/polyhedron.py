r"""Feasibility check in rational arithmetic, for polyhedral regions.

Given signs s_j for some neurons of layer 1, look for x in B with s_j (w_j.x + b_j) >= 0, strictly
where sign(0) is the other sign.  Maximising the smallest margin t is an LP:

    t > 0: feasible;   t < 0: infeasible, and the multipliers name a conflicting subset of neurons;
    t = 0: only the strict inequalities need a positive margin, which is a second LP.

A linear program over the rationals takes the basis of a float solver, and checks it exactly:

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
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.regions import Region
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


#: Margins that floats of a solver cannot tell from infinity.
LARGEST = 1e300


@dataclass(frozen=True)
class _Polyhedron:
    """x = base + sum of variables; rows and bounds on the variables, all exact."""

    lower: list[Fraction]
    upper: list[Fraction]
    rows: list[dict[int, Fraction]]
    right: list[Bound]
    #: For each input: (its columns with their sign, its constant).
    inputs: Sequence[tuple[tuple[tuple[int, int], ...], Fraction]]


def _polyhedron(region: Region) -> _Polyhedron:
    if region.norm == "l2":
        raise ValueError("the L2 ball is not polyhedral")
    zero = Fraction(0)
    low, high = ([Fraction(v) for v in side.tolist()] for side in (region.lo, region.hi))
    n = len(low)
    if region.norm is None:
        matrix, limits = region.inequalities
        rows = [{j: Fraction(c) for j, c in enumerate(r) if c} for r in matrix.tolist()]
        right: list[Bound] = [Fraction(b) for b in limits.tolist()]
        return _Polyhedron(low, high, rows, right, [(((i, 1),), zero) for i in range(n)])
    middle = [Fraction(c) for c in region.middle.tolist()]
    limit = Fraction(region.radius)
    if region.norm != "l0":
        # The bounding box is rounded outwards; m - r and m + r are exact here.
        low = [max(a, m - limit) for a, m in zip(low, middle, strict=True)]
        high = [min(b, m + limit) for b, m in zip(high, middle, strict=True)]
        if region.norm == "linf":
            return _Polyhedron(low, high, [], [], [(((i, 1),), zero) for i in range(n)])
    # x = m + v+ - v-, and the sum of all v is at most r.  In the convex hull of an L0 ball, the sum
    # of the shares of their ranges by which inputs move is at most k.
    sides = [b - m for b, m in zip(high, middle, strict=True)]
    sides += [m - a for a, m in zip(low, middle, strict=True)]
    total = dict.fromkeys(range(2 * n), Fraction(1))
    if region.norm == "l0":
        total = {j: 1 / side for j, side in enumerate(sides) if side}
    inputs = [(((i, 1), (n + i, -1)), middle[i]) for i in range(n)]
    return _Polyhedron([zero] * (2 * n), sides, [total], [limit], inputs)


def polyhedral_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Decide whether a pattern occurs in a polyhedral region."""
    bias_lo, bias_hi = pattern.layer.enclosure
    polyhedron = _polyhedron(region)
    # A pattern is impossible if no value of an enclosed bias allows it, and a point has it if all
    # values do.  For exact biases the two questions are the same.
    possible = _decide(pattern, polyhedron, deadline, certain=False)
    inexact = np.any(bias_lo[pattern.neurons] != bias_hi[pattern.neurons])
    if possible.point is None or not inexact:
        return possible
    certain = _decide(pattern, polyhedron, deadline, certain=True)
    return Feasibility(certain.point, certain.exact_point)


def _decide(
    pattern: SignPattern, polyhedron: _Polyhedron, deadline: Deadline, *, certain: bool
) -> Feasibility:
    """Decide for one side of the enclosures of the biases."""
    rows, right, strict = _inequalities(pattern, polyhedron, certain=certain)
    # s (w.x + b) >= t for all, t as large as possible.
    best = _largest_margin(polyhedron, rows, right, [True] * len(rows), deadline)
    if best is not None and best[0] == 0 and any(strict):
        best = _largest_margin(polyhedron, rows, right, strict, deadline)
        if best is not None and best[0] == 0:
            return _conflict(best[2])
    if best is None:
        return Feasibility()
    margin, point, multipliers = best
    return _conflict(multipliers) if margin < 0 else Feasibility.at(point)


def _inequalities(
    pattern: SignPattern, polyhedron: _Polyhedron, *, certain: bool
) -> tuple[list[dict[int, Fraction]], list[Fraction], list[bool]]:
    """Return row.z >= right for every neuron, and which of them are strict."""
    layer = pattern.layer
    bias_lo, bias_hi = layer.enclosure
    rows: list[dict[int, Fraction]] = []
    right: list[Fraction] = []
    strict: list[bool] = []
    # Most weights are 1 or -1, and to make a rational takes longer than all else here.
    signed: dict[float, Fraction] = {}
    for j, s in zip(pattern.neurons.tolist(), pattern.signs.tolist(), strict=True):
        start, stop = layer.weights.indptr[j], layer.weights.indptr[j + 1]
        row: dict[int, Fraction] = {}
        low_side = (s > 0) == certain
        constant = Fraction(float(bias_lo[j] if low_side else bias_hi[j]))
        data = zip(
            layer.weights.indices[start:stop].tolist(),
            layer.weights.data[start:stop].tolist(),
            strict=True,
        )
        for i, w in data:
            columns, base = polyhedron.inputs[i]
            weight = signed.setdefault(s * w, Fraction(s * w))
            if base:
                constant += s * weight * base
            for column, sign in columns:
                value = weight if sign > 0 else -weight
                row[column] = row[column] + value if column in row else value
        rows.append(row)
        right.append(-s * constant)
        inexact = bool(bias_lo[j] != bias_hi[j])
        loses_tie = layer.sign_zero == ("minus" if s > 0 else "plus")
        strict.append(certain if inexact else loses_tie)
    return rows, right, strict


def _conflict(multipliers: dict[int, Fraction]) -> Feasibility:
    if not multipliers:
        # An empty clause would exclude every pattern.
        return Feasibility()
    places = np.array(list(multipliers), dtype=np.int64)
    return Feasibility(conflict=places, multipliers=tuple(multipliers.values()))


def _largest_margin(
    polyhedron: _Polyhedron,
    rows: Sequence[dict[int, Fraction]],
    right: Sequence[Fraction],
    with_margin: Sequence[bool],
    deadline: Deadline,
) -> tuple[Fraction, tuple[Fraction, ...], dict[int, Fraction]] | None:
    """Maximise t with row.z - t >= right where `with_margin`, else row.z >= right.

    Returns t, the point, and the multipliers that are not zero.
    """
    n = len(polyhedron.lower)
    # A bound of all margins; a factor of two is far more than the rounding of its sums.
    ends = np.maximum(
        [abs(float(v)) for v in polyhedron.lower], [abs(float(v)) for v in polyhedron.upper]
    )
    sizes = (
        abs(float(b)) + sum(abs(float(c)) * ends[j] for j, c in row.items())
        for row, b in zip(rows, right, strict=True)
    )
    largest = float(max(sizes, default=0.0))
    if not largest < LARGEST:
        return None
    reach = Fraction(1 + 2 * largest)
    minus = Fraction(-1)
    program = ExactProgram(
        cost=[Fraction(0)] * n + [minus],
        rows=[
            *({**r, n: minus} if flag else r for r, flag in zip(rows, with_margin, strict=True)),
            *polyhedron.rows,
        ],
        row_lower=[*right, *([None] * len(polyhedron.rows))],
        row_upper=[*([None] * len(rows)), *polyhedron.right],
        lower=[*polyhedron.lower, -reach],
        upper=[*polyhedron.upper, reach],
    )
    optimum = solve_exactly(program, deadline)
    if optimum is None:
        return None
    inputs = tuple(
        sum((sign * optimum.point[c] for c, sign in columns), base)
        for columns, base in polyhedron.inputs
    )
    conflict = {k: abs(m) for k, m in enumerate(optimum.multipliers[: len(rows)]) if m != 0}
    return optimum.point[n], inputs, conflict
