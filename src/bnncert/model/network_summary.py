"""A network as a table of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.text_table import TextTable

#: Layers that a table shows; of more layers the first and the last ones.
MOST_LAYERS = 8

HEADS = ("layer", "kind", "neurons", "inputs", "weights", "zeros", "sign(0)")


def layer_table(
    above: str, layers: Sequence[ThresholdLayer], output: OutputLayer, below: Sequence[str]
) -> TextTable:
    """Return one row for each layer: its neurons, inputs, weights and sign(0)."""
    rows = []
    for number, layer in enumerate(layers, start=1):
        kind = "dense" if layer.convolution is None else "convolution"
        cells = _weights(layer.size, layer.inputs, layer.rows.data)
        rows.append([str(number), kind, *cells, layer.sign_zero])
    if len(rows) > MOST_LAYERS:
        half = MOST_LAYERS // 2
        rows = [*rows[:half], ["...", *[""] * (len(HEADS) - 1)], *rows[-half:]]
    last = _weights(output.classes, output.weights.shape[1], output.weights)
    rows.append(["output", "dense", *last, ""])
    return TextTable(above, HEADS, rows, below, left=2)


def _weights(neurons: int, inputs: int, weights: Any) -> list[str]:
    """Return the cells of a matrix: its size, its values other than 0, and the share of 0."""
    nonzero = weights[weights != 0]
    values = np.unique(nonzero)
    text = ", ".join(f"{value:g}" for value in values)
    if values.size > 4:
        text = f"{values[0]:.3g} to {values[-1]:.3g}"
    zeros = 1.0 - nonzero.size / max(1, neurons * inputs)
    return [str(neurons), str(inputs), text, f"{100 * zeros:.0f} %"]
