r"""The question and the answer of every feasibility check.

The question is whether some input of a region gives wanted signs to neurons of the first layer.
Farkas multipliers theta >= 0 prove that none does if, with the support function h_B of the region,

    h_B(sum theta_j s_j w_j) + sum theta_j s_j b_j  <  0:

the sum of the left-hand sides s_j (w_j.x + b_j) >= 0 is then negative on all of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.engine.presolve.stability import first_layer_thresholds
from bnncert.model.layers import ThresholdLayer
from bnncert.regions import Region

#: Multipliers below these shares of the largest are dropped if the proof still holds: a conflict of
#: fewer neurons excludes more patterns.
SHARES = (1e-3, 1e-6, 0.0)


@dataclass(frozen=True, eq=False)
class SignPattern:
    """Wanted signs of some neurons of the first layer."""

    layer: ThresholdLayer
    neurons: IntArray
    signs: SignArray

    @property
    def bias(self) -> FloatArray:
        """The bias of each neuron; of an enclosure, the side that makes the wanted sign easier."""
        bias_lo, bias_hi = self.layer.enclosure
        return np.where(self.signs > 0, bias_hi[self.neurons], bias_lo[self.neurons])

    def bias_in(self, region: Region) -> FloatArray:
        """Return the same for the points of a region; on a grid, sums take few values."""
        plus, minus = first_layer_thresholds(self.layer, region, self.neurons)
        return np.where(self.signs > 0, -plus, -minus)

    def guiding_bias(self, region: Region) -> FloatArray:
        """Return the bias of each neuron for programs whose answers are checked afterwards."""
        if region.values is None:
            return np.asarray(self.layer.bias[self.neurons])
        return self.bias_in(region)

    def part(self, places: IntArray) -> SignPattern:
        """Return the pattern of the neurons at some places of the list."""
        return SignPattern(self.layer, self.neurons[places], self.signs[places])

    def holds_at(self, point: FloatArray) -> bool:
        """Whether the neurons have the wanted signs at a point, in exact arithmetic."""
        return np.array_equal(self.layer.exact_signs(point)[self.neurons], self.signs)


@dataclass(frozen=True, eq=False)
class Feasibility:
    """The result of a feasibility check; it is undecided if everything is None."""

    #: An input where the pattern is found, in floating point.
    point: FloatArray | None = None
    #: The same input in rationals, if the signs are proved there.
    exact_point: tuple[Fraction, ...] | None = None
    #: Places in the list of neurons whose signs cannot occur together.
    conflict: IntArray | None = None
    #: The Farkas multipliers that prove the conflict, in its order.
    multipliers: FloatArray | tuple[Fraction, ...] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether a point or a conflict is known."""
        return self.point is not None or self.conflict is not None

    @classmethod
    def at(cls, point: Sequence[Fraction]) -> Feasibility:
        """Return the result for a point that has the pattern."""
        return cls(np.array([float(v) for v in point]), tuple(point))


def find_conflict(
    pattern: SignPattern, multipliers: FloatArray, region: Region
) -> Feasibility | None:
    """Return the conflict that multipliers prove, with as few neurons as possible, or None."""
    for share in SHARES:
        used = np.flatnonzero(multipliers > share * multipliers.max(initial=0.0))
        if used.size and proves_infeasible(pattern.part(used), multipliers[used], region):
            return Feasibility(conflict=used, multipliers=multipliers[used])
    return None


def proves_infeasible(pattern: SignPattern, multipliers: FloatArray, region: Region) -> bool:
    """Whether h_B(sum theta_j s_j w_j) + sum theta_j s_j b_j < 0, rounding errors included."""
    rows, bias = pattern.layer.weights[pattern.neurons].astype(np.float64), pattern.bias_in(region)
    signed = multipliers * pattern.signs
    direction = np.asarray(rows.T @ signed)
    value = float(region.support(direction[None, :])[0] + signed @ bias)
    # The error of a rounded operation is at most 2^-53 of a number that these magnitudes bound.
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
    magnitude = float(multipliers @ (abs(rows) @ reach + np.abs(bias)))
    # Products of tiny numbers may underflow, with an error far below 1e-290.
    return value + 2.0**-51 * (pattern.neurons.size + 4) * magnitude < -1e-290
