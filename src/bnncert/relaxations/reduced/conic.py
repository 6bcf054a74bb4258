r"""The reduced relaxation in conic form, for general solvers: the same program, the same bound.

    max  sum theta_j0 + sum kappa_i   s.t.   value - feature.theta >= 0,   T(theta, kappa, pi) >= 0

is written over y = (theta, kappa, pi) with the tables as non-negative rows and T as one block.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.solvers.conic import ConicProgram
from bnncert.solvers.structured_program import StructuredMultipliers, StructuredProgram


def conic_program(program: StructuredProgram) -> ConicProgram:
    """Return the dual of a structured program as a conic program in the multipliers."""
    size = program.size
    counts = [t.count * (t.links + 1) for t in program.tables]
    columns = sum(counts) + size + program.pair_left.size
    triangle = size * (size + 1) // 2
    nonnegative = sum(t.values.size for t in program.tables)
    rows: list[IntArray] = []
    places: list[IntArray] = []
    values: list[FloatArray] = []
    right = np.zeros(nonnegative + triangle)
    cost = np.zeros(columns)
    row, column = 0, 0
    vectors = program.vectors

    def put(r: IntArray, c: IntArray, v: FloatArray) -> None:
        rows.append(r)
        places.append(c)
        values.append(v)

    def put_product(left: FloatArray, other: FloatArray, where: int, sign: float) -> None:
        """T gains sign * sym(left, other) per unit of variable `where`; s = b - A y."""
        used = np.flatnonzero((left != 0) | (other != 0))
        i, j = np.tril_indices(used.size)
        entry = (left[used[i]] * other[used[j]] + left[used[j]] * other[used[i]]) / 2
        kept = entry != 0
        i, j, entry = used[i[kept]], used[j[kept]], entry[kept]
        scale = np.where(i == j, 1.0, np.sqrt(2.0))
        r = nonnegative + i * (i + 1) // 2 + j
        put(r, np.full(r.size, where), -sign * entry * scale)

    for tables in program.tables:
        width = tables.links + 1
        points = tables.values.shape[1]
        cells = tables.count * points
        right[row : row + cells] = tables.values.ravel()
        for f in range(width):
            own = column + np.repeat(np.arange(tables.count) * width + f, points)
            put(row + np.arange(cells), own, tables.features[:, :, f].ravel())
        for j in range(tables.count):
            for f in range(tables.links):
                put_product(
                    vectors[tables.left[j, f]],
                    vectors[tables.right[j, f]],
                    column + j * width + f + 1,
                    1.0,
                )
        cost[column + np.arange(tables.count) * width] = -1.0
        row += cells
        column += tables.count * width
    cost[column : column + size] = -1.0
    diagonal = np.arange(size)
    put(nonnegative + diagonal * (diagonal + 1) // 2 + diagonal, column + diagonal, np.ones(size))
    column += size
    for k, (a, b) in enumerate(zip(program.pair_left, program.pair_right, strict=True)):
        put_product(vectors[a], vectors[b], column + k, -1.0)
    base = np.zeros((size, size))
    base[0, :] += program.linear / 2
    base[:, 0] += program.linear / 2
    lower = np.tril_indices(size)
    right[nonnegative:] = base[lower] * np.where(lower[0] == lower[1], 1.0, np.sqrt(2.0))
    where = np.concatenate(places)
    if program.shared > 1:
        # Entries of the diagonal with one multiplier are one column.
        stop = sum(counts) + size
        lead = stop - program.shared
        move = np.arange(columns)
        move[lead:stop] = lead
        move[stop:] -= program.shared - 1
        where = move[where]
        columns -= program.shared - 1
        cost = np.concatenate([cost[:lead], [cost[lead:stop].sum()], cost[stop:]])
    matrix = sp.coo_array(
        (np.concatenate(values), (np.concatenate(rows), where)), shape=(right.size, columns)
    ).tocsr()
    return ConicProgram(cost, matrix, right, nonnegative, (size,))


def multipliers_of(program: StructuredProgram, primal: FloatArray) -> StructuredMultipliers:
    """Return the multipliers that a solution of the conic program stands for."""
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
