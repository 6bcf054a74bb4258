r"""Can the fixed signs of the first layer occur together?  A fast guide with checked answers.

Maximising the smallest margin is a linear program (a cone program for the L2 ball).  Neither answer
is believed: a point counts by its exact signs, and "impossible" by multipliers theta >= 0 with
h_B(sum theta_j s_j w_j) + sum theta_j s_j b_j < 0, rounding included.  The multipliers name the
signs that conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.network.layers import ThresholdLayer
from bnncert.reachability.ball import SHARES, cannot_meet, cone_guide
from bnncert.regions import Ball, Region
from bnncert.regions.linear_block import input_block
from bnncert.solvers.highs_ import HighsModel
from bnncert.solvers.linear_program import LinearProgram


@dataclass(frozen=True, eq=False)
class Meeting:
    """`point` is where the signs meet (in floating point), or `conflict` says which cannot.

    `theta` are the multipliers that prove the conflict, in its order.
    """

    point: FloatArray | None
    conflict: IntArray | None
    theta: FloatArray | None = None


def meet(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    region: Region,
    deadline: Deadline,
) -> Meeting:
    """Look for a point of the region where `neurons` have `signs`."""
    if isinstance(region, Ball) and region.norm == "l2":
        if region.radius == 0:
            return Meeting(None, None)
        guide = cone_guide(layer, neurons, signs, region, deadline)
    else:
        guide = _linear_guide(layer, neurons, signs, region, deadline)
    if guide is None:
        return Meeting(None, None)
    point, multipliers = guide
    for share in SHARES:
        used = np.flatnonzero(multipliers > share * multipliers.max(initial=0.0))
        if used.size and cannot_meet(layer, neurons[used], signs[used], multipliers[used], region):
            return Meeting(None, used, multipliers[used])
    return Meeting(point, None)


def _linear_guide(
    layer: ThresholdLayer,
    neurons: IntArray,
    signs: npt.NDArray[np.int8],
    region: Region,
    deadline: Deadline,
) -> tuple[FloatArray, FloatArray] | None:
    """Maximise t with s_j (w_j.x + b_j) >= t |w_j|_2; return the point and the multipliers."""
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
