r"""The reduced relaxation: the last layer as tables, the input as conflicting pairs.

Let z = (1, x) hold the variables of all layers but the last.  A neuron depends on the layers below
only through the integer u = w.x on a lattice Lo, Lo + 2, .., U.  Two eliminations are exact:

* *last layer*: neurons with the same row w (or -w) are one table  phi(u) = sum d_j sign_j(u), and
  any quadratic  a + b u + c u^2 <= phi(u) on the lattice can replace it in f.  In the primal this
  is a distribution over the lattice with mean w.E[x] and second moment w'E[xx']w, which is the
  strongest consequence of these two moments, and at least as strong as the 3 x 3 block with the
  paper's four inequalities at integer thresholds.
* *hidden layers above the first*: x_j = sign_j(u) gives the valid inequalities
  a + b u + c u^2 + e x_j + g x_j u <= 0 on the lattice.

The *input* appears only through conflicting pairs of signs, (1 + s x_a)(1 + t x_b) = 0.  The
remaining quadratic form in z is bounded by  T >= 0  and diag(zz') = 1:

    f >= sum a_j + sum kappa_i     if   T = Q - diag(kappa) - sum pi_e (1 + s x_a)(1 + t x_b) >= 0

All values of b, c, e, g, kappa and pi give a bound: a_j is the minimum over the lattice, and a
negative eigenvalue of T lowers the bound by (1 + n) times its size.

A table that is split by a sign (`table_splits`) has the quadratic of a gate below its phi.

A table with phi = 0 is a valid inequality by itself: with u = s x_a + t x_b it is the product
(1 + s x_a)(1 + t x_b) >= 0, with three terms the triangle inequalities.

With a coupling, z = (1, x, y) contains the input, too.  First-layer variables are gates over
v = R.y,  a + b v + e x_j + g x_j v <= 0,  and sum kappa_i includes y, whose squares are at most 1.
For a ball the sum of the squares is bounded, and the sum of kappa becomes a minimum.

For general solvers it has a conic form,

    max  sum theta_j0 + sum kappa_i   s.t.   value - feature.theta >= 0,   T(theta, kappa, pi) >= 0

written over y = (theta, kappa, pi) with the tables as non-negative rows and T as one block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.coupling import Coupling
from bnncert.engine.relaxations.reduced.dual_point import DualPoint
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.solvers.conic import ConicProgram, pack
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    Tables,
)

#: The gap, as a share of the spacing of the values of f, at which the solver may stop.
LATTICE_GAP = 0.02


@dataclass(frozen=True, eq=False)
class ReducedRelaxation:
    """A reduced problem as a scaled structured program, with the units of its multipliers."""

    problem: ReducedProblem
    program: StructuredProgram
    scale: float
    table_norm: FloatArray
    gate_norm: FloatArray
    input_norm: FloatArray
    cut_norm: FloatArray

    def value(self, value: float) -> float:
        """Return a value of the program in the units of f, minus the slack."""
        return value * self.scale + (self.problem.constant - self.problem.slack)

    def goal(self, value: float) -> float:
        """Return the value of the program at which f minus the slack is the given value."""
        return (value - (self.problem.constant - self.problem.slack)) / self.scale

    def bound(self, multipliers: StructuredMultipliers) -> float:
        """Return the lower bound of f that these multipliers prove, rounding included."""
        return self.dual_point(multipliers).bound(self.problem)

    def dual_point(self, multipliers: StructuredMultipliers) -> DualPoint:
        """Return the multipliers in the units of the problem."""
        problem, whole, splits = self.problem, self.problem.whole, self.problem.splits
        n, g, h, c = self.table_norm[whole], self.gate_norm, self.input_norm, self.cut_norm
        units = [(n, n**2), (g, g**2, np.ones_like(g), g)]
        if splits is not None:
            n = self.table_norm[splits.tables]
            units.append((n, n**2, np.ones_like(n), n))
        units += [] if problem.coupling is None else [(h, np.ones_like(h), h)]
        units += [] if problem.cuts is None else [(c,)]
        found = [
            theta[:, 1:] * self.scale / np.stack(unit, axis=1)
            for theta, unit in zip(multipliers.theta, units, strict=True)
        ]
        diagonal, pair = multipliers.kappa * self.scale, multipliers.pi * self.scale
        table = np.zeros((self.table_norm.size, 2))
        table[whole] = found[0]
        point = DualPoint(table, found[1], diagonal, pair)
        if splits is not None:
            table[splits.tables], split = np.hsplit(found[2], 2)
            point = replace(point, split=split)
        if problem.cuts is not None:
            # The multiplier of z'Cz in T is negative, or 0 up to the solver's accuracy.
            point = replace(point, cut=np.maximum(0.0, -found.pop()[:, 0]))
        return point if problem.coupling is None else replace(point, input=found[-1])


def relax_reduced(problem: ReducedProblem) -> ReducedRelaxation:
    """Return the structured program of a reduced problem."""
    n, coupling = problem.size, problem.coupling
    table_norm, gate_norm = _norms(problem.table.rows), _norms(problem.gates.rows)
    input_norm = np.zeros(0) if coupling is None else np.sqrt((coupling.rows**2).sum(axis=1))
    more = 0 if coupling is None else coupling.size
    first_gate = table_norm.size
    first_input = first_gate + gate_norm.size
    unit = first_input + input_norm.size
    rows = np.zeros((unit, n + 1 + more))
    rows[:first_gate, 1 : n + 1] = problem.table.rows / table_norm[:, None]
    rows[first_gate:first_input, 1 : n + 1] = problem.gates.rows / gate_norm[:, None]
    scale = _scale(problem)
    families = [
        _last_layer(problem, table_norm, scale, unit),
        _hidden_layers(problem, gate_norm, first_gate, unit),
    ]
    if problem.splits is not None:
        families.append(_split_tables(problem, table_norm, scale, unit))
    if coupling is not None:
        rows[first_input:, n + 1 :] = coupling.rows / input_norm[:, None]
        families.append(_input_tables(coupling, input_norm, first_input, unit))
    cut_norm = np.zeros(0)
    if problem.cuts is not None:
        cut_norm = np.sqrt((problem.cuts.forms**2).sum(axis=(1, 2))) + 1e-300
        families.append(_cut_tables(problem.cuts, cut_norm, n + 1 + more))
    literals = np.unique(np.concatenate([problem.pair_first, problem.pair_second]))
    start = unit + n + 1 + more

    def where(index: IntArray) -> IntArray:
        return np.asarray(start + np.searchsorted(literals, index), dtype=np.int64)

    program = StructuredProgram(
        linear=np.concatenate([[0.0], problem.linear / scale, np.zeros(more)]),
        rows=rows,
        tables=tuple(families),
        pair_unit=variable_of(literals) + 1,
        pair_sign=sign_of(literals).astype(np.float64),
        pair_left=where(problem.pair_first),
        pair_right=where(problem.pair_second),
        shared=more if coupling is not None and coupling.is_ball else 0,
    )
    norms = table_norm, gate_norm, input_norm, cut_norm
    return ReducedRelaxation(problem, program, scale, *norms)


def _scale(problem: ReducedProblem) -> float:
    """Return the unit of the values of f: the mean range of its terms."""
    values = problem.values
    spread = values.max(axis=1, initial=-np.inf) - values.min(axis=1, initial=np.inf)
    sizes = np.concatenate([spread[spread > 0], np.abs(problem.linear)])
    return float(sizes.mean()) if sizes.size and sizes.mean() > 0 else 1.0


def _last_layer(problem: ReducedProblem, norm: FloatArray, scale: float, unit: int) -> Tables:
    """Return the tables of the last layer that are whole, with the features u and u^2."""
    own = problem.whole
    u = problem.table.points[own] / norm[own, None]
    one = np.full(own.size, unit)
    return Tables(
        problem.values[own] / scale,
        np.stack([np.ones_like(u), u, u * u], axis=2),
        np.stack([one, own], axis=1),
        np.stack([own, own], axis=1),
    )


def _hidden_layers(problem: ReducedProblem, norm: FloatArray, first: int, unit: int) -> Tables:
    """Return the gates over signs; rows from `first`."""
    v, own = problem.gates.points / norm[:, None], first + np.arange(norm.size)
    return _with_sign(np.zeros_like(v), v, problem.gate_signs, own, problem.outputs, unit)


def _split_tables(problem: ReducedProblem, norm: FloatArray, scale: float, unit: int) -> Tables:
    """Return the tables of the last layer that are split."""
    splits = problem.splits
    assert splits is not None
    v = splits.points / norm[splits.tables, None]
    return _with_sign(splits.values / scale, v, splits.signs, splits.tables, splits.variables, unit)


def _with_sign(
    values: FloatArray, v: FloatArray, x: FloatArray, own: IntArray, variables: IntArray, unit: int
) -> Tables:
    """Return tables with the features v, v^2, x and x v, x being one of the variables each."""
    one, out = np.full(own.size, unit), unit + 1 + variables
    return Tables(
        values,
        np.stack([np.ones_like(v), v, v * v, x, x * v], axis=2),
        np.stack([one, own, one, out], axis=1),
        np.stack([own, own, out, own], axis=1),
    )


def _input_tables(coupling: Coupling, norm: FloatArray, first: int, unit: int) -> Tables:
    """Return the gates over the input: v, x and x v at the four ends; rows from `first`."""
    v = coupling.points / norm[:, None]
    x = np.broadcast_to(coupling.SIGNS, v.shape)
    own = first + np.arange(norm.size)
    one = np.full(norm.size, unit)
    out = unit + 1 + coupling.outputs
    return Tables(
        np.zeros_like(v),
        np.stack([np.ones_like(v), v, x, x * v], axis=2),
        np.stack([one, one, out], axis=1),
        np.stack([own, out, own], axis=1),
    )


def _cut_tables(cuts: InputCuts, norm: FloatArray, size: int) -> Tables:
    """Return  0 <= z'Cz <= the sum of all |C_ab|  for every cut, z having that size."""
    count, own, _ = cuts.forms.shape
    forms = np.zeros((count, size, size))
    forms[:, :own, :own] = cuts.forms / norm[:, None, None]
    value = np.zeros((count, 2))
    value[:, 1] = np.abs(forms).sum(axis=(1, 2))
    nothing = np.zeros((count, 1), dtype=np.int64)
    features = np.stack([np.ones_like(value), value], axis=2)
    return Tables(np.zeros_like(value), features, nothing, nothing, forms)


def _norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(1.0, np.sqrt((rows**2).sum(axis=1))))


class _Matrix:
    """The matrix A, collected entry by entry; its semidefinite block begins at row `first`."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.rows: list[IntArray] = []
        self.columns: list[IntArray] = []
        self.values: list[FloatArray] = []

    def put(self, rows: IntArray, columns: IntArray, values: FloatArray) -> None:
        """Add entries."""
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(values)

    def put_product(self, left: FloatArray, right: FloatArray, column: int, sign: float) -> None:
        """Add sign * sym(left, right) to the coefficient of a variable in T; s = b - A y."""
        used = np.flatnonzero((left != 0) | (right != 0))
        i, j = np.tril_indices(used.size)
        entry = (left[used[i]] * right[used[j]] + left[used[j]] * right[used[i]]) / 2
        kept = entry != 0
        i, j, entry = used[i[kept]], used[j[kept]], entry[kept]
        scale = np.where(i == j, 1.0, np.sqrt(2.0))
        self.put(self._place(i, j), np.full(i.size, column), -sign * entry * scale)

    def put_form(self, form: FloatArray, column: int) -> None:
        """Let T gain a matrix per unit of a variable."""
        i, j = np.nonzero(np.tril(form))
        scale = np.where(i == j, 1.0, np.sqrt(2.0))
        self.put(self._place(i, j), np.full(i.size, column), -form[i, j] * scale)

    def put_tables(self, tables: Tables, vectors: FloatArray, row: int, column: int) -> None:
        """Add the slacks of a family of tables, from `row`, and the links of its features."""
        width, points = tables.links + 1, tables.values.shape[1]
        cells = row + np.arange(tables.values.size)
        for f in range(width):
            own = column + np.repeat(np.arange(tables.count) * width + f, points)
            self.put(cells, own, tables.features[:, :, f].ravel())
        if tables.forms is not None:
            for j, form in enumerate(tables.forms):
                self.put_form(form, column + j * width + 1)
            return
        for j, (left, right) in enumerate(zip(tables.left, tables.right, strict=True)):
            for f in range(tables.links):
                place = column + j * width + f + 1
                self.put_product(vectors[left[f]], vectors[right[f]], place, 1.0)

    def put_diagonal(self, size: int, column: int) -> None:
        """Subtract one variable from each entry of T's diagonal."""
        i = np.arange(size)
        self.put(self._place(i, i), column + i, np.ones(size))

    def _place(self, i: IntArray, j: IntArray) -> IntArray:
        """Return the rows of the entries (i, j) of T, i >= j."""
        return np.asarray(self.first + i * (i + 1) // 2 + j)


def conic_program(program: StructuredProgram) -> ConicProgram:
    """Return the dual of a structured program as a conic program in the multipliers."""
    size, vectors = program.size, program.vectors
    matrix = _Matrix(sum(t.values.size for t in program.tables))
    costs: list[FloatArray] = []
    row, column = 0, 0
    for tables in program.tables:
        matrix.put_tables(tables, vectors, row, column)
        costs.append(np.tile(np.append(-1.0, np.zeros(tables.links)), tables.count))
        row += tables.values.size
        column += costs[-1].size
    matrix.put_diagonal(size, column)
    first_pair = column + size
    for k, (a, b) in enumerate(zip(program.pair_left, program.pair_right, strict=True)):
        matrix.put_product(vectors[a], vectors[b], first_pair + k, -1.0)
    cost = np.concatenate([*costs, -np.ones(size), np.zeros(program.pair_left.size)])
    where = np.concatenate(matrix.columns)
    if program.shared > 1:
        # Entries of the diagonal that share a multiplier share a column.
        lead = first_pair - program.shared
        move = np.arange(cost.size)
        move[lead:first_pair] = lead
        move[first_pair:] -= program.shared - 1
        where = move[where]
        cost = np.concatenate([cost[:lead], [cost[lead:first_pair].sum()], cost[first_pair:]])
    right = np.concatenate([*(t.values.ravel() for t in program.tables), pack(program.base)])
    entries = np.concatenate(matrix.values), (np.concatenate(matrix.rows), where)
    sparse = sp.coo_array(entries, shape=(right.size, cost.size)).tocsr()
    return ConicProgram(cost, sparse, right, row, (size,))


def multipliers_of(program: StructuredProgram, primal: FloatArray) -> StructuredMultipliers:
    """Return the multipliers of a solution of the conic program."""
    theta = []
    start = 0
    for tables in program.tables:
        width = tables.links + 1
        stop = start + tables.count * width
        theta.append(primal[start:stop].reshape(tables.count, width))
        start = stop
    single = program.size - program.shared
    stop = start + single + min(program.shared, 1)
    shared = np.repeat(primal[start + single : stop], program.shared)
    return StructuredMultipliers(
        theta, np.append(primal[start : start + single], shared), primal[stop:]
    )
