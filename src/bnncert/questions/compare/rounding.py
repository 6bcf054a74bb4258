"""Two networks that differ by the rounding of constants only, as a model and its export do.

Let A and B have the same weights below the output and the same hidden thresholds.  At signs x of
the last layer their scores W x + b differ by at most

e_k = sum_i |W_ki - W'_ki| + |b_k - b'_k| + the errors of irrational numbers,

so they have the same class unless the best two scores of A are within d, the sum of the two
largest e_k.  A first-layer neuron has the same sign in both unless its sum w.x + b is within
|b - b'| of 0.  No input has to be looked at for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.rounded_bounds import upper_text
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network
from bnncert.questions.compare.normal_forms import LayerComparison


@dataclass(frozen=True)
class Rounding:
    """By how much the constants of two networks differ; the numbers are upper bounds."""

    #: How many constants differ.
    constants: int
    #: The largest difference, relative to the largest number of the constant's row.
    largest: float
    #: How near the best two scores of A must be for B to have another class, in A's own units.
    scores: float
    #: How near to 0 a sum of the first layer must be for its sign to differ.
    sums: float

    @property
    def text(self) -> str:
        """What holds in spite of the differences."""
        exceptions = []
        if self.scores:
            exceptions.append(f"two scores are within {_above(self.scores)}")
        if self.sums:
            exceptions.append(
                f"a sum of the first layer is within {_above(self.sums)} of its threshold"
            )
        differ, whose = "constants differ", "their"
        if self.constants == 1:
            differ, whose = "constant differs", "its"
        return (
            f"{self.constants} {differ}, by at most {_above(self.largest)} of {whose} size; the "
            f"class is the same unless {' or '.join(exceptions)}"
        )


def rounding_between(
    a: Network, b: Network, layers: tuple[LayerComparison, ...]
) -> Rounding | None:
    """Bound the differences of constants; None if the networks differ in more than that.

    `layers` compares the normal forms.  Where sign(0) may be either, a class need not be
    determined, and nothing is said.
    """
    signs = {layer.sign_zero for layer in (*a.layers, *b.layers)}
    if a.depth != b.depth or "either" in signs or not all(one.is_equal for one in layers[1:-1]):
        return None
    first = _first_layer(a.layers[0], b.layers[0], equal=layers[0].is_equal)
    output = _output(a.output, b.output)
    if first is None or output is None:
        return None
    # In the units of A's file: times the factor of its scores, which is known to 50 bits at least.
    scores = output[2] * a.output.gain * (1 + 2.0**-40)
    return Rounding(first[0] + output[0], max(first[1], output[1]), scores, first[2])


def _first_layer(
    one: ThresholdLayer, two: ThresholdLayer, *, equal: bool
) -> tuple[int, float, float] | None:
    """Count the biases that differ; their largest relative and absolute difference."""
    if equal and (one.is_lattice or np.array_equal(*one.enclosure)):
        return 0, 0.0, 0.0
    if one.rows.shape != two.rows.shape or one.is_lattice or two.is_lattice:
        return None
    changed = as_sparse(as_sparse(one.weights) != as_sparse(two.weights))
    if changed.nnz or one.sign_zero != two.sign_zero:
        return None
    (low, high), (lower, upper) = one.enclosure, two.enclosure
    most, least = np.maximum(high, upper), np.minimum(low, lower)
    apart = np.where(most > least, np.nextafter(most - least, np.inf), 0.0)
    largest = np.asarray(abs(as_sparse(one.weights)).max(axis=1).todense()).ravel()
    size = np.maximum(largest, np.maximum(np.abs(most), np.abs(least)))
    return int(np.count_nonzero(apart)), _relative(apart, size), float(apart.max(initial=0.0))


def _output(one: OutputLayer, two: OutputLayer) -> tuple[int, float, float] | None:
    """Count the constants that differ; their relative difference, and the distance d of scores."""
    if one.weights.shape != two.weights.shape:
        return None
    errors = one.error + two.error
    differences = np.column_stack([one.weights - two.weights, one.bias - two.bias])
    constants = int(np.count_nonzero(differences)) + int(np.count_nonzero(errors))
    size = np.max(np.abs(np.column_stack([one.weights, one.bias])), axis=1)
    most = np.nextafter(np.max(np.abs(differences), axis=1) + errors, np.inf)
    exact = []
    for k in range(one.classes):
        pairs = zip(
            [*one.weights[k].tolist(), one.bias[k].item()],
            [*two.weights[k].tolist(), two.bias[k].item()],
            strict=True,
        )
        # In rationals: these are the differences that the claim is about.
        total = sum((abs(Fraction(x) - Fraction(y)) for x, y in pairs if x != y), Fraction(0))
        known = (one.weight_error, one.bias_error, two.weight_error, two.bias_error)
        exact.append(total + sum(Fraction(float(error[k])) for error in known))
    distance = sum(sorted(exact)[-2:], Fraction(0))
    if not distance:
        return 0, 0.0, 0.0
    return constants, _relative(most, size), float(np.nextafter(float(distance), np.inf))


def _relative(difference: FloatArray, size: FloatArray) -> float:
    """Return the largest quotient; to a row of zeros no difference is small."""
    share = np.divide(difference, size, out=np.full_like(difference, np.inf), where=size > 0)
    return float(np.max(np.where(difference > 0, share, 0.0), initial=0.0))


def _above(number: float) -> str:
    """Write a bound with two digits, rounded up."""
    return upper_text(number, 2)
