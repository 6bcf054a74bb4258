"""Where the normal forms of two networks differ, neuron by neuron and in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray
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
