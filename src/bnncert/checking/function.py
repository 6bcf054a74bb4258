"""What has to be shown to be positive: a function of the scores, and the values it can have."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

import numpy as np

from bnncert.checking.container import RejectedError
from bnncert.network import Network


@dataclass(frozen=True, eq=False)
class Function:
    """f = sum_j d_j x_j + constant over the last layer, in rationals, known to within `doubt`."""

    weights: list[Fraction]
    constant: Fraction
    doubt: Fraction
    tie_is_fine: bool

    @staticmethod
    def of(
        network: Network, scores: dict[int, Fraction], constant: Fraction, tie_is_fine: bool
    ) -> Function:
        """Return sum_k scores_k * (score k) + constant, without the output's common gain."""
        output = network.output
        if any(not 0 <= k < network.classes for k in scores):
            raise RejectedError("the property names a score that the network does not have")
        if constant and not output.gain_is_one:
            raise RejectedError("scores with an irrational scale are compared with a number")
        weights = [Fraction(0)] * output.weights.shape[1]
        doubt = Fraction(0)
        groups: dict[int, Fraction] = {}
        for k, c in scores.items():
            groups[int(output.group[k])] = groups.get(int(output.group[k]), Fraction(0)) + c
        for k, c in scores.items():
            for j in np.flatnonzero(output.weights[k]).tolist():
                weights[j] += c * Fraction(float(output.weights[k, j]))
            constant += c * Fraction(float(output.bias[k]))
            doubt += abs(c) * Fraction(float(output.weight_error[k]))
            # Rows of one group have the same bias, which cancels where their sum does.
            if groups[int(output.group[k])] != 0:
                doubt += abs(c) * Fraction(float(output.bias_error[k]))
        return Function(weights, constant, doubt, tie_is_fine)

    @cached_property
    def lattice(self) -> tuple[Fraction, Fraction]:
        """The value of f at x = 1, and the steps in which it moves: twice the common divisor."""
        used = {abs(w) for w in self.weights if w}
        common = lcm(*(w.denominator for w in used))
        step = 2 * Fraction(gcd(*(int(w * common) for w in used)), common)
        return sum(self.weights, self.constant), step

    def is_positive_from(self, bound: Fraction) -> bool:
        """Whether f >= bound (without its doubt) shows f > 0, or f >= 0 if ties are fine."""
        top, step = self.lattice
        # The smallest value of f that is not below the bound.
        value = top - (top - bound) // step * step if step else top
        return value >= self.doubt if self.tie_is_fine else value > self.doubt
