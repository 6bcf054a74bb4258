r"""Neurons in a canonical form, in which equal functions of the layer before have equal keys.

Above the first layer a neuron is x = +1 iff w.y >= p with integers w and p.  Dividing w by its
greatest common divisor, rounding p up to the next value that w.y can take, and making the first
weight positive (-x = +1 iff -w.y >= 2 - p) gives the canonical form.  In the first layer
x = +1 iff w.y + b >= 0 is divided by the common magnitude of the weights if there is one, else by a
power of two; a neuron with sign(0) = -1 is the opposite of one with sign(0) = +1.  Where sign(0)
may be either, x and -x are neurons of the same kind, and the first weight is made positive.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.matrices import csr_matrix, row_norms, scale_rows, without_zeros

#: Smaller quotients might be rounded, because floats near zero have fewer digits.
LEAST_QUOTIENT = 1e-290


@dataclass(frozen=True, eq=False)
class CanonicalNeurons:
    """Some neurons x = sign * z, where z is the canonical neuron with these rows and thresholds."""

    #: The weights of z, a CSR matrix of SciPy with sorted columns and without zeros.
    rows: Any
    #: The factor of each neuron, 1 or -1.
    sign: IntArray
    #: 1 or -1 for a neuron z with only this sign, else 0.
    constant: IntArray
    #: Whether sign(0) may be either and can occur; each such neuron decides its ties on its own.
    tied: BoolArray
    #: In the first layer the enclosure of the bias; above it both are p, as integers.
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]

    def equals(self, other: CanonicalNeurons) -> bool:
        """Whether all neurons are equal to those with the same numbers."""
        names = ("sign", "constant", "tied", "low", "high")
        parts = [(getattr(self, name), getattr(other, name)) for name in names]
        parts += [(getattr(self.rows, n), getattr(other.rows, n)) for n in ("indptr", "indices")]
        parts.append((self.rows.data, other.rows.data))
        return all(np.array_equal(a, b) for a, b in parts)

    def key(self, number: int) -> Hashable:
        """Return what neurons have in common that are equal, up to their ties."""
        tied = bool(self.tied[number])
        start, stop = self.rows.indptr[number], self.rows.indptr[number + 1]
        columns = self.rows.indices[start:stop].astype(np.int64).tobytes()
        data = self.rows.data[start:stop]
        low, high = self.low[number], self.high[number]
        if np.issubdtype(self.low.dtype, np.integer):
            return columns, data.astype(np.int64).tobytes(), int(low), tied
        scaled, scales = self._scaled
        scale = float(scales[number])
        bias: tuple[Hashable, ...] = (float(low) / scale, float(high) / scale)
        tiny = any(0 < abs(b) < LEAST_QUOTIENT * scale for b in (float(low), float(high)))
        if tiny or not _is_power_of_two(scale):
            # A quotient of floats would be rounded.
            bias = Fraction(float(low)) / Fraction(scale), Fraction(float(high)) / Fraction(scale)
        return columns, scaled[start:stop].tobytes(), *bias, tied

    @cached_property
    def _scaled(self) -> tuple[FloatArray, FloatArray]:
        """The weights of all rows divided by a scale, exactly, and the scale of each row.

        It is the common magnitude of the weights, or else the power of two above the largest.
        """
        data = self.rows.data.astype(np.float64)
        lengths = np.diff(self.rows.indptr)
        scale = np.ones(lengths.size)
        filled = np.flatnonzero(lengths)
        if filled.size:
            starts = self.rows.indptr[filled]
            largest = np.maximum.reduceat(np.abs(data), starts)
            least = np.minimum.reduceat(np.abs(data), starts)
            power = np.ldexp(1.0, np.frexp(largest)[1])
            # A power of two near the ends of the range of floats could round the quotients.
            safe = (least > 1e-200) & (largest < 1e200)
            scale[filled] = np.where(least == largest, largest, np.where(safe, power, 1.0))
        return data / np.repeat(scale, lengths) + 0.0, scale


def _is_power_of_two(value: float) -> bool:
    """Whether division by a number is exact, for numbers that are not near the ends of floats."""
    return math.frexp(value)[0] == 0.5 and 1e-150 < value < 1e150


def first_layer_neurons(
    layer: ThresholdLayer,
    columns: IntArray,
    inputs: int,
    box: tuple[FloatArray, FloatArray] | None,
) -> CanonicalNeurons:
    """Return the neurons of a first layer.

    `columns` are the new numbers of its inputs, which are distinct and below `inputs`.  Neurons are
    constant between the bounds `box` of these inputs, or for all inputs.
    """
    low, high = layer.enclosure
    rows = without_zeros(layer.weights)
    moved = csr_matrix(rows.data, columns[rows.indices], rows.indptr, (layer.size, inputs))
    moved = moved.copy()
    moved.sort_indices()
    sign = np.ones(layer.size, dtype=np.int64)
    if layer.sign_zero == "minus":
        # x = +1 iff w.y + b > 0, so -x = +1 iff -w.y - b >= 0.
        sign, moved, low, high = -sign, scale_rows(moved, -np.ones(layer.size)), -high, -low
    tied = np.full(layer.size, layer.sign_zero == "either")
    if layer.sign_zero == "either":
        # Then -x is a neuron of the same kind, and the first weight of one of them is positive.
        filled = np.flatnonzero(np.diff(moved.indptr))
        sign[filled] = np.where(moved.data[moved.indptr[filled]] < 0, -1, 1)
        moved = scale_rows(moved, sign)
        low, high = np.where(sign < 0, -high, low), np.where(sign < 0, -low, high)
    least, most = _range(moved, low, high, box)
    exactly_zero = (np.diff(moved.indptr) == 0) & (low == 0) & (high == 0) & ~tied
    constant = np.where((least > 0) | exactly_zero, 1, np.where(most < 0, -1, 0))
    # Adding zero turns -0.0 into 0.0.
    return CanonicalNeurons(moved, sign, constant, tied, low + 0.0, high + 0.0)


def _range(
    rows: Any, low: FloatArray, high: FloatArray, box: tuple[FloatArray, FloatArray] | None
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of w.y + b for each row, rounded outwards; infinite if y is not bounded."""
    if box is None:
        empty = np.diff(rows.indptr) == 0
        return np.where(empty, low, -np.inf), np.where(empty, high, np.inf)
    floats = rows.astype(np.float64)
    plus, minus = floats.maximum(0), floats.minimum(0)
    lo, hi = box
    reach = row_norms(rows) * max(np.abs(lo).max(initial=0.0), np.abs(hi).max(initial=0.0))
    reach = reach + np.maximum(np.abs(low), np.abs(high))
    # The rounding error of a sum of that many products, twice for its two halves.
    error = 2.02 * (np.diff(rows.indptr) + 3) * ROUNDOFF * reach + 1e-300
    least = plus @ lo + minus @ hi + low - error
    most = plus @ hi + minus @ lo + high + error
    return np.asarray(least), np.asarray(most)


def lattice_neurons(layer: ThresholdLayer, substitution: Any, shift: IntArray) -> CanonicalNeurons:
    """Return the neurons x = +1 iff W y >= p of a layer above the first, as functions of signs z.

    The signs of the layer before are y = S z + t, with the `substitution` S and the `shift` t.
    """
    assert layer.tie is not None
    weights = layer.weights.astype(np.int64)
    rows = (weights @ substitution).tocsr()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    start = np.asarray(layer.plus_from, dtype=np.int64) - np.asarray(weights @ shift)
    tie = layer.tie if layer.sign_zero == "either" else np.zeros(layer.size, dtype=bool)
    return canonical_lattice(rows, start, tie)


def canonical_lattice(rows: Any, start: IntArray, tie: BoolArray) -> CanonicalNeurons:
    """Return neurons x = +1 iff w.z >= start in canonical form; `tie`: x may be -1 at start."""
    filled = np.flatnonzero(np.diff(rows.indptr))
    divisor = np.ones(rows.shape[0], dtype=np.int64)
    sign = np.ones(rows.shape[0], dtype=np.int64)
    if filled.size:
        divisor[filled] = np.gcd.reduceat(np.abs(rows.data), rows.indptr[filled])
        sign[filled] = np.sign(rows.data[rows.indptr[filled]])
    data = rows.data // np.repeat(divisor, np.diff(rows.indptr))
    rows = csr_matrix(data, rows.indices, rows.indptr, rows.shape)
    norm = row_norms(rows).astype(np.int64)
    # The smallest value >= start / divisor with the parity of the norm.
    first = -(-start // divisor)
    first = first + (first + norm) % 2
    tied = tie & (first * divisor == start) & (np.abs(first) <= norm)
    always, never = (first <= -norm) & ~tied, first > norm
    constant = np.where(always, 1, np.where(never, -1, 0)) * sign
    opposite = np.where(tied, -first, 2 - first)
    first = np.where(sign < 0, opposite, first)
    return CanonicalNeurons(scale_rows(rows, sign), sign, constant, tied, first, first)
