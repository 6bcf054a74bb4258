r"""Bounds of u = w.x by linear programs over everything that presolve knows of the layers below.

    max  w.x   s.t.   -1 <= x <= 1,
         sum over C of s_i x_i <= 2 - |C|                     for cliques C of excluding literals,
         v.x >= Lo + (p - Lo) (1 + x_j) / 2                    for gates x_j = sign(v.x) below:
         v.x <= U - (U - q) (1 - x_j) / 2                      +1 needs v.x >= p, and -1 v.x <= q.

All data are integers and every inequality is written as A x <= b.  The solver's answer is not
used; its multipliers are, rounded to y = k / 2^20 with integers k >= 0, in

    w.x  <=  b.y + sum_i |w - A'y|_i ,

which is evaluated in integers, and rounded down to the lattice of u.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.conflicts import ConflictingPairs
from bnncert.presolve.literals import sign_of, variable_of
from bnncert.presolve.merging import row_keys
from bnncert.solvers.linear_maxima import LinearMaxima

#: Multipliers are rounded to multiples of 1 / GRID.
GRID = 2**20

#: Linear programs that one layer may cost.
MOST_PROGRAMS = 2000

#: Beyond this many variables, or conflicting pairs among them, each program takes too long.
MOST_VARIABLES, MOST_PAIRS = 1000, 20_000

#: Integers up to this size are exact in int64, sums of all products included.
SAFE = 2.0**61


@dataclass(frozen=True, eq=False)
class Gates:
    """Hidden neurons below: x_output = sign(v.x), with v in CSR over the variables.

    lower <= v.x <= upper;  +1 needs v.x >= plus and -1 needs v.x <= minus.  All are integers.
    """

    rows: Any
    outputs: IntArray
    lower: FloatArray
    upper: FloatArray
    plus: FloatArray
    minus: FloatArray

    @classmethod
    def none(cls, variables: int) -> Gates:
        """Return no gates."""
        nothing = np.zeros(0)
        rows = sp.csr_array((0, variables), dtype=np.int64)
        return cls(rows, np.zeros(0, dtype=np.int64), nothing, nothing, nothing, nothing)

    @classmethod
    def joined(cls, parts: list[Gates]) -> Gates:
        """Return all gates of parts over the same variables."""
        return cls(
            sp.vstack([p.rows for p in parts], format="csr"),
            np.concatenate([p.outputs for p in parts]),
            np.concatenate([p.lower for p in parts]),
            np.concatenate([p.upper for p in parts]),
            np.concatenate([p.plus for p in parts]),
            np.concatenate([p.minus for p in parts]),
        )


def clique_cover(pairs: ConflictingPairs, variables: int) -> list[list[int]]:
    """Return cliques of literals that exclude each other pairwise; together they hold all pairs."""
    table = pairs.matrix(variables)
    left = table.copy()
    cliques = []
    for a, b in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
        if not left[a, b]:
            continue
        members = [a, b]
        candidates = table[a] & table[b]
        while candidates.any():
            # New pairs first: a clique that only repeats known ones would be of little use.
            gain = left[members].sum(axis=0) * candidates
            member = int(np.argmax(gain)) if gain.any() else int(np.argmax(candidates))
            members.append(member)
            candidates &= table[member]
        left[np.ix_(members, members)] = False
        cliques.append(sorted(members))
    return cliques


def inequalities(pairs: ConflictingPairs, gates: Gates, variables: int) -> tuple[Any, IntArray]:
    """Return A (CSR) and b, all integers, with A x <= b for every pattern that can occur."""
    rows: list[IntArray] = []
    columns: list[IntArray] = []
    values: list[IntArray] = []
    right: list[int] = []

    def put(where: IntArray, what: IntArray, bound: int) -> None:
        rows.append(np.full(where.size, len(right), dtype=np.int64))
        columns.append(where)
        values.append(what)
        right.append(bound)

    for clique in clique_cover(pairs, variables):
        literals = np.array(clique, dtype=np.int64)
        put(variable_of(literals), sign_of(literals).astype(np.int64), 2 - literals.size)
    for j, output in enumerate(gates.outputs.tolist()):
        start, stop = gates.rows.indptr[j], gates.rows.indptr[j + 1]
        where = np.append(gates.rows.indices[start:stop], output).astype(np.int64)
        weights = gates.rows.data[start:stop].astype(np.int64)
        low, high = int(gates.lower[j]), int(gates.upper[j])
        plus, minus = int(gates.plus[j]), int(gates.minus[j])
        # Both inequalities times 2, so that everything stays an integer.
        put(where, np.append(-2 * weights, plus - low), -(plus + low))
        put(where, np.append(2 * weights, -(high - minus)), high + minus)
    empty = [np.zeros(0, dtype=np.int64)]
    cells = (np.concatenate(rows + empty), np.concatenate(columns + empty))
    matrix = sp.coo_array(
        (np.concatenate(values + empty), cells), shape=(len(right), variables), dtype=np.int64
    )
    return matrix.tocsr(), np.array(right, dtype=np.int64)


def proved_maximum(row: IntArray, matrix: Any, right: IntArray, multipliers: FloatArray) -> float:
    """Return the bound of w.x that these multipliers prove (infinite if they prove none).

    Parameters
    ----------
    row
        w, dense.
    matrix, right
        A and b of  A x <= b.
    multipliers
        Any numbers; those below zero count as zero.
    """
    y = np.where(np.isfinite(multipliers), np.maximum(multipliers, 0.0), 0.0) * GRID
    largest = float(y.max(initial=0.0)) + 1.0
    size = float(np.abs(row).sum()) * GRID
    size += largest * (float(np.abs(matrix.data).sum()) + float(np.abs(right).sum()))
    if not size < SAFE:
        return np.inf
    whole = np.rint(y).astype(np.int64)
    rest = row * GRID - matrix.T @ whole
    total = int(right @ whole) + int(np.abs(rest).sum())
    return float(total // GRID)


def tighten(
    rows: Any,
    low: FloatArray,
    high: FloatArray,
    wanted: IntArray,
    pairs: ConflictingPairs,
    gates: Gates,
    most: int = MOST_PROGRAMS,
) -> tuple[FloatArray, FloatArray]:
    """Return sharper (Lo, U) of u = w.x for the rows `wanted`, in order, by `most` programs.

    Parameters
    ----------
    rows
        CSR of integers, one row for each neuron, over the variables below.
    low, high
        Bounds that are known already.
    wanted
        The rows that matter; equal rows (up to sign) cost one pair of programs.
    """
    low, high = low.copy(), high.copy()
    variables = int(rows.shape[1])
    known = pairs.size + gates.outputs.size
    if not known or variables > MOST_VARIABLES or pairs.size > MOST_PAIRS:
        return low, high
    matrix, right = inequalities(pairs, gates, variables)
    side = np.ones(variables)
    # Presolve would discard the basis, and threads are of no use on programs this small.
    options = {"presolve": "off", "threads": 1, "solver": "simplex"}
    maxima = LinearMaxima(matrix.astype(np.float64), right.astype(np.float64), -side, side, options)

    def bound(row: IntArray) -> float:
        multipliers = maxima.solve(row.astype(np.float64)).multipliers
        return _on_lattice(row, proved_maximum(row, matrix, right, multipliers))

    touched = np.diff(matrix.tocsc().indptr) > 0
    part = rows[wanted]
    keys, signs = row_keys(part)
    answers: dict[bytes, tuple[float, float]] = {}
    for k, j in enumerate(wanted.tolist()):
        columns = part.indices[part.indptr[k] : part.indptr[k + 1]]
        if not touched[columns].any():
            continue
        if keys[k] not in answers:
            if 2 * len(answers) + 2 > most:
                continue
            # The key stands for the row whose first entry is positive.
            row = np.zeros(variables, dtype=np.int64)
            row[columns] = signs[k] * part.data[part.indptr[k] : part.indptr[k + 1]]
            answers[keys[k]] = -bound(-row), bound(row)
        least, largest = answers[keys[k]]
        if signs[k] < 0:
            least, largest = -largest, -least
        least, largest = max(least, low[j]), min(largest, high[j])
        # Crossed bounds mean that no pattern exists, which the conflicting pairs report.
        if least <= largest:
            low[j], high[j] = least, largest
    return low, high


def _on_lattice(row: IntArray, bound: float) -> float:
    """Return the largest value of w.x, over all signs x, that is not above the bound."""
    data = row[row != 0]
    reach = int(np.abs(data).sum())
    if bound >= reach or not data.size:
        return float(reach)
    step = 2 * gcd(*(int(v) for v in data.tolist()))
    return float(-reach + step * ((reach + int(bound)) // step))
