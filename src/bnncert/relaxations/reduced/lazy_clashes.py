r"""Clashes one by one: of thousands, few matter.

Without some of its equations (1 + s x_a)(1 + t x_b) = 0 the relaxation is a weaker one, and its
multipliers, with pi = 0 for the missing ones, bound f all the same.  The moments say which to add:

    depth_e = | 1 + s M_0a + t M_0b + s t M_ab |.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.literals import sign_of, variable_of
from bnncert.relaxations.reduced.relaxation import ReducedProblem
from bnncert.solvers.structured_program import Multipliers

#: Violations below this are left alone.
VISIBLE = 0.02


def with_clashes(problem: ReducedProblem, kept: npt.NDArray[np.bool_]) -> ReducedProblem:
    """Return the problem with some of its clashes."""
    first, second = problem.clash_first[kept], problem.clash_second[kept]
    return replace(problem, clash_first=first, clash_second=second)


def for_all_clashes(multipliers: Multipliers, kept: npt.NDArray[np.bool_]) -> Multipliers:
    """Return the multipliers of some clashes as those of all."""
    pi = np.zeros(kept.size)
    pi[kept] = multipliers.pi
    return replace(multipliers, pi=pi)


def violated_clashes(
    problem: ReducedProblem, moments: FloatArray, kept: npt.NDArray[np.bool_], most: int
) -> IntArray:
    """Return the clashes not yet kept that the moments violate most, deepest first."""
    first, second = problem.clash_first, problem.clash_second
    s, t = sign_of(first), sign_of(second)
    a, b = variable_of(first) + 1, variable_of(second) + 1
    depth = np.abs(1 + s * moments[0, a] + t * moments[0, b] + s * t * moments[a, b])
    depth[kept] = 0.0
    order = np.argsort(-depth, kind="stable")[:most]
    return np.asarray(order[depth[order] > VISIBLE], dtype=np.int64)
