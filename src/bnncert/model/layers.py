r"""The layers of a binary network in normal form.

A hidden layer is x = sign(W y + b).  From the second layer on, W y is an integer with the parity of
nv = sum |w|, and a neuron is described by one integer p: it *can be* +1 iff w.y >= p and -1 iff
w.y <= q, with q = p - 2 (or q = p for a tie, if sign(0) may be either).  In the first layer the
bias is enclosed by two floats (equal unless batch normalisation makes it irrational), and the sign
of a point between them is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.model.description import Convolution, SignZero, Stage, WeightBits
from bnncert.model.matrices import Operator, as_matrix, make_operator, row_norms, with_data

#: Weights that are multiples of 2^-20 (integers, quantised numbers) are summed as integers.
FINEST_EXPONENT = -20


class SignedSums:
    """The rows of a weight matrix, prepared for exact products with sign vectors."""

    def __init__(self, rows: npt.NDArray[np.float64]) -> None:
        self._rows = rows
        self._unit = Fraction(2) ** FINEST_EXPONENT
        scaled = np.ldexp(rows, -FINEST_EXPONENT)
        fits = np.all(scaled == np.rint(scaled)) and np.abs(scaled).sum(axis=1).max() < 2.0**62
        # None if the weights do not fit 64-bit integers; the sums are then computed in rationals.
        self._integers = scaled.astype(np.int64) if fits else None

    def exactly(self, signs: npt.NDArray[Any]) -> list[Fraction]:
        """Sum up every row at one sign vector; 0 is used as -1."""
        if self._integers is not None:
            units = self._integers @ np.where(signs > 0, 1, -1)
            return [int(u) * self._unit for u in units]
        plus = signs > 0
        return [
            sum(map(Fraction, row[plus].tolist()), Fraction(0))
            - sum(map(Fraction, row[~plus].tolist()), Fraction(0))
            for row in self._rows
        ]


#: Entries of exact sign vectors for neurons without a sign: both signs are allowed (a tie), or the
#: enclosure of an irrational threshold does not decide the sign.
TIED, UNDECIDED = 0, 2

#: Unit roundoff of float64, and the distance from 1 to the next float64.
ROUNDOFF, UNIT = 2.0**-53, 2.0**-52


@dataclass(frozen=True, eq=False)
class ThresholdLayer:
    """One layer x = sign(W y + b).

    Attributes
    ----------
    rows
        The weights, one row for each neuron: `CsrArrays` or a CSR matrix of SciPy; int8 for ternary
        weights, int32 for other integers, else float64.
    bias
        A float bias that describes the neuron (exactly, for all inputs that can occur, in
        layers with signs as inputs; rounded within [bias_lo, bias_hi] in the first layer).
    on_from, tie
        For layers whose inputs are signs: the smallest lattice value p with F(p) >= 0, and
        whether F(p) = 0.  None in the first layer.
    bias_lo, bias_hi
        For the first layer: floats that enclose the bias.  None elsewhere.
    sign_zero
        What sign(0) is in this layer.
    name
        The name in the file.
    convolution
        The kernel, if the layer is a convolution.
    flip
        For each neuron of a convolution the factor, 1 or -1, of its row (None: 1).
    fixed_sign_zero
        Whether the file states sign(0) for this layer.
    slack
        For layers whose inputs are signs: by how much the sum of each neuron may be wrong, so that
        both signs are possible near the threshold (`kernel/rules/weight_flips.py`).  None: exact.
    bits
        What a flip of one bit of the file changes (:mod:`bnncert.model.description`).
    described
        The layer as its file has it, where floats cannot state its bias; None where they do.
    """

    rows: Any
    bias: FloatArray
    sign_zero: SignZero
    name: str
    on_from: IntArray | None = None
    tie: npt.NDArray[np.bool_] | None = None
    bias_lo: FloatArray | None = None
    bias_hi: FloatArray | None = None
    convolution: Convolution | None = None
    flip: npt.NDArray[Any] | None = None
    fixed_sign_zero: bool = False
    slack: IntArray | None = None
    bits: WeightBits = "own"
    described: Stage | None = None

    def __repr__(self) -> str:
        kind = "dense" if self.convolution is None else "convolution"
        return f"ThresholdLayer({self.name}, {kind}, {self.size} neurons of {self.inputs} inputs)"

    @cached_property
    def weights(self) -> Any:
        """The weights as a CSR matrix of SciPy, which is imported by the first use."""
        return as_matrix(self.rows)

    @property
    def size(self) -> int:
        """The number of neurons."""
        return int(self.rows.shape[0])

    @property
    def inputs(self) -> int:
        """The number of inputs of the layer."""
        return int(self.rows.shape[1])

    @property
    def is_lattice(self) -> bool:
        """Whether the pre-activations are integers (every layer but the first)."""
        return self.on_from is not None

    @cached_property
    def norm(self) -> FloatArray:
        """The row-wise 1-norm nv of the weights."""
        return row_norms(self.rows)

    @property
    def enclosure(self) -> tuple[FloatArray, FloatArray]:
        """The floats (bias_lo, bias_hi) that enclose the bias of a first layer."""
        assert self.bias_lo is not None and self.bias_hi is not None
        return self.bias_lo, self.bias_hi

    @cached_property
    def plus_from(self) -> npt.NDArray[Any]:
        """The smallest value of W y at which x = +1 may occur (first layer: -bias_hi)."""
        if self.on_from is None:
            return -self.enclosure[1]
        return self._sharp_plus_from - (0 if self.slack is None else self.slack)

    @cached_property
    def minus_upto(self) -> npt.NDArray[Any]:
        """The largest value of W y at which x = -1 may occur (first layer: -bias_lo)."""
        if self.on_from is None or self.tie is None:
            return -self.enclosure[0]
        minus = self._sharp_plus_from - 2
        if self.sign_zero == "either":
            minus = self.on_from - 2 + 2 * self.tie
        return minus + (0 if self.slack is None else self.slack)

    @cached_property
    def _sharp_plus_from(self) -> IntArray:
        """`plus_from` of a layer above the first without its slack."""
        assert self.on_from is not None and self.tie is not None
        return self.on_from + 2 * self.tie if self.sign_zero == "minus" else self.on_from

    def operator(self, dtype: npt.DTypeLike = np.float64) -> Operator:
        """Take the fast form of the weights, which is made once for each dtype."""
        key = np.dtype(dtype).str
        if key not in self._operators:
            self._operators[key] = make_operator(self.rows, self.convolution, self.flip, dtype)
        return self._operators[key]

    def magnitudes(self, dtype: npt.DTypeLike = np.float64) -> Operator:
        """Take the fast form of the magnitudes of the weights, made once for each dtype."""
        key = f"magnitudes {np.dtype(dtype).str}"
        if key not in self._operators:
            convolution = self.convolution
            if convolution is not None:
                convolution = replace(convolution, kernel=np.abs(convolution.kernel))
            flip = None if self.flip is None else np.abs(self.flip)
            rows = with_data(self.rows, np.abs(self.rows.data))
            self._operators[key] = make_operator(rows, convolution, flip, dtype)
        return self._operators[key]

    @cached_property
    def _operators(self) -> dict[str, Operator]:
        return {}

    @cached_property
    def has_small_sums(self) -> bool:
        """Whether float32 sums of signs are exact in any order: fewer than 2^24 units."""
        return bool(self.norm.max(initial=0.0) < 2**24)

    def threshold(self, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Find c such that x = +1 iff W y >= c in floating point ("either" is used as "plus")."""
        if self.on_from is not None:
            # Half way between two lattice points, so that rounding does not change the comparison.
            return (self._sharp_plus_from - 1).astype(dtype)
        limit = (-self.bias).astype(dtype)
        # For floats, w > c is w >= the next float after c.
        return np.nextafter(limit, np.inf) if self.sign_zero == "minus" else limit

    def exact_signs(self, point: Sequence[Fraction] | npt.NDArray[Any]) -> SignArray:
        """Decide the sign of every neuron at one point, in exact arithmetic.

        An entry is TIED where sign(0) may be either, and UNDECIDED where the enclosure of an
        irrational threshold contains the point.
        """
        if self.on_from is not None:
            total = self._integer_sums(np.asarray(point, dtype=np.int8))
            plus, minus = total >= self.plus_from, total <= self.minus_upto
            return np.where(plus & minus, TIED, np.where(plus, 1, -1)).astype(np.int8)
        bias_lo, bias_hi = self.enclosure
        signs = np.zeros(self.size, dtype=np.int8)
        undecided: npt.NDArray[Any] = np.arange(self.size)
        if undecided.size:
            # A float evaluation decides every neuron whose distance from its threshold is larger
            # than the rounding error of a dot product and of the point; the others are decided in
            # rationals.
            floats = np.asarray(point, dtype=np.float64)
            value = self.operator(np.float64).forward(floats[None, :])[0]
            terms = np.diff(self.rows.indptr) + 3
            reach = self.norm * np.abs(floats).max(initial=0.0) + np.abs(bias_hi)
            error = 1.01 * terms * ROUNDOFF * reach + 1e-300
            signs[value + bias_lo > error] = 1
            signs[value + bias_hi < -error] = -1
            undecided = np.flatnonzero(signs == 0)
        exact = [Fraction(v) for v in point] if undecided.size else []
        for j in undecided:
            start, stop = self.rows.indptr[j], self.rows.indptr[j + 1]
            columns, data = self.rows.indices[start:stop], self.rows.data[start:stop]
            exact_sum = sum(
                (
                    Fraction(w) * exact[i]
                    for i, w in zip(columns.tolist(), data.tolist(), strict=True)
                ),
                Fraction(0),
            )
            signs[j] = self._settle(
                exact_sum + Fraction(float(bias_lo[j])), exact_sum + Fraction(float(bias_hi[j]))
            )
        return signs

    def _integer_sums(self, signs: SignArray) -> npt.NDArray[Any]:
        if self.has_small_sums:
            batch = signs[None, :].astype(np.float32)
            return np.asarray(self.operator(np.float32).forward(batch)[0])
        return np.asarray(self.weights.astype(np.int64) @ signs.astype(np.int64))

    def _settle(self, low: Fraction, high: Fraction) -> int:
        if low > 0:
            return 1
        if high < 0:
            return -1
        if low == high == 0:
            return {"plus": 1, "minus": -1, "either": TIED}[self.sign_zero]
        return UNDECIDED


@dataclass(frozen=True, eq=False)
class OutputLayer:
    """scores = gain * (W x + b), row j known to within gain * error_j.

    `gain` is a positive factor of all rows, which does not change a comparison of scores
    (`gain_is_one` distinguishes an exact 1 from a number that rounds to it).  The error of a row
    has a part from its weights and one from its bias; rows of one `group` have exactly the same
    bias, even if it is irrational.

    Attributes
    ----------
    weights, bias
        W and b, with one row for each score.
    weight_error, bias_error, group
        The parts of the errors, and the numbers of the groups.
    gain, gain_is_one
        The factor.
    name
        The name in the file.
    bits
        What a flip of one bit of the file changes (:mod:`bnncert.model.description`).
    described
        The output as its file has it, where its scores are known up to errors only; else None.
    """

    weights: FloatArray
    bias: FloatArray
    weight_error: FloatArray
    bias_error: FloatArray
    group: IntArray
    gain: float = 1.0
    gain_is_one: bool = True
    name: str = "output"
    bits: WeightBits = "own"
    described: Stage | None = None

    def __repr__(self) -> str:
        return f"OutputLayer({self.name}, {self.classes} scores of {self.weights.shape[1]} signs)"

    @property
    def error(self) -> FloatArray:
        """The error of each row, from weights and bias together."""
        return np.where(
            (self.weight_error > 0) | (self.bias_error > 0),
            np.nextafter(self.weight_error + self.bias_error, np.inf),
            0.0,
        )

    @property
    def classes(self) -> int:
        """The number of scores."""
        return int(self.weights.shape[0])

    def exactly(self, signs: npt.NDArray[Any]) -> list[Fraction]:
        """Evaluate W x + b at one sign vector, in rationals."""
        sums = self._sums.exactly(signs)
        return [s + Fraction(b) for s, b in zip(sums, self.bias.tolist(), strict=True)]

    def exact_class(self, signs: npt.NDArray[Any]) -> int | None:
        """Find the first class with the highest score, or None if the errors leave it open."""
        scores = self.exactly(signs)
        best = max(range(len(scores)), key=lambda k: (scores[k], -k))
        for k, score in enumerate(scores):
            doubt = Fraction(0)
            if self.group[k] != self.group[best] or self.weight_error[k] or self.weight_error[best]:
                doubt = Fraction(float(self.error[k])) + Fraction(float(self.error[best]))
            if k != best and doubt and scores[best] - score <= doubt:
                return None
        return best

    @cached_property
    def integers(self) -> tuple[npt.NDArray[Any], int]:
        """The weights as integers over a common denominator, exactly."""
        if np.all(self.weights == np.rint(self.weights)) and np.abs(self.weights).max() < 2**31:
            return self.weights.astype(np.int64), 1
        exact = [Fraction(w) for w in self.weights.ravel().tolist()]
        common = math.lcm(*(w.denominator for w in exact))
        whole = np.array([int(w * common) for w in exact], dtype=object)
        return whole.reshape(self.weights.shape), common

    @cached_property
    def _sums(self) -> SignedSums:
        return SignedSums(self.weights)
