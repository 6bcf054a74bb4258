r"""The reduced relaxation in conic form, for general solvers.

    max  sum theta_j0 + sum kappa_i   s.t.   value - feature.theta >= 0,   T(theta, kappa, pi) >= 0

is written over y = (theta, kappa, pi) with the tables as non-negative rows and T as one block.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.solvers.conic import ConicProgram, pack
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    Tables,
)


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
