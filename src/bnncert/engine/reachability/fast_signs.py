r"""Fast feasibility check in floating point, with checked answers.

Maximising the smallest margin is a linear program (a cone program for the L2 ball).  The answer of
the solver is not trusted: the caller evaluates the signs at a point in exact arithmetic, and the
Farkas multipliers of a conflict are checked here, rounding errors included.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.ball_signs import cone_guide
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.engine.reachability.scaled_rows import ScaledRows
from bnncert.regions import Region


def fast_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Look for a point of the region with the pattern, or for a conflict, in floating point."""
    if region.norm == "l2":
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
        signed = sp.diags_array(pattern.signs.astype(np.float64)) @ rows.matrix
        moved = pattern.guiding_bias(region) - pattern.layer.bias[pattern.neurons]
        self._lower = -pattern.signs * (rows.constant + moved / rows.length)
        big = 4.0 * rows.block.size + 4.0
        self._program = rows.program(
            signed,
            sp.csr_array(-np.ones((pattern.neurons.size, 1))),
            self._lower,
            np.array([-1.0]),
            np.array([[-big], [big]]),
        )

    def solve(
        self, deadline: Deadline, places: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return the point of largest margin and the multipliers of the pattern, or of a part.

        The result is None if the deadline has passed.
        """
        count = self._pattern.neurons.size
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
