r"""Fast feasibility check in floating point, with checked answers.

Maximising the smallest margin is a linear program (a cone program for the L2 ball).  The solver's
answer is not trusted: a point counts by its exact signs, which the caller computes, and a conflict
by Farkas multipliers, which are checked here with all rounding errors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.reachability.ball import cone_guide
from bnncert.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.regions import Region, is_l2_ball
from bnncert.regions.linear_block import input_block
from bnncert.solvers.highs_ import HighsModel
from bnncert.solvers.linear_program import LinearProgram


def fast_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Look for a point of the region with the pattern, or for a conflict, in floating point."""
    if is_l2_ball(region):
        if region.radius == 0:
            return Feasibility()
        guide = cone_guide(pattern, region, deadline)
    else:
        guide = _linear_guide(pattern, region, deadline)
    if guide is None:
        return Feasibility()
    point, multipliers = guide
    return find_conflict(pattern, multipliers, region) or Feasibility(point=point)


def _linear_guide(
    pattern: SignPattern, region: Region, deadline: Deadline
) -> tuple[FloatArray, FloatArray] | None:
    """Maximise t with s_j (w_j.x + b_j) >= t |w_j|_2; return the point and the multipliers."""
    layer, neurons, signs = pattern.layer, pattern.neurons, pattern.signs
    rows = layer.weights[neurons].astype(np.float64)
    used = np.unique(rows.indices).astype(np.int64)
    block = input_block(region, used)
    part = rows[:, block.index]
    length = np.sqrt(np.asarray((part * part).sum(axis=1)).reshape(-1))
    length = np.where(length > 0, length, 1.0)
    scale = float(np.abs(block.spread.data).max(initial=0.0)) or 1.0
    signed = sp.diags_array(signs / (length * scale)) @ part
    matrix = sp.vstack(
        [
            sp.hstack([signed @ block.spread, -np.ones((neurons.size, 1))]),
            sp.hstack([block.rows, np.zeros((block.rows.shape[0], 1))]),
        ]
    ).tocsr()
    constant = signed @ block.base + signs * layer.bias[neurons] / (length * scale)
    n = block.size
    big = 4.0 * n + 4.0
    program = LinearProgram(
        cost=np.concatenate([np.zeros(n), [-1.0]]),
        offset=0.0,
        matrix=matrix,
        row_lower=np.concatenate([-constant, np.full(block.right.size, -np.inf)]),
        row_upper=np.concatenate([np.full(neurons.size, np.inf), block.right]),
        lower=np.concatenate([block.lower, [-big]]),
        upper=np.concatenate([block.upper, [big]]),
        integer=np.zeros(n + 1, dtype=bool),
    )
    answer = HighsModel(program, {"threads": 1}).solve(deadline)
    if answer.point is None or answer.multipliers is None:
        return None
    point = np.array(region.center)
    point[block.index] = block.base + block.spread @ answer.point[:n]
    multipliers = np.maximum(answer.multipliers[: neurons.size], 0.0) / length
    return point, multipliers
