r"""The paper's order-1 relaxations as structured programs, with the same optimal value.

At order 1 the layered cliques give the value of one dense moment matrix.  Over the moments M of
z = (1, x_1, .., x_L, y) with the input y, a neuron x = sign(w.v + b) only constrains the moments of
(1, u, x, x u), u = w.v.  In the tight encoding these lie in the tetrahedron of the four points

    (u, x) = (-nv, -1), (-b, -1), (-b, 1), (nv, 1),

whose facets are the four inequalities of the encoding: a table with four points.  The inequalities
of the other encodings, and those of the input, are tables with two points, the ends of the range of
a product of two linear forms; the end that is not the inequality follows from M >= 0.

For a box, E[y_i^2] = 1 does not change the value.  For a ball, a last variable that occurs nowhere
else makes the sum of all E[y_i^2] equal to their number.

Layers are linear forms with known ranges.  Inputs of a box are rescaled to y in [-1, 1].  For an L2
ball with centre m and radius r, y = c (x_0 - m) with sum_i y_i^2 <= c^2 r^2 <= n + 1, and a side of
the bounding box that the ball does not imply is  y_i^2 - 2 g_i y_i <= h_i^2 - g_i^2,  with the
middle g of the box and its half width h in the units of y.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableObjective, UnstableProblem
from bnncert.engine.relaxations.moments.encoding import Encoding
from bnncert.engine.solvers.product_matrices import dual_bound
from bnncert.engine.solvers.structured_program import (
    StructuredMultipliers,
    StructuredProgram,
    Tables,
)
from bnncert.errors import InputError
from bnncert.model.layers import UNIT
from bnncert.regions import Region
from bnncert.regions.linear_program import ScaledInputs, scaled_inputs


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


#: The sign of x at the four points of a neuron.
SIGNS = np.array([-1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True, eq=False)
class LayeredRelaxation:
    """A structured program over z, and f = constant + scale * (its value), up to +-slack.

    The squares of the first `signs` entries of z are 1; those of the others are at most 1, or their
    sum is equal to their number.
    """

    program: StructuredProgram
    signs: int
    scale: float
    constant: float
    slack: float

    def bound(self, multipliers: StructuredMultipliers) -> float:
        """Return the lower bound of f that these multipliers prove, rounding included."""
        kappa = multipliers.kappa
        if not self.program.shared:
            # y_i^2 is between 0 and 1.
            free = np.minimum(kappa[self.signs :], 0.0)
            kappa = np.concatenate([kappa[: self.signs], free])
        value = dual_bound(self.program, replace(multipliers, kappa=kappa)) * self.scale
        rounding = 4 * UNIT * (abs(value) + abs(self.constant))
        return value + self.constant - self.slack - rounding


def layered_program(
    problem: UnstableProblem, region: Region, encoding: Encoding, objective: UnstableObjective
) -> LayeredRelaxation:
    """Return the relaxation of one objective over its unstable neurons."""
    inputs = input_rows(problem.layers[0], region)
    layers = [inputs.first, *map(hidden_rows, problem.layers[1:])]
    ends = np.cumsum([1, *(layer.threshold.size for layer in layers)]).tolist()
    signs, shared = ends[-1], 0 if inputs.ball is None else inputs.size + 1
    vectors = _Vectors(signs + (shared or inputs.size))
    tables: list[Tables] = []
    for layer, start, below in zip(layers, ends[:-1], [signs, *ends[:-2]], strict=True):
        tables += vectors.neurons(encoding, layer, below, start + np.arange(layer.threshold.size))
    tables += vectors.input_tables(inputs, signs)
    linear = np.zeros(vectors.size)
    linear[ends[-2] : ends[-1]] = objective.coefficients
    scale = float(_power_of_two(np.abs(objective.coefficients).mean()))
    nothing = np.zeros(0, dtype=np.int64)
    program = StructuredProgram(
        linear / scale,
        vectors.rows(),
        tuple(vectors.numbered(t) for t in tables),
        nothing,
        np.zeros(0),
        nothing,
        nothing,
        shared,
        # No product of the encodings has two inputs, or two neurons of the last layer.
        tips=vectors.size - (ends[-2] if len(layers) > 1 else signs),
    )
    return LayeredRelaxation(program, signs, scale, objective.constant, objective.slack)


class _Vectors:
    """Collects the general vectors of Z, while unit vectors have negative numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: list[FloatArray] = [np.zeros((0, size))]
        self.count = 0

    def rows(self) -> FloatArray:
        """Return all general vectors."""
        return np.vstack(self.blocks)

    def numbered(self, tables: Tables) -> Tables:
        """Return tables whose unit vectors follow all general vectors."""
        left, right = (np.where(v < 0, self.count - 1 - v, v) for v in (tables.left, tables.right))
        return replace(tables, left=left, right=right)

    def add(self, start: int, rows: FloatArray, constant: FloatArray | float = 0.0) -> IntArray:
        """Add constant + rows over the entries of z from `start`; return the numbers."""
        wide = np.zeros((rows.shape[0], self.size))
        wide[:, start : start + rows.shape[1]] = rows
        wide[:, 0] += constant
        self.blocks.append(wide)
        self.count += rows.shape[0]
        return np.arange(self.count - rows.shape[0], self.count)

    def add_units(self, index: IntArray, constant: FloatArray | float) -> IntArray:
        """Add constant + z_i for every index i; return the numbers."""
        return self.add(0, np.eye(self.size)[index], constant)

    def neurons(
        self, encoding: Encoding, layer: NeuronRows, below: int, outputs: IntArray
    ) -> list[Tables]:
        """Return the tables of a layer that reads z from `below` and determines `outputs`."""
        norm = _power_of_two(np.sqrt((layer.rows**2).sum(axis=1)))
        rows, threshold = layer.rows / norm[:, None], layer.threshold / norm
        low, high, doubt = layer.low / norm, layer.high / norm, layer.doubt / norm
        x = _unit(outputs)
        if encoding == "tight":
            u, one = self.add(below, rows), _unit(np.zeros_like(outputs))
            # The two segments are not empty, also after rounding.
            off, on = np.maximum(threshold + doubt, low), np.minimum(threshold - doubt, high)
            v = np.stack([low, off, on, high], axis=1)
            sign = np.broadcast_to(SIGNS, v.shape)
            features = np.stack([np.ones_like(v), v, sign, sign * v], axis=2)
            left, right = np.stack([one, one, x], axis=1), np.stack([u, x, u], axis=1)
            return [Tables(np.zeros_like(v), features, left, right)]
        value = self.add(below, rows, -threshold)
        reach = (np.maximum(-low, high) + np.abs(threshold)) * (1 + 8 * UNIT)
        if encoding == "standard":
            return [_range(x, value, -doubt, reach)]
        if encoding != "tight-plain":
            raise InputError(f"encoding is {encoding!r}; expected standard, tight-plain or tight")
        sides = (self.add_units(outputs, sign) for sign in (1.0, -1.0))
        return [_range(side, value, -2 * doubt, 2 * reach) for side in sides]

    def input_tables(self, inputs: InputRows, start: int) -> list[Tables]:
        """Return the sides of a ball's bounding box, and facets; y begins at `start`."""
        tables = []
        if inputs.ball is not None and inputs.ball.index.size:
            index, middle = start + inputs.ball.index, inputs.ball.middle
            form = self.add_units(index, -2.0 * middle)
            low = -(middle**2) * (1 + 4 * UNIT)
            tables.append(_range(_unit(index), form, low, inputs.ball.top))
        if inputs.right.size:
            low = -np.abs(inputs.facets).sum(axis=1) * (1 + 4 * (inputs.size + 2) * UNIT)
            one = _unit(np.zeros(inputs.right.size, dtype=np.int64))
            tables.append(_range(one, self.add(start, inputs.facets), low, inputs.right))
        return tables


def _unit(index: IntArray) -> IntArray:
    return -1 - index


def _range(left: IntArray, right: IntArray, low: FloatArray, high: FloatArray) -> Tables:
    """Return tables for  low <= <sym(left, right), M> <= high."""
    v = np.stack([low, high], axis=1)
    features = np.stack([np.ones_like(v), v], axis=2)
    return Tables(np.zeros_like(v), features, left[:, None], right[:, None])


def _power_of_two(values: FloatArray) -> FloatArray:
    """Return the nearest powers of two; division by them is exact."""
    return np.asarray(2.0 ** np.rint(np.log2(np.clip(values, 1e-100, 1e100))))
