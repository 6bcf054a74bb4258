r"""A point of the region that is as near as possible to having wanted first-layer signs.

The *elastic* linear program has a slack e_j with a price p_j for every neuron j:

    min sum_j p_j e_j   s.t.   s_j (w_j.x + b_j) / |w_j|_2 + e_j >= margin,   e >= 0,   x in B.

If the pattern occurs with this margin, all slacks are zero.  Otherwise neurons with a low price
have slacks, and the multipliers are often Farkas multipliers of several conflicts at once.  The
program is built once: another pattern only changes the bounds of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.scaled_rows import ScaledRows
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: The wanted distance from the threshold, as a share of the largest half-width of the region: far
#: above the errors of a solver, and so small that it excludes few points.
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
        count = neurons.size
        eye = sp.identity(count, format="csr")
        bounds = np.outer([0.0, np.inf], np.ones(2 * count))
        self._program = rows.program(
            rows.matrix, sp.hstack([eye, -eye]), np.full(count, -np.inf), np.ones(2 * count), bounds
        )

    def solve(
        self, signs: SignArray, prices: FloatArray | None, deadline: Deadline
    ) -> ElasticPoint | None:
        """Return the best point for a pattern, or None if the deadline has passed.

        Parameters
        ----------
        prices
            The cost of a unit of slack of each neuron; None for 1.
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
