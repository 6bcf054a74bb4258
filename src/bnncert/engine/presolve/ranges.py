r"""Bounds of u = sum_i w_i x_i over signs of which some exclude each other.

Call the literal x_i = sign(w_i) *up*.  Of a set C of up literals that exclude each other pairwise
at most one holds, so its part of u is at most  max_C 2 |w_i| - sum_C |w_i|.  Every partition of a
row into such sets gives a bound of u; a greedy partition by decreasing weight is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.literals import literal
from bnncert.model.matrices import row_norms

#: Entries of the padded table of the rows that are partitioned between two looks at the clock.
CELLS_AT_ONCE = 2_000_000


def sum_ranges(
    weights: Any, excluded: BoolArray, deadline: Deadline | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return (Lo, U) of every row of a CSR matrix of integers, given the table of pairs.

    After the deadline, the remaining literals are bounded without the pairs.
    """
    limit = deadline or Deadline(None)
    upper = row_norms(weights)
    lower = -upper
    in_conflict = np.any(excluded, axis=1)
    if not in_conflict.any():
        return lower, upper
    height = max(1, CELLS_AT_ONCE // max(1, int(np.diff(weights.indptr).max(initial=0))))
    for start in range(0, weights.shape[0], height):
        if limit.passed():
            break
        rows = slice(start, start + height)
        columns, values = _padded(weights[rows])
        upper[rows] = _upper(columns, values, excluded, in_conflict, limit)
        lower[rows] = -_upper(columns, -values, excluded, in_conflict, limit)
    return lower, upper


def _padded(weights: Any) -> tuple[IntArray, FloatArray]:
    """Return the columns and values of each row, padded with weight 0, heaviest first."""
    lengths = np.diff(weights.indptr)
    widest = int(lengths.max(initial=0))
    columns = np.zeros((weights.shape[0], widest), dtype=np.int64)
    values = np.zeros((weights.shape[0], widest))
    place = np.arange(weights.indices.size) - np.repeat(weights.indptr[:-1], lengths)
    rows = np.repeat(np.arange(weights.shape[0]), lengths)
    columns[rows, place] = weights.indices
    values[rows, place] = weights.data
    order = np.argsort(-np.abs(values), axis=1, kind="stable")
    return np.take_along_axis(columns, order, 1), np.take_along_axis(values, order, 1)


def _upper(
    columns: IntArray,
    values: FloatArray,
    excluded: BoolArray,
    in_conflict: BoolArray,
    deadline: Deadline,
) -> FloatArray:
    size = np.abs(values)
    up = literal(columns, values)
    # A literal without conflicts is a set of its own.
    left = (size > 0) & in_conflict[up]
    everyone = np.arange(columns.shape[0])
    bound: FloatArray = np.where(left, 0.0, size).sum(axis=1)
    while left.any():
        if deadline.passed():
            return np.asarray(bound + (size * left).sum(axis=1))
        active = everyone[left.any(axis=1)]
        member = np.argmax(left[active], axis=1)
        left[active, member] = False
        heaviest = size[active, member]
        weight = heaviest.copy()
        candidates = left[active] & excluded[up[active, member][:, None], up[active]]
        while True:
            more = candidates.any(axis=1)
            if not more.any() or deadline.passed():
                break
            rows = np.flatnonzero(more)
            member = np.argmax(candidates[rows], axis=1)
            who = active[rows]
            left[who, member] = False
            weight[rows] += size[who, member]
            candidates[rows, member] = False
            candidates[rows] &= excluded[up[who, member][:, None], up[who]]
        bound[active] += 2 * heaviest - weight
    return bound
