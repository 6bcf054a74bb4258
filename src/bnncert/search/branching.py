"""The choice of the variable to split on.

The influence of a variable is the change of f that its sign can make; it counts less if the moments
have nearly decided the sign.  The score of a child is the influence of all variables that it fixes,
by implication included, and the score of a split is the product of the scores of its children.
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.relaxations.reduced.problem import ReducedProblem


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
    problem: ReducedProblem, moments: FloatArray | None, candidates: IntArray
) -> int:
    """Return the candidate (a place in the problem) with the best split."""
    influence = influences(problem)
    if moments is not None:
        influence = influence * (1.05 - np.abs(moments[0, 1 : problem.size + 1]))
    # The row of a literal marks the literals that are false if this one holds.
    fixed = problem.excluded[:, 0::2] | problem.excluded[:, 1::2]
    plus, minus = influence + (fixed @ influence).reshape(-1, 2).T
    return int(candidates[int(np.argmax((plus * minus)[candidates]))])
