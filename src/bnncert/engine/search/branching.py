r"""The choice of the variable to split on, and of patterns to try in a node.

If all variables are first-layer signs, the score of a variable is  -kappa_a (1 - E[x_a]^2):  the
multiplier of x_a^2 = 1 is the price of the variance that a fixed sign does not have.  On instances
where all splits were solved, its rank correlation with the product of both children's gains is 0.8.

Otherwise the influence of variables decides: the change of f that a sign can make, which counts
less if the moments have nearly decided the sign.  The score of a child is the influence of all
variables that it fixes, by implication included, and the score of a split is the product of the
scores of its children.

Sign patterns near the moments of a relaxation come from random hyperplanes.
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.problem import ReducedProblem

#: Tolerance for comparing integers that are stored as floats.
HALF = 0.5


def influences(problem: ReducedProblem) -> FloatArray:
    """Return the change of f that each variable can make, also through gates."""
    spread = problem.values.max(axis=1, initial=-np.inf) - problem.values.min(
        axis=1, initial=np.inf
    )
    rows = np.abs(problem.table.rows)
    influence = spread @ rows if rows.shape[0] else np.zeros(problem.size)
    influence = influence + np.abs(problem.linear)
    if problem.gates.rows.shape[0]:
        influence = influence + influence[problem.outputs] @ np.abs(problem.gates.rows)
    return np.asarray(influence)


def choose_variable(
    problem: ReducedProblem,
    moments: FloatArray | None,
    candidates: IntArray,
    diagonal: FloatArray | None = None,
) -> int:
    """Return the candidate (a place in the problem) with the best split.

    `diagonal` are the multipliers kappa of the variables.
    """
    if moments is not None and diagonal is not None and not problem.outputs.size:
        price = -diagonal * (1 - moments[0, 1 : problem.size + 1] ** 2)
        best = int(candidates[int(np.argmax(price[candidates]))])
        if price[best] > 0:
            return best
    influence = influences(problem)
    if moments is not None:
        influence = influence * (1.05 - np.abs(moments[0, 1 : problem.size + 1]))
    # The row of a literal marks the literals that are false if this one holds.
    fixed = problem.excluded[:, 0::2] | problem.excluded[:, 1::2]
    plus, minus = influence + (fixed @ influence).reshape(-1, 2).T
    return int(candidates[int(np.argmax((plus * minus)[candidates]))])


def round_moments(
    problem: ReducedProblem, moments: FloatArray, generator: np.random.Generator, count: int
) -> SignArray:
    """Return sign vectors x = sign(V g) with M = V V', negated if the constant is -1."""
    values, vectors = np.linalg.eigh(moments)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = root @ generator.standard_normal((root.shape[1], count))
    drawn *= np.where(drawn[:1] >= 0, 1.0, -1.0)
    signs = np.where(drawn[1:] >= 0, 1, -1).astype(np.int8).T
    for j, out in enumerate(problem.outputs.tolist()):
        u = signs @ problem.gates.rows[j]
        points = problem.gates.points[j]
        nearest = np.argmin(np.abs(u[:, None] - points[None, :]), axis=1)
        signs[:, out] = problem.gate_signs[j][nearest]
    return np.unique(signs, axis=0)


def objective_values(problem: ReducedProblem, signs: SignArray) -> FloatArray:
    """Return f at sign vectors (rows); +inf if a sum is not a point of its lattice."""
    total = problem.constant + signs @ problem.linear
    points, tables = problem.table.points, np.arange(problem.table.rows.shape[0])
    sums = signs @ problem.table.rows.T
    # Most lattices are evenly spaced; the others, and sums outside, are searched.
    first = points[:, 0] if points.size else np.zeros(tables.size)
    step = points[:, 1] - first if points.shape[1] > 1 else np.ones(tables.size)
    place = np.rint((sums - first) / np.where(step > 0, step, 1.0))
    place = np.clip(place, 0, max(points.shape[1] - 1, 0)).astype(np.int64)
    missed = np.abs(points[tables, place] - sums) > HALF
    searched = np.flatnonzero(missed.any(axis=0))
    distance = np.abs(sums[:, searched, None] - points[None, searched])
    place[:, searched] = np.argmin(distance, axis=2)
    missed[:, searched] = distance.min(axis=2, initial=np.inf) > HALF
    return np.asarray(total + np.where(missed, np.inf, problem.values[tables, place]).sum(axis=1))


def count_violated_pairs(problem: ReducedProblem, signs: SignArray) -> IntArray:
    """Return how many conflicting pairs each sign vector violates."""
    first, second = problem.pair_first, problem.pair_second
    left = signs[:, variable_of(first)] == sign_of(first)
    right = signs[:, variable_of(second)] == sign_of(second)
    return np.asarray((left & right).sum(axis=1))
