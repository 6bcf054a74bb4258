r"""A point of the region that has wanted first-layer signs as nearly as possible.

The *elastic* linear program allows every neuron j a slack, at a price p_j:

    min sum_j p_j e_j   s.t.   s_j (w_j.x + b_j) / |w_j|_2 + e_j >= margin,   e >= 0,   x in B.

Where the pattern occurs with this margin, all slacks are zero.  Otherwise neurons with a low price
give way, and the multipliers are often Farkas multipliers of several conflicts at once.  The
program is built once: another pattern only changes the bounds of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.network.layers import ThresholdLayer
from bnncert.reachability.scaled_rows import ScaledRows
from bnncert.regions import Region
from bnncert.solvers.highs_ import HighsModel
from bnncert.solvers.linear_program import LinearProgram

#: Wanted distance from the threshold, as a share of the largest half-width of the region: far
#: above the errors of a solver, and small enough to exclude little.
MARGIN = 1e-4


@dataclass(frozen=True, eq=False)
class ElasticPoint:
    """A point inside the region, and a multiplier >= 0 for each neuron."""

    point: FloatArray
    multipliers: FloatArray


class ElasticProgram:
    """The elastic program of some neurons of the first layer.

    An L2 ball is represented by the box around it, and points are projected back.
    """

    def __init__(self, layer: ThresholdLayer, neurons: IntArray, region: Region) -> None:
        self.neurons, self._region = neurons, region
        self._rows = rows = ScaledRows.of(layer, neurons, region)
        block, count, n = rows.block, neurons.size, rows.block.size
        eye = sp.identity(count, format="csr")
        matrix = sp.vstack(
            [
                sp.hstack([rows.matrix, eye, -eye]),
                sp.hstack([block.rows, sp.csr_array((block.rows.shape[0], 2 * count))]),
            ]
        ).tocsr()
        program = LinearProgram(
            cost=np.concatenate([np.zeros(n), np.ones(2 * count)]),
            offset=0.0,
            matrix=matrix,
            row_lower=np.full(count + block.right.size, -np.inf),
            row_upper=np.concatenate([np.full(count, np.inf), block.right]),
            lower=np.concatenate([block.lower, np.zeros(2 * count)]),
            upper=np.concatenate([block.upper, np.full(2 * count, np.inf)]),
            integer=np.zeros(n + 2 * count, dtype=bool),
        )
        self._program = HighsModel(program, {"threads": 1})

    def solve(
        self, signs: SignArray, prices: FloatArray | None, deadline: Deadline
    ) -> ElasticPoint | None:
        """Return the best point for a pattern; None if there is no time.

        Parameters
        ----------
        prices
            What a unit of slack of each neuron costs; None: 1.
        """
        count, block = self.neurons.size, self._rows.block
        wanted = signs > 0
        self._program.set_row_bounds(
            np.where(wanted, MARGIN - self._rows.constant, -np.inf),
            np.where(wanted, np.inf, -MARGIN - self._rows.constant),
        )
        price = np.ones(count) if prices is None else prices / max(prices.max(initial=0.0), 1e-300)
        self._program.set_cost(np.concatenate([np.zeros(block.size), price, price]), 0.0)
        answer = self._program.solve(deadline)
        if answer.point is None or answer.multipliers is None:
            return None
        point = self._rows.point(answer.point[: block.size], self._region)
        multipliers = np.maximum(signs * answer.multipliers[:count], 0.0) / self._rows.length
        return ElasticPoint(self._region.project(point[None, :])[0], multipliers)
