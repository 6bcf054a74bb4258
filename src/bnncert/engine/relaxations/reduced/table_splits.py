r"""Tables that are split by a first-layer sign.

A table phi(u) enters the relaxation as its best quadratic a + b u + c u^2 <= phi(u), and what that
loses is most of what the relaxation loses.  With one sign x_a more,

    a + b u + c u^2 + e x_a + g x_a u  <=  phi(u)

has to hold for the u and x_a that occur together: on each side of x_a it is a line of its own next
to the common square.  In the primal the table is a distribution over (u, x_a) with E[u], E[u^2],
E[x_a] and E[x_a u] of the moments M.  If the table alone has the distribution p of u, then with
q = (1 + E[x_a]) / 2 and G(q) the most that the sum of u p(u) over a part of p of the size q can be,

    E[u] - 2 G(1 - q)  <=  E[x_a u]  <=  2 G(q) - E[u],       G(q) = min_v (v q + E[max(u - v, 0)])

over the points v, and the sign by which M violates this most is the one that splits the table.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.engine.presolve.literals import literal
from bnncert.engine.relaxations.reduced.problem import ReducedProblem, Splits, packed

#: The share of the tables that are split at most.
SHARE = 0.5

#: Smaller violations, in units of the row's norm, are ignored.
VISIBLE = 1e-2

#: Tolerance for comparing integers that are stored as floats.
HALF = 0.5


def split(problem: ReducedProblem, tables: IntArray, variables: IntArray) -> ReducedProblem:
    """Return the problem with these tables split by these variables, one for each."""
    points, values = problem.table.points[tables], problem.values[tables]
    kept = [_occur(problem, tables, variables, sign) for sign in (-1, 1)]
    # A sign that never occurs would leave the moments without an interior.
    both = kept[0].any(axis=1) & kept[1].any(axis=1)
    if not both.any():
        return problem
    together = np.hstack(kept)[both]
    sides = np.hstack([-np.ones_like(points), np.ones_like(points)])[both]
    found = Splits(
        tables[both],
        variables[both],
        packed(np.hstack([points, points])[both], together),
        packed(sides, together),
        packed(np.hstack([values, values])[both], together),
    )
    return replace(problem, splits=found)


def _occur(problem: ReducedProblem, tables: IntArray, variables: IntArray, sign: int) -> BoolArray:
    """Return which points of the tables can occur when their variables have a sign."""
    excluded = problem.excluded[literal(variables, np.full(variables.size, sign))]
    signs = excluded[:, 1::2].astype(np.int64) - excluded[:, 0::2]
    signs[np.arange(variables.size), variables] = sign
    rows = problem.table.rows[tables]
    middle, reach = (rows * signs).sum(axis=1), (np.abs(rows) * (signs == 0)).sum(axis=1)
    distance = np.abs(problem.table.points[tables] - middle[:, None])
    return np.asarray(distance <= reach[:, None] + HALF)


def choose_splits(
    problem: ReducedProblem, moments: FloatArray, probabilities: FloatArray, among: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return tables to split and the variable of each, the most violated first.

    Parameters
    ----------
    moments, probabilities
        The solution: moments, and the distributions of the tables that are whole.
    among
        The variables that may split a table.
    """
    whole = problem.whole
    rows, points = problem.table.rows[whole], problem.table.points[whole]
    have = 0 if problem.splits is None else problem.splits.tables.size
    most = int(np.ceil(SHARE * (whole.size + have))) - have
    nothing = np.zeros(0, dtype=np.int64)
    if most <= 0 or not among.any():
        return nothing, nothing
    size = problem.size + 1
    product, mean = rows @ moments[1:size, 1:size], moments[0, 1:size]
    share = np.clip((1 + mean) / 2, 0.0, 1.0)
    total = (probabilities * points).sum(axis=1, keepdims=True)
    above = product - 2 * _most(points, probabilities, share) + total
    below = total - 2 * _most(points, probabilities, 1 - share) - product
    norm = np.sqrt((rows**2).sum(axis=1, keepdims=True)) + 1e-300
    violation = np.where(among, np.maximum(above, below), 0.0) / norm
    values = problem.values[whole]
    reach = values.max(axis=1, initial=-np.inf) - values.min(axis=1, initial=np.inf)
    variables = np.argmax(violation, axis=1)
    depth = violation[np.arange(whole.size), variables]
    depth = np.where((depth > VISIBLE) & (reach > 0), depth * reach, 0.0)
    order = np.argsort(-depth, kind="stable")[:most]
    order = order[depth[order] > 0]
    return whole[order], variables[order]


def _most(points: FloatArray, probabilities: FloatArray, share: FloatArray) -> FloatArray:
    """Return G of every share (columns) for every table (rows)."""
    mass = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    value = np.cumsum((probabilities * points)[:, ::-1], axis=1)[:, ::-1]
    rest = value - points * mass
    found = np.full((points.shape[0], share.size), np.inf)
    for v, above in zip(points.T, rest.T, strict=True):
        np.minimum(found, v[:, None] * share + above[:, None], out=found)
    return found
