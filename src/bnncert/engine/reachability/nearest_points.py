r"""Feasibility checks without a solver: the nearest point that has wanted signs.

A ball of radius r around c (an L2 ball or a box, with the data box) has a point with given signs if
the nearest one to c is inside.  That is a least-squares problem whose dual has one multiplier for
each sign, and a compiled loop solves it in a fraction of a millisecond.  If the dual value exceeds
r^2 / 2, no point has these signs: for every x = c + r t of the region

    v.t  <=  max over the box of (v.t - |t|^2 / 2) + |t|^2 / 2,       v = sum theta_j s_j a_j,

so the multipliers theta are Farkas multipliers of a conflict.  They are checked like those of any
solver, rounding errors included.  What a few sweeps leave undecided is left to a solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern, find_conflict
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: The wanted distance from every threshold, relative to the size of the region: far above rounding
#: errors, and so small that it excludes few points.
MARGIN = 1e-3

#: Sweeps over all signs; most patterns need fewer than ten.
SWEEPS = 60

#: The largest number of weights: they are a dense matrix.
MOST_WEIGHTS = 4_000_000


@dataclass(frozen=True, eq=False)
class NearestPoints:
    """Some neurons of the first layer over a region, in coordinates x = middle + radius t."""

    region: Region
    middle: FloatArray
    radius: float
    #: The largest |t| of the region.
    reach: float
    #: Rows of length 1, their constants, and the lengths in the units of x.
    rows: FloatArray
    constants: FloatArray
    lengths: FloatArray

    @staticmethod
    def of(layer: ThresholdLayer, neurons: IntArray, region: Region) -> NearestPoints | None:
        """Return the neurons in these coordinates; None for other regions, or too many weights."""
        is_ball = region.norm == "l2"
        if region.values is not None or region.norm not in (None, "linf", "l2"):
            return None
        if region.inequalities[1].size or neurons.size * region.size > MOST_WEIGHTS:
            return None
        middle = np.array(region.middle) if is_ball else region.lo + (region.hi - region.lo) / 2
        radius = region.radius if is_ball else float((region.hi - region.lo).max(initial=0.0)) / 2
        if not 1e-100 < radius < 1e100:
            return None
        rows = layer.weights[neurons].astype(np.float64).toarray()
        norm = np.sqrt((rows * rows).sum(axis=1))
        # A neuron without weights has the sign of its bias: any positive scale is valid.
        lengths = np.where(norm > 0, norm, 1.0) * radius
        constants = (rows @ middle + layer.bias[neurons]) / lengths
        rows *= (radius / lengths)[:, None]
        reach = 1.0 if is_ball else float(np.sqrt(region.size))
        return NearestPoints(region, middle, radius, reach, rows, constants, lengths)

    def find(self, places: IntArray, pattern: SignPattern) -> Feasibility | None:
        """Return a point with the pattern of some neurons, or a conflict; None if undecided."""
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.reachability.nearest_loop import nearest

        signs = pattern.signs.astype(np.float64)
        low = (self.region.lo - self.middle) / self.radius
        high = (self.region.hi - self.middle) / self.radius
        theta = np.zeros(places.size)
        rows, constants = self.rows[places] * signs[:, None], self.constants[places] * signs
        point, found = nearest(rows, constants, low, high, MARGIN, self.reach, SWEEPS, theta)
        if found > 0:
            return Feasibility(point=self.middle + self.radius * point)
        if found < 0 and np.all(np.isfinite(theta)):
            return find_conflict(pattern, theta / self.lengths[places], self.region)
        return None
