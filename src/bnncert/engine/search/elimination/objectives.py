r"""Objectives with integer weights.

f = constant + unit * (k.x) +- slack with integers k.  If the values of f lie on a lattice, unit is
half its step and the slack is the error of the objective; otherwise weights are rounded to
multiples of a very small unit, and the rounding error is part of the slack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.model.rationals import float_below
from bnncert.problem import Objective

#: The sum of weights that are not multiples of one number is about this many units.
UNITS = 2**44


@dataclass(frozen=True, eq=False)
class IntegerObjective:
    """An objective over the last layer's signs, in multiples of `unit`."""

    objective: Objective
    weights: IntArray
    unit: Fraction
    slack: Fraction

    def lower(self, minimum: float) -> float:
        """Return the lower bound of f for a lower bound of k.x."""
        if not np.isfinite(minimum):
            return minimum
        constant = Fraction(self.objective.constant) + self.objective.remainder
        bound = constant + self.unit * int(minimum) - self.slack
        return self.objective.round_up(float_below(bound))

    def value(self, signs: SignArray) -> Fraction:
        """Return f at signs of the last layer, up to the slack."""
        constant = Fraction(self.objective.constant) + self.objective.remainder
        return constant + self.unit * int(self.weights @ signs.astype(np.int64))


def integer_objective(objective: Objective) -> IntegerObjective:
    """Return an objective with integer weights."""
    d = objective.coefficients
    # Fractions are slow, and weights have few different values: each is converted once.
    values, place, count = np.unique(d, return_inverse=True, return_counts=True)
    lattice = objective.lattice
    if lattice is not None:
        unit = lattice[1] / 2 or Fraction(1)
    else:
        # A power of two: dividing by it is exact.
        reach = float(np.abs(d).sum())
        unit = Fraction(2) ** (math.frexp(reach)[1] - UNITS.bit_length() + 1)
    weights = [round(Fraction(v) / unit) for v in values.tolist()]
    left = [abs(Fraction(v) - k * unit) for v, k in zip(values.tolist(), weights, strict=True)]
    rounding = sum((e * n for e, n in zip(left, count.tolist(), strict=True)), Fraction(0))
    whole = np.array(weights, dtype=np.int64)[place.reshape(-1)]
    return IntegerObjective(objective, whole, unit, objective.exact_error + rounding)


def weight_matrix(objectives: Sequence[IntegerObjective], neurons: IntArray) -> FloatArray:
    """Return the weights of some neurons, one column for each objective."""
    if not objectives:
        return np.zeros((neurons.size, 0))
    return np.stack([o.weights[neurons] for o in objectives], axis=1).astype(np.float64)
