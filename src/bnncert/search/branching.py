"""Which sign to split on: the one whose both values say most about f.

The influence of a variable is how far f moves with it; what the moments have nearly decided counts
less.  Fixing a sign fixes all that follows from it, so a side of the split is worth the influence
of everything that it fixes, and a split is worth the product of its sides.
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.relaxations.reduced.problem import ReducedProblem


def influences(problem: ReducedProblem) -> FloatArray:
    """Return how far f moves with each variable, gates included."""
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
    """Return the best of the candidates (places in the problem)."""
    worth = influences(problem)
    if moments is not None:
        worth = worth * (1.05 - np.abs(moments[0, 1 : problem.size + 1]))
    # The row of a literal names the literals that are false once this one holds.
    implied = problem.excluded
    false = implied[:, 0::2] | implied[:, 1::2]
    both = worth + (false @ worth).reshape(-1, 2).T
    return int(candidates[int(np.argmax((both[0] * both[1])[candidates]))])
