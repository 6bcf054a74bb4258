"""Clarabel: interior-point method for conic programs (https://clarabel.org)."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, ConicSolver, ConicStatus

_STATUS: dict[str, ConicStatus] = {
    "Solved": "solved",
    "AlmostSolved": "inaccurate",
    "PrimalInfeasible": "infeasible",
    "AlmostPrimalInfeasible": "infeasible",
    "MaxTime": "limit",
    "MaxIterations": "limit",
    "InsufficientProgress": "inaccurate",
}


class ClarabelSolver(ConicSolver):
    """The default back end."""

    name = "clarabel"
    package = "clarabel"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        cones = []
        if program.nonnegative:
            cones.append(clarabel.NonnegativeConeT(program.nonnegative))
        cones += [clarabel.PSDTriangleConeT(n) for n in program.blocks]
        answer = run_clarabel(program.cost, program.matrix, program.right, cones, deadline)
        return ConicSolution(
            _STATUS.get(str(answer.status), "failed"),
            np.array(answer.x),
            np.array(answer.z),
            int(answer.iterations),
        )


def run_clarabel(
    cost: FloatArray, matrix: Any, right: FloatArray, cones: list[Any], deadline: Deadline
) -> Any:
    """Return Clarabel's answer to  min c.y  s.t.  s = b - A y,  s in the product of the cones."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    # The default method to merge cliques may not terminate on sparse matrices of moderate size.
    settings.chordal_decomposition_merge_method = "none"
    left = deadline.remaining()
    if np.isfinite(left):
        settings.time_limit = max(left, 1e-3)
    square = sp.csc_matrix((cost.size, cost.size))
    arguments = square, cost, sp.csc_matrix(matrix), right, cones, settings
    return clarabel.DefaultSolver(*arguments).solve()
