"""Where the normal forms of two networks differ, in words, and by how much if only constants do."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray, FloatArray
from bnncert.engine.answer import upper_text
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network


@dataclass(frozen=True)
class LayerComparison:
    """One layer of two networks, called A and B."""

    #: Its name: "layer 1", .., "output".
    layer: str
    #: The numbers of neurons (of scores, for the output); 0 if a network has no such layer.
    first: int
    second: int
    #: How many neurons differ from the one with the same number; None if their numbers differ.
    differing: int | None
    #: The first difference in words; empty without one.
    difference: str

    @property
    def is_equal(self) -> bool:
        """Whether the layer is the same in both networks."""
        return not self.difference

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return vars(self).copy()


def compare_layers(a: Network, b: Network) -> tuple[LayerComparison, ...]:
    """Compare the layers in order; one that only one network has is a difference."""
    made, depth = [], min(a.depth, b.depth)
    for number, (one, two) in enumerate(zip_longest(a.layers, b.layers), 1):
        name = f"layer {number}"
        if one is not None and two is not None:
            made.append(_compare(name, one, two))
        else:
            text = f"{name}: {'A' if one is None else 'B'} has {depth} sign layers"
            first, second = (0 if layer is None else layer.size for layer in (one, two))
            made.append(LayerComparison(name, first, second, None, text))
    return (*made, _compare_outputs(a.output, b.output))


def _other_shape(name: str, rows: str, one: Any, two: Any) -> LayerComparison | None:
    """Return matrices of different shapes as a difference; `rows` says what their rows are."""
    if one.shape == two.shape:
        return None
    axis, what = (0, rows) if one.shape[0] != two.shape[0] else (1, "inputs")
    text = f"{name}: {one.shape[axis]} {what} in A and {two.shape[axis]} in B"
    return LayerComparison(name, one.shape[0], two.shape[0], None, text)


def _compare(name: str, one: ThresholdLayer, two: ThresholdLayer) -> LayerComparison:
    """Compare two hidden layers."""
    apart = _other_shape(name, "neurons", one.rows, two.rows)
    if apart is not None:
        return apart
    weights = as_sparse(as_sparse(one.weights) != as_sparse(two.weights))
    changed = np.diff(weights.indptr) > 0
    differing = changed | _other_thresholds(one, two)
    text, j = "", int(np.argmax(differing)) if differing.size else 0
    if differing.any():
        words = _weight_text(weights, one.weights, two.weights, j) if changed[j] else ""
        text = f"{name}, neuron {j}: {words or _threshold_text(one, two, j)}"
    return LayerComparison(name, one.size, two.size, int(np.count_nonzero(differing)), text)


def _other_thresholds(one: ThresholdLayer, two: ThresholdLayer) -> BoolArray:
    """Return which neurons have another threshold; sign(0) counts where a sum can be 0."""
    if one.is_lattice and two.is_lattice:
        different = (one.plus_from != two.plus_from) | (one.minus_upto != two.minus_upto)
    else:
        (low, high), (lower, upper) = one.enclosure, two.enclosure
        different = (low != lower) | (high != upper)
    if not one.is_lattice and one.sign_zero != two.sign_zero:
        different = np.ones(one.size, dtype=bool)
    return np.asarray(different, dtype=bool)


def _weight_text(changed: Any, one: Any, two: Any, j: int) -> str:
    """Describe the first weight of a row that differs."""
    columns = changed.indices[changed.indptr[j] : changed.indptr[j + 1]]
    i = int(columns.min())
    weights = [float(w[[j], [i]].item()) for w in (one, two)]
    more = f" ({columns.size} weights of the neuron differ)" if columns.size > 1 else ""
    return f"the weight of input {i} is {weights[0]:.9g} in A and {weights[1]:.9g} in B{more}"


def _threshold_text(one: ThresholdLayer, two: ThresholdLayer, j: int) -> str:
    """Describe how the threshold of a neuron differs."""
    if one.is_lattice:
        if one.plus_from[j] != two.plus_from[j]:
            return (
                f"+1 from a sum of {int(one.plus_from[j])} in A and of {int(two.plus_from[j])} in B"
            )
        return f"at a sum of {int(one.plus_from[j])}, {_zeros(one, two)}"
    biases = [(float(low[j]), float(high[j])) for low, high in (one.enclosure, two.enclosure)]
    if biases[0] == biases[1]:
        return _zeros(one, two)
    shown = [f"{a:.17g}" if a == b else f"between {a:.17g} and {b:.17g}" for a, b in biases]
    return f"the bias is {shown[0]} in A and {shown[1]} in B"


def _zeros(one: ThresholdLayer, two: ThresholdLayer) -> str:
    return f"sign(0) is {one.sign_zero} in A and {two.sign_zero} in B"


def _compare_outputs(one: OutputLayer, two: OutputLayer) -> LayerComparison:
    """Compare the scores."""
    apart = _other_shape("output", "scores", one.weights, two.weights)
    if apart is not None:
        return apart
    weights = one.weights != two.weights
    biases = (one.bias != two.bias) | (one.bias_error != two.bias_error)
    errors = one.weight_error != two.weight_error
    scales = (one.gain, one.gain_is_one) != (two.gain, two.gain_is_one)
    differing = np.any(weights, axis=1) | biases | errors | scales
    text, k = "", int(np.argmax(differing))
    if differing[k]:
        text = f"output, score {k}: {_score_text(one, two, k)}"
    count = int(np.count_nonzero(differing))
    return LayerComparison("output", one.classes, two.classes, count, text)


def _score_text(one: OutputLayer, two: OutputLayer, k: int) -> str:
    """Describe the first difference of a score."""
    changed = np.flatnonzero(one.weights[k] != two.weights[k])
    if changed.size:
        i = int(changed[0])
        a, b = one.weights[k, i], two.weights[k, i]
        return f"the weight of input {i} is {a:.9g} in A and {b:.9g} in B"
    if one.bias[k] != two.bias[k]:
        return f"the bias is {one.bias[k]:.17g} in A and {two.bias[k]:.17g} in B"
    if one.gain != two.gain:
        return f"all scores have the factor {one.gain:.9g} in A and {two.gain:.9g} in B"
    return "its irrational numbers are known to other precisions"


@dataclass(frozen=True)
class Rounding:
    """By how much the constants of two networks differ; the numbers are upper bounds.

    So a model and its export do.  Let A and B have the same weights below the output and the same
    hidden thresholds.  At signs x of the last layer their scores W x + b differ by at most

    e_k = sum_i |W_ki - W'_ki| + |b_k - b'_k| + the errors of irrational numbers,

    so they have the same class unless the best two scores of A are within d, the sum of the two
    largest e_k.  A first-layer neuron has the same sign in both unless its sum w.x + b is within
    |b - b'| of 0.  No input has to be looked at for that.
    """

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
