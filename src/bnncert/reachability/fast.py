r"""Fast feasibility check in floating point, with checked answers.

Maximising the smallest margin is a linear program (a cone program for the L2 ball).  The solver's
answer is not trusted: a point counts by its exact signs, which the caller computes, and a conflict
by Farkas multipliers, which are checked here with all rounding errors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.reachability.ball import cone_guide
from bnncert.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.reachability.scaled_rows import ScaledRows
from bnncert.regions import Region, is_l2_ball
from bnncert.solvers.highs_ import HighsModel
from bnncert.solvers.linear_program import LinearProgram


def fast_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Look for a point of the region with the pattern, or for a conflict, in floating point."""
    if is_l2_ball(region):
        if region.radius == 0:
            return Feasibility()
        guide = cone_guide(pattern, region, deadline)
    else:
        guide = MarginProgram(pattern, region).solve(deadline)
    if guide is None:
        return Feasibility()
    point, multipliers = guide
    return find_conflict(pattern, multipliers, region) or Feasibility(point=point)


class MarginProgram:
    """Maximise t with s_j (w_j.x + b_j) >= t |w_j|_2 over the region, for parts of a pattern.

    The program is built once; another part of the pattern only changes the bounds of its rows.
    """

    def __init__(self, pattern: SignPattern, region: Region) -> None:
        self._pattern, self._region = pattern, region
        self._rows = rows = ScaledRows.of(pattern.layer, pattern.neurons, region)
        block, count = rows.block, pattern.size
        signed = sp.diags_array(pattern.signs.astype(np.float64)) @ rows.matrix
        self._lower = -pattern.signs * rows.constant
        matrix = sp.vstack(
            [
                sp.hstack([signed, -np.ones((count, 1))]),
                sp.hstack([block.rows, np.zeros((block.rows.shape[0], 1))]),
            ]
        ).tocsr()
        n = block.size
        big = 4.0 * n + 4.0
        program = LinearProgram(
            cost=np.concatenate([np.zeros(n), [-1.0]]),
            offset=0.0,
            matrix=matrix,
            row_lower=np.concatenate([self._lower, np.full(block.right.size, -np.inf)]),
            row_upper=np.concatenate([np.full(count, np.inf), block.right]),
            lower=np.concatenate([block.lower, [-big]]),
            upper=np.concatenate([block.upper, [big]]),
            integer=np.zeros(n + 1, dtype=bool),
        )
        self._program = HighsModel(program, {"threads": 1})

    def solve(
        self, deadline: Deadline, places: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return the point of largest margin and the multipliers of the pattern, or of a part.

        None if there is no time.
        """
        count = self._pattern.size
        kept = np.arange(count) if places is None else places
        if places is not None:
            lower = np.full(count, -np.inf)
            lower[kept] = self._lower[kept]
            self._program.set_row_bounds(lower, np.full(count, np.inf))
        answer = self._program.solve(deadline)
        if answer.point is None or answer.multipliers is None:
            return None
        multipliers = np.maximum(answer.multipliers[:count], 0.0) / self._rows.length
        return self._rows.point(answer.point[:-1], self._region), multipliers[kept]
