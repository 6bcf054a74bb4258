r"""Exact ranges of sums u = w.x of signs of which some exclude each other.

The sum of a hidden neuron is a model whose tables have one variable each, so that only the clauses
join variables.  Rows that read the same variables, as the channels of one position of a convolution
do, are objectives of one elimination: w for the minimum and -w for the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.presolve.literals import variable_of
from bnncert.search.elimination.bound import EliminationLimits, minimise, prepare
from bnncert.search.elimination.factors import linear_table
from bnncert.search.elimination.tables import InexactTableError, Model


def eliminated_sum_ranges(
    rows: Any, clauses: Sequence[IntArray], limits: EliminationLimits, deadline: Deadline
) -> tuple[FloatArray, FloatArray]:
    """Return (Lo, U) of every row of a CSR matrix of integers over the variables.

    The range is exact over the patterns that violate no clause among the row's variables, or
    contains that one where the limits ask for mini-buckets.  After the deadline rows count in full.
    An empty range, (inf, -inf), means that every pattern violates a clause.
    """
    upper = np.asarray(abs(rows).sum(axis=1), dtype=np.float64).reshape(-1)
    lower = -upper
    members: dict[tuple[int, ...], list[int]] = {}
    for j in range(rows.shape[0]):
        scope = tuple(rows.indices[rows.indptr[j] : rows.indptr[j + 1]].tolist())
        members.setdefault(scope, []).append(j)
    clauses_of: dict[int, list[int]] = {}
    for number, clause in enumerate(clauses):
        for v in variable_of(clause).tolist():
            clauses_of.setdefault(v, []).append(number)
    for scope, own in members.items():
        inside = set(scope)
        near = sorted({i for v in scope for i in clauses_of.get(v, ())})
        kept = [clauses[i] for i in near if inside.issuperset(variable_of(clauses[i]).tolist())]
        if not kept:
            continue
        try:
            least = _minima(rows, scope, own, kept, limits, deadline)
        except (OutOfTimeError, InexactTableError):
            continue
        lower[own], upper[own] = least[: len(own)], -least[len(own) :]
    return lower, upper


def _minima(
    rows: Any,
    scope: tuple[int, ...],
    own: list[int],
    clauses: list[IntArray],
    limits: EliminationLimits,
    deadline: Deadline,
) -> FloatArray:
    """Return the minima of w.x for some rows over one set of variables, then those of -w.x."""
    weights = np.stack([rows.data[rows.indptr[j] : rows.indptr[j + 1]] for j in own])
    both = np.concatenate([weights, -weights]).astype(np.float64)
    tables = tuple(linear_table(v, both[:, i]) for i, v in enumerate(scope))
    model = Model(tables, tuple(clauses), len(both))
    scopes = model.scopes()
    prepared = prepare(scopes[: len(scope)], scopes[len(scope) :], len(both), limits, deadline)
    return minimise(model, prepared.plan, limits, deadline).values
