r"""Conflicting pairs added when they are violated.

Most conflicting pairs are redundant; only violated ones are added.  Without some of its equations
(1 + s x_a)(1 + t x_b) = 0 the relaxation is weaker, but its multipliers, with pi = 0 for missing
ones, still prove a bound of f.  The violation of a pair by the moments M is

    depth_e = | 1 + s M_0a + t M_0b + s t M_ab |.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import sign_of, variable_of
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.solvers.structured_program import StructuredMultipliers

#: Smaller violations are ignored.
VISIBLE = 0.02


def with_pairs(problem: ReducedProblem, kept: npt.NDArray[np.bool_]) -> ReducedProblem:
    """Return the problem with some of its conflicting pairs."""
    first, second = problem.pair_first[kept], problem.pair_second[kept]
    return replace(problem, pair_first=first, pair_second=second)


def for_all_pairs(
    multipliers: StructuredMultipliers, kept: npt.NDArray[np.bool_]
) -> StructuredMultipliers:
    """Return the multipliers with pi = 0 for the pairs that are not kept."""
    pi = np.zeros(kept.size)
    pi[kept] = multipliers.pi
    return replace(multipliers, pi=pi)


def violated_pairs(
    problem: ReducedProblem, moments: FloatArray, kept: npt.NDArray[np.bool_], most: int
) -> IntArray:
    """Return the most violated of the pairs that are not kept yet, in this order."""
    first, second = problem.pair_first, problem.pair_second
    s, t = sign_of(first), sign_of(second)
    a, b = variable_of(first) + 1, variable_of(second) + 1
    depth = np.abs(1 + s * moments[0, a] + t * moments[0, b] + s * t * moments[a, b])
    depth[kept] = 0.0
    order = np.argsort(-depth, kind="stable")[:most]
    return np.asarray(order[depth[order] > VISIBLE], dtype=np.int64)
