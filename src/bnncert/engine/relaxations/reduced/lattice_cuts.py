r"""Valid inequalities of two and three signs that given moments violate.

For u = s x_a + t x_b (+ r x_c) the pair (E[u], E[u^2]) lies in the convex hull of the points
(v, v^2), v = Lo, Lo + 2, .., U.  Because u has no value between two neighbours v and v + 2,

    E[u^2] >= (2v + 2) E[u] - v (v + 2),

which for two signs is a product (1 + s x_a)(1 + t x_b) >= 0 and for three a triangle inequality.
Because Lo <= u <= U,  E[u^2] <= (Lo + U) E[u] - Lo U.  Signs that exclude each other reduce U and
make both families stronger.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import literal, negation
from bnncert.engine.relaxations.reduced.problem import Lattice, ReducedProblem, widen

#: Smaller violations are ignored.
VISIBLE = 1e-3

#: The largest number of triples in a round.
MOST_TRIPLES = 400_000


def add_cuts(problem: ReducedProblem, moments: FloatArray, most: int) -> tuple[ReducedProblem, int]:
    """Return the problem with the most violated inequalities as tables, and their number."""
    found = _joined([_pairs(problem, moments), _triples(problem, moments)])
    order = np.argsort(-found[0], kind="stable")[:most]
    order = order[found[0][order] > VISIBLE]
    if not order.size:
        return problem, 0
    members, signs, low, high = (column[order] for column in found[1:])
    rows = np.zeros((order.size, problem.size))
    for k in range(3):
        # A sign of 0 marks the missing third member of a pair.
        rows[np.arange(order.size), members[:, k]] += signs[:, k]
    width = max(problem.table.points.shape[1], 4)
    points = np.minimum(low[:, None] + 2.0 * np.arange(width), high[:, None])
    table = problem.table
    lattice = Lattice(
        np.vstack([table.rows, rows]), np.vstack([widen(table.points, width), points])
    )
    values = np.vstack([widen(problem.values, width), np.zeros_like(points)])
    return replace(problem, table=lattice, values=values), int(order.size)


Found = tuple[FloatArray, IntArray, FloatArray, FloatArray, FloatArray]


def _impossible(problem: ReducedProblem) -> IntArray:
    """Return the conflicting triples as sorted numbers."""
    ordered = np.sort(problem.triples, axis=1)
    return np.unique(_number(ordered[:, 0], ordered[:, 1], ordered[:, 2], problem.size))


def _number(x: IntArray, y: IntArray, z: IntArray, size: int) -> IntArray:
    return np.asarray((x * (2 * size) + y) * (2 * size) + z, dtype=np.int64)


def _contains(
    numbers: IntArray, x: IntArray, y: IntArray, z: IntArray, size: int
) -> npt.NDArray[np.bool_]:
    """Whether x < y < z is one of the triples."""
    return np.isin(_number(x, y, z, size), numbers)


def _pairs(problem: ReducedProblem, moments: FloatArray) -> Found:
    a, b = np.triu_indices(problem.size, 1)
    mean, second = moments[0, 1:], moments[1:, 1:]
    parts = []
    for t in (1.0, -1.0):
        mu = mean[a] + t * mean[b]
        square = 2 + 2 * t * second[a, b]
        depth = 2 * np.abs(mu) - square
        members = np.stack([a, b, a], axis=1)
        signs = np.tile([1.0, t, 0.0], (a.size, 1))
        two = np.full(a.size, 2.0)
        parts.append(_deepest(depth, members, signs, -two, two))
    return _joined(parts)


def _triples(problem: ReducedProblem, moments: FloatArray) -> Found:
    mean, second = moments[0, 1:], moments[1:, 1:]
    excluded = problem.excluded
    impossible = _impossible(problem)
    a, b, c = _some_triples(second)
    parts = []
    for s, t in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        mu = s * mean[a] + t * mean[b] + mean[c]
        square = 3 + 2 * (s * t * second[a, b] + t * second[b, c] + s * second[a, c])
        x, y, z = literal(a, s), literal(b, t), literal(c, 1)
        no_top = excluded[x, y] | excluded[y, z] | excluded[x, z]
        no_top |= _contains(impossible, x, y, z, problem.size)
        x, y, z = negation(x), negation(y), negation(z)
        no_bottom = excluded[x, y] | excluded[y, z] | excluded[x, z]
        no_bottom |= _contains(impossible, x, y, z, problem.size)
        high = np.where(no_top, 1.0, 3.0)
        low = np.where(no_bottom, -1.0, -3.0)
        between = np.where(np.abs(mu) <= 1, 1.0, 4 * np.abs(mu) - 3) - square
        outside = square - ((low + high) * mu - low * high)
        beyond = np.maximum(mu - high, low - mu)
        depth = np.maximum(between, np.maximum(outside, beyond))
        members = np.stack([a, b, c], axis=1)
        signs = np.tile([s, t, 1.0], (a.size, 1))
        parts.append(_deepest(depth, members, signs, low, high))
    return _joined(parts)


def _some_triples(second: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return all triples, or only those of the variables with the largest moments."""
    n = second.shape[0]
    keep = np.arange(n)
    limit = int((6 * MOST_TRIPLES) ** (1 / 3))
    if n > limit:
        weight = np.abs(second).sum(axis=1)
        keep = np.sort(np.argsort(-weight, kind="stable")[:limit])
    i, j = np.triu_indices(keep.size, 1)
    counts = keep.size - 1 - j
    first, middle = np.repeat(i, counts), np.repeat(j, counts)
    ends = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return keep[first], keep[middle], keep[middle + 1 + ends]


#: The largest number of candidates of a family.
MOST_KEPT = 2000


def _deepest(
    depth: FloatArray, members: IntArray, signs: FloatArray, low: FloatArray, high: FloatArray
) -> Found:
    order = np.flatnonzero(depth > VISIBLE)
    if order.size > MOST_KEPT:
        order = order[np.argsort(-depth[order], kind="stable")[:MOST_KEPT]]
    return depth[order], members[order], signs[order], low[order], high[order]


def _joined(parts: list[Found]) -> Found:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))  # type: ignore[return-value]
