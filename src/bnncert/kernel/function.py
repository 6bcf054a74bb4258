"""The functions of the scores that a proof shows to be positive, and the values they can have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, gcd, lcm

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, SignArray
from bnncert.kernel.container import RejectedError
from bnncert.model.network import Network

Objects = npt.NDArray[np.object_]


def scaled(numbers: FloatArray) -> tuple[Objects, int]:
    """Write numbers as integers / 2^e, with the smallest shift e >= 0."""
    fraction, exponent = np.frexp(numbers)
    # A float has 53 bits: numbers = whole 2^power, and whole = odd 2^zeros.
    whole, power = np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53
    zeros = np.maximum(np.frexp((whole & -whole).astype(np.float64))[1] - 1, 0)
    odd, power = whole >> zeros, np.where(whole == 0, 0, power + zeros)
    shift = -int(power.min(initial=0))
    return odd.astype(object) << (power + shift).astype(object), shift


def common_shift(numbers: Iterable[Fraction]) -> tuple[Objects, int]:
    """Do the same for rationals over powers of two."""
    ratios = [v.as_integer_ratio() for v in numbers]
    shift = max([0, *(q.bit_length() - 1 for _, q in ratios)])
    return np.array([p << (shift - q.bit_length() + 1) for p, q in ratios], dtype=object), shift


@dataclass(frozen=True, eq=False)
class Function:
    """f = sum_j d_j x_j + constant over the last layer, in rationals, known to within `doubt`.

    d_j is weights[j] over the denominator, both integers.
    """

    weights: Objects
    denominator: int
    constant: Fraction
    doubt: Fraction
    tie_is_fine: bool

    @staticmethod
    def of(
        network: Network, scores: dict[int, Fraction], constant: Fraction, tie_is_fine: bool
    ) -> Function:
        """Make the sum_k scores_k * (score k) + constant, without the output's common gain."""
        output = network.output
        if any(not 0 <= k < network.classes for k in scores):
            raise RejectedError("the property names a score that the network does not have")
        if constant and not output.gain_is_one:
            raise RejectedError("scores with an irrational scale are compared with a number")
        doubt = Fraction(0)
        groups: dict[int, Fraction] = {}
        for k, c in scores.items():
            groups[int(output.group[k])] = groups.get(int(output.group[k]), Fraction(0)) + c
        for k, c in scores.items():
            constant += c * Fraction(float(output.bias[k]))
            doubt += abs(c) * Fraction(float(output.weight_error[k]))
            # Rows of one group have the same bias, which cancels if their coefficients sum to 0.
            if groups[int(output.group[k])] != 0:
                doubt += abs(c) * Fraction(float(output.bias_error[k]))
        rows = np.asarray(output.weights, dtype=np.float64)[list(scores)]
        whole, shift = scaled(rows.ravel())
        common = lcm(*(c.denominator for c in scores.values()))
        factors = np.array([int(c * common) for c in scores.values()], dtype=object)
        weights = (factors[:, None] * whole.reshape(rows.shape)).sum(axis=0)
        return Function(weights, common << shift, constant, doubt, tie_is_fine)

    @cached_property
    def lattice(self) -> tuple[Fraction, Fraction]:
        """The value of f at x = 1, and the step between its values: twice the common divisor."""
        top = self.constant + Fraction(sum(self.weights.tolist()), self.denominator)
        return top, Fraction(2 * gcd(*self.weights.tolist()), self.denominator)

    def is_positive_from(self, bound: Fraction) -> bool:
        """Whether f >= bound (without its doubt) shows f > 0, or f >= 0 if ties are fine."""
        top, step = self.lattice
        # The smallest value of f that is not below the bound.
        return self.is_positive(top - (top - bound) // step * step if step else top)

    def is_positive(self, value: Fraction) -> bool:
        """Whether a value of f (without its doubt) shows f > 0, or f >= 0 if ties are fine."""
        return value >= self.doubt if self.tie_is_fine else value > self.doubt

    def at(self, signs: SignArray) -> Fraction:
        """Evaluate f, without its doubt, at signs of the last layer."""
        weighted = (self.weights * signs.astype(object)).sum()
        return self.constant + Fraction(weighted, self.denominator)

    @property
    def least_sum(self) -> int:
        """The least sum of weights at which f is certainly positive, or not negative."""
        limit = (self.doubt - self.constant) * self.denominator
        return ceil(limit) if self.tie_is_fine else floor(limit) + 1
