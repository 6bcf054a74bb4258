r"""The first layer over grid points, in integers.

Values x_i and weights w_ni are scaled by powers of two to integers X_i and W_ni whose sums are
smaller than 2^52, so that floating-point sums of them are exact in any order.  Neuron n can be +1
only if sum_i W_ni X_i >= plus_n, and -1 only if it is <= minus_n.  If the numbers have too many
bits, X_i is enclosed by two integers, and the thresholds are moved apart by the largest error of
the rounded weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import BoolArray, FloatArray
from bnncert.errors import InputError
from bnncert.model.layers import ThresholdLayer
from bnncert.questions.count.grid_points import GridPoints

#: Sums of integers stay below 2^MOST_BITS.
MOST_BITS = 52

#: The most weights, also zeros, of a first layer: each of a few dense copies takes 0.5 GB.
MOST_WEIGHTS = 2**26

#: Bits of weights that are rounded, at least.
LEAST_WEIGHT_BITS = 24


@dataclass(frozen=True, eq=False)
class IntegerFirstLayer:
    """The first layer in integers, which are stored as floats.

    Attributes
    ----------
    columns
        The weights W, one row for each input.
    low, high
        For each input the integers that enclose its values; equal if they are exact.
    plus, minus
        The least sum at which each neuron may be +1, and the largest at which it may be -1.
    tied
        The neurons for which a sum from `plus` to `minus` is a tie at which both signs are
        allowed; for the others the sign is not decided there.
    is_exact
        Whether no number is rounded.
    """

    columns: FloatArray
    low: tuple[FloatArray, ...]
    high: tuple[FloatArray, ...]
    plus: FloatArray
    minus: FloatArray
    tied: BoolArray
    is_exact: bool

    @staticmethod
    def of(layer: ThresholdLayer, points: GridPoints) -> IntegerFirstLayer:
        """Return the layer over these points; raise InputError if it is too large."""
        inputs = len(points.values)
        if layer.size * inputs > MOST_WEIGHTS:
            raise InputError(
                f"the first layer has {layer.size} neurons and {inputs} inputs; with so many "
                f"inputs, counting takes at most {MOST_WEIGHTS // inputs} neurons"
            )
        weights = np.asarray(layer.weights.toarray(), dtype=np.float64)
        reach = np.array([max(1e-300, float(np.abs(v).max())) for v in points.values])
        # 2 more than the sums, so that their rounding does not matter.
        room = MOST_BITS - 2 - math.frexp(float((np.abs(weights) @ reach).max(initial=1e-300)))[1]
        flat = np.concatenate(points.values)
        x_bits, w_bits = _binary_places(flat), _binary_places(weights)
        is_exact = x_bits + w_bits <= room
        if not is_exact:
            w_bits = min(w_bits, max(LEAST_WEIGHT_BITS, room - x_bits))
            x_bits = room - w_bits
        columns = np.rint(np.ldexp(weights, w_bits)).T
        low = tuple(np.floor(np.ldexp(v, x_bits)) for v in points.values)
        high = tuple(np.ceil(np.ldexp(v, x_bits)) for v in points.values)
        error = _errors(weights, w_bits, np.ldexp(reach, x_bits))
        plus, minus, tied = _thresholds(layer, x_bits + w_bits)
        return IntegerFirstLayer(
            columns,
            low,
            high,
            np.array(plus) - error,
            np.array(minus) + error,
            np.array(tied) & is_exact,
            is_exact,
        )


def _binary_places(numbers: FloatArray) -> int:
    """Return the least e such that all numbers are multiples of 2^-e."""
    fraction, exponent = np.frexp(numbers[numbers != 0])
    whole = np.ldexp(fraction, 53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return -int((exponent.astype(np.int64) - 53 + zeros).min(initial=0))


def _errors(weights: FloatArray, bits: int, reach: FloatArray) -> FloatArray:
    """Return how much the rounding of the weights can change each sum, rounded up."""
    moved = np.ldexp(weights, bits)
    error = np.abs(moved - np.rint(moved)) @ reach
    return np.where(error > 0, np.ceil(error * (1 + 1e-9)) + 1, 0.0)


def _thresholds(layer: ThresholdLayer, bits: int) -> tuple[list[float], list[float], list[bool]]:
    """Return from which integer on +1, and up to which one -1 is possible, and where both are."""
    plus, minus, tied = [], [], []
    unit = Fraction(2) ** bits
    for low, high in zip(*(b.tolist() for b in layer.enclosure), strict=True):
        # The bias is between low and high: +1 needs a sum >= -high, -1 a sum <= -low.
        first, last = math.ceil(-Fraction(high) * unit), math.floor(-Fraction(low) * unit)
        is_certain = low == high
        if is_certain and layer.sign_zero == "plus":
            last = first - 1
        elif is_certain and layer.sign_zero == "minus":
            first = last + 1
        plus.append(_clipped(first))
        minus.append(_clipped(last))
        tied.append(is_certain)
    return plus, minus, tied


def _clipped(number: int) -> float:
    """Return a threshold as a float; beyond all sums its size does not matter."""
    most = 2**MOST_BITS
    return float(max(-most, min(most, number)))
