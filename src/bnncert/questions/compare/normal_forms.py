"""Where the normal forms of two networks differ, neuron by neuron and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network


@dataclass(frozen=True)
class LayerComparison:
    """One layer of two networks, called A and B.

    Attributes
    ----------
    layer
        Its name: "layer 1", .., "output".
    first, second
        The numbers of neurons (of scores, for the output); 0 if a network has no such layer.
    differing
        How many neurons differ from the one with the same number; None if their numbers differ.
    difference
        The first difference in words; empty without one.
    """

    layer: str
    first: int
    second: int
    differing: int | None
    difference: str

    @property
    def is_equal(self) -> bool:
        """Whether the layer is the same in both networks."""
        return not self.difference

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return vars(self).copy()


def compare_layers(first: Network, second: Network) -> tuple[LayerComparison, ...]:
    """Return all layers of two networks with their differences."""
    made = []
    for number in range(max(first.depth, second.depth)):
        name = f"layer {number + 1}"
        one, two = (net.layers[number] if number < net.depth else None for net in (first, second))
        if one is None or two is None:
            sizes = (0 if one is None else one.size, 0 if two is None else two.size)
            who = "A" if one is None else "B"
            text = f"{who} has {min(first.depth, second.depth)} sign layers"
            made.append(LayerComparison(name, *sizes, None, f"{name}: {text}"))
        else:
            made.append(_compare(name, one, two))
    return (*made, _compare_outputs(first.output, second.output))


def _compare(name: str, one: ThresholdLayer, two: ThresholdLayer) -> LayerComparison:
    """Compare two hidden layers."""
    sizes = one.size, two.size
    if one.rows.shape != two.rows.shape:
        what = "neurons" if one.size != two.size else "inputs"
        shown = sizes if one.size != two.size else (one.inputs, two.inputs)
        text = f"{name}: {shown[0]} {what} in A and {shown[1]} in B"
        return LayerComparison(name, *sizes, None, text)
    weights = as_sparse(as_sparse(one.weights) != as_sparse(two.weights))
    changed = np.diff(weights.indptr) > 0
    thresholds = _other_thresholds(one, two)
    differing = changed | thresholds
    if not differing.any():
        return LayerComparison(name, *sizes, 0, "")
    j = int(np.flatnonzero(differing)[0])
    if changed[j]:
        text = _weight_text(weights, one.weights, two.weights, j)
    else:
        text = _threshold_text(one, two, j)
    text = f"{name}, neuron {j}: {text}"
    return LayerComparison(name, *sizes, int(np.count_nonzero(differing)), text)


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
    sizes = one.classes, two.classes
    if one.weights.shape != two.weights.shape:
        what = "scores" if one.classes != two.classes else "inputs"
        shown = [len(w) if what == "scores" else w.shape[1] for w in (one.weights, two.weights)]
        text = f"output: {shown[0]} {what} in A and {shown[1]} in B"
        return LayerComparison("output", *sizes, None, text)
    weights = one.weights != two.weights
    biases = (one.bias != two.bias) | (one.bias_error != two.bias_error)
    errors = one.weight_error != two.weight_error
    scales = (one.gain, one.gain_is_one) != (two.gain, two.gain_is_one)
    differing = np.any(weights, axis=1) | biases | errors | scales
    text = next(_output_texts(one, two, differing), "")
    return LayerComparison("output", *sizes, int(np.count_nonzero(differing)), text)


def _output_texts(one: OutputLayer, two: OutputLayer, differing: BoolArray) -> Iterator[str]:
    """Yield the first difference of the first score that differs."""
    for k in np.flatnonzero(differing)[:1].tolist():
        changed = np.flatnonzero(one.weights[k] != two.weights[k])
        where = f"output, score {k}: "
        if changed.size:
            i = int(changed[0])
            a, b = one.weights[k, i], two.weights[k, i]
            yield f"{where}the weight of input {i} is {a:.9g} in A and {b:.9g} in B"
        elif one.bias[k] != two.bias[k]:
            yield f"{where}the bias is {one.bias[k]:.17g} in A and {two.bias[k]:.17g} in B"
        elif one.gain != two.gain:
            yield f"{where}all scores have the factor {one.gain:.9g} in A and {two.gain:.9g} in B"
        else:
            yield f"{where}its irrational numbers are known to other precisions"
