r"""Layers of the paper's encodings as linear forms with known ranges.

Inputs of a box are rescaled to y in [-1, 1].  For an L2 ball with centre m and radius r,
y = c (x_0 - m) with sum_i y_i^2 <= c^2 r^2 <= n + 1, and a side of the bounding box that the ball
does not imply is  y_i^2 - 2 g_i y_i <= h_i^2 - g_i^2,  with the middle g of the box and its half
width h in the units of y.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.reduction import UnstableLayer
from bnncert.errors import InputError
from bnncert.model.layers import UNIT
from bnncert.regions import Region
from bnncert.regions.linear_block import ScaledInputs, scaled_inputs


@dataclass(frozen=True, eq=False)
class NeuronRows:
    """The sums u = rows.v of the neurons of a layer, and their bounds and thresholds.

    low <= u <= high; x = +1 needs u >= threshold - doubt, and x = -1 needs u <= threshold + doubt.
    """

    rows: FloatArray
    threshold: FloatArray
    doubt: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class BallSides:
    """Sides  y_i^2 - 2 middle_i y_i <= top_i  of the inputs `index`."""

    index: IntArray
    middle: FloatArray
    top: FloatArray


@dataclass(frozen=True, eq=False)
class InputRows:
    """The variables y of the input."""

    #: The first layer over y.
    first: NeuronRows
    #: The number of variables.
    size: int
    #: None for y in [-1, 1]^n; for sum y_i^2 <= n + 1, the sides of the bounding box.
    ball: BallSides | None = None
    #: facets.y <= right.
    facets: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    right: FloatArray = field(default_factory=lambda: np.zeros(0))


def hidden_rows(layer: UnstableLayer) -> NeuronRows:
    """Return a layer above the first one, with the paper's real thresholds."""
    rows = layer.weights.toarray().astype(np.float64)
    reach = np.abs(rows).sum(axis=1)
    # If the bias is rounded, the encoding still allows all signs of the network.
    doubt = np.maximum(layer.minus_upto + layer.bias, -layer.bias - layer.plus_from)
    return NeuronRows(rows, -layer.bias, np.maximum(doubt, 0.0), -reach, reach)


def input_rows(layer: UnstableLayer, region: Region) -> InputRows:
    """Return the first layer over the variables y of a region."""
    if region.norm in ("l0", "l1"):
        raise InputError("the polynomial encodings take L-inf and L2 balls, boxes and polytopes")
    inputs = scaled_inputs(region, layer.inputs)
    n, weights = inputs.index.size, layer.weights_over(inputs.index)
    dense = weights.toarray()
    scaled = dense * inputs.half
    reach = np.abs(dense) @ (np.abs(inputs.base) + inputs.half) + np.abs(layer.bias)
    # The rounding error, and the enclosure of an irrational bias.
    doubt = 4 * UNIT * (n + 8) * reach + (layer.minus_upto - layer.plus_from)
    threshold = -(dense @ inputs.base + layer.bias)
    span = np.abs(scaled).sum(axis=1) * (1 + 4 * (n + 2) * UNIT)
    if region.norm == "l2":
        box = NeuronRows(dense, threshold, doubt, -span, span)
        return _over_ball(region, inputs, box)
    first = NeuronRows(scaled, threshold, doubt, -span, span)
    matrix, limits = region.inequalities
    if not limits.size:
        return InputRows(first, n)
    part = matrix[:, inputs.index]
    size = np.abs(part) @ (np.abs(inputs.base) + inputs.half) + np.abs(limits)
    right = limits - part @ inputs.base + 4 * UNIT * (n + 8) * size
    return InputRows(first, n, None, part * inputs.half, right)


def _over_ball(region: Region, inputs: ScaledInputs, box: NeuronRows) -> InputRows:
    """Measure the sums from the centre of the ball instead of the middle of its bounding box."""
    n, radius = inputs.index.size, max(region.radius, 1e-100)
    gap = inputs.base - region.middle[inputs.index]
    unit = np.sqrt(n + 1.0) / radius * (1 - 8 * UNIT)
    rows, shift = box.rows / unit, box.rows @ gap
    doubt = 2 * box.doubt + 16 * UNIT * (n + 8) * np.abs(rows).sum(axis=1) * np.sqrt(n + 1.0)
    low, high = shift + box.low - doubt, shift + box.high + doubt
    first = NeuronRows(rows, box.threshold + shift, doubt, low, high)
    index = np.flatnonzero((gap != 0) | (inputs.half < radius))
    g, h = unit * gap[index], unit * inputs.half[index]
    return InputRows(first, n, BallSides(index, g, h**2 - g**2 + 16 * UNIT * (h**2 + g**2)))
