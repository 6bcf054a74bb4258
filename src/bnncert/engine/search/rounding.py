r"""Sign patterns near the moments of a relaxation (random hyperplanes)."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.problem import ReducedProblem


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
    sums = signs @ problem.table.rows.T
    for j in range(problem.table.rows.shape[0]):
        distance = np.abs(sums[:, j : j + 1] - problem.table.points[j][None, :])
        nearest = np.argmin(distance, axis=1)
        off = distance[np.arange(signs.shape[0]), nearest] > 0.5
        total = total + np.where(off, np.inf, problem.values[j][nearest])
    return np.asarray(total)


def count_violated_pairs(problem: ReducedProblem, signs: SignArray) -> IntArray:
    """Return how many conflicting pairs each sign vector violates."""
    first, second = problem.pair_first, problem.pair_second
    left = signs[:, variable_of(first)] == sign_of(first)
    right = signs[:, variable_of(second)] == sign_of(second)
    return np.asarray((left & right).sum(axis=1))
