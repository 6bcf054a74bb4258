r"""First-layer neurons over a box, as the rows of a feasibility check.

With the middle c and the half widths h of a box that contains the region, an input is x = c + h d
with |d_i| <= 1, and sign s of neuron j needs  s (w_j.c + b_j) + s a_j.d >= 0,  a_ji = w_ji h_i.
Farkas multipliers theta >= 0 prove that no input has some signs together if

    F(theta) = sum_i |sum_j theta_j s_j a_ji| + sum_j theta_j s_j (w_j.c + b_j)  <  0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bnncert.arrays import Float32Array, FloatArray, IntArray
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: Relative rounding error of one float64 operation, with room for the order of summation.
UNIT = 2.0**-52


class CheckedRows(NamedTuple):
    """The rows of a feasibility check in the form that compiled functions take."""

    #: As in BoxRows.
    rows: FloatArray
    need: FloatArray
    #: The lengths of the rows, and the rows with length 1.
    lengths: FloatArray
    directions: Float32Array
    #: The values at the centre in the units of `directions`.
    distances: FloatArray


@dataclass(frozen=True, eq=False)
class BoxRows:
    """The rows of some neurons over a box."""

    #: One row a_j for each neuron, over the inputs that some neuron reads.
    rows: FloatArray
    #: Upper bounds of s (w_j.c + b_j), first for s = +1 and then for s = -1.  What rounding takes
    #: from F, anywhere, is included, so that F < 0 in floating point is a proof.
    need: FloatArray

    @staticmethod
    def of(layer: ThresholdLayer, neurons: IntArray, region: Region) -> BoxRows:
        """Return the rows of neurons of the first layer."""
        weights = layer.weights[neurons].astype(np.float64)
        used = np.unique(weights.indices)
        dense = weights[:, used].toarray()
        lo, hi = region.lo[used], region.hi[used]
        middle = lo + (hi - lo) / 2
        half = np.maximum(hi - middle, middle - lo) * (1 + 2 * UNIT)
        bias_lo, bias_hi = (side[neurons] for side in layer.enclosure)
        at = dense @ middle
        reach = np.maximum(np.abs(lo), np.abs(hi)) + half
        size = np.abs(dense) @ reach + np.maximum(np.abs(bias_lo), np.abs(bias_hi))
        # No sum has more terms than inputs and neurons together, each rounded a few times.
        slack = 8 * (used.size + neurons.size + 8) * UNIT * size
        return BoxRows(dense * half, np.stack([at + bias_hi, -at - bias_lo]) + slack)

    @cached_property
    def checked(self) -> CheckedRows:
        """The rows as the check takes them; a row of zeros has the length 1."""
        lengths = np.sqrt(np.sum(self.rows**2, axis=1))
        lengths = np.where(lengths > 0, lengths, 1.0)
        directions = np.ascontiguousarray(self.rows / lengths[:, None], dtype=np.float32)
        distances = np.asarray((self.need[0] - self.need[1]) / 2 / lengths)
        return CheckedRows(self.rows, self.need, lengths, directions, distances)

    @cached_property
    def order(self) -> IntArray:
        """The neurons, those first whose sign is the hardest to change.

        A pattern has few of these changes, so that a tree which decides them first has few nodes
        near its root, and what excludes each other is found there.
        """
        reach = np.abs(self.rows).sum(axis=1)
        with np.errstate(over="ignore"):
            distance = np.abs(self.need[0] - self.need[1]) / np.maximum(reach, 1e-300)
        return np.argsort(-distance, kind="stable")

    def infeasibility(self, signed: FloatArray) -> float:
        """Return F for multipliers with the signs of their literals; a negative value is a proof.

        `signed` has theta_j s_j for each neuron.
        """
        need = np.where(signed > 0, self.need[0], self.need[1])
        return float(np.abs(signed @ self.rows).sum() + np.abs(signed) @ need)
