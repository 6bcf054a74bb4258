r"""The paper's order-1 relaxations as structured programs, with the same optimal value.

At order 1 the layered cliques give the value of one dense moment matrix.  Over the moments M of z =
(1, x_1, .., x_L, y) with the input y, a neuron x = sign(w.v + b) only constrains the moments of (1,
u, x, x u), u = w.v.  In the tight encoding these lie in the tetrahedron of the four points

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

The encodings are quadratically constrained polynomial problems.  With inputs rescaled so that the
bounding box of the region is [-1, 1]^n and nv the row-wise 1-norm, a neuron x = sign(w.y + b) with
x^2 = 1 is

    standard     x (w.y + b) >= 0                                                   (the QCQP)
    tight-plain  (x+1)(w.y + b) >= 0,  (x-1)(w.y + b) >= 0
    tight        these two, and the tautologies (x+1)(nv - w.y) >= 0, (1-x)(nv + w.y) >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableObjective, UnstableProblem
from bnncert.engine.relaxations.moments.polynomial import Polynomial, PolynomialProblem
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

Encoding: TypeAlias = Literal["standard", "tight-plain", "tight"]


def encode(
    problem: UnstableProblem,
    region: Region,
    encoding: Encoding,
    objective: int | Polynomial = 0,
    deadline: Deadline | None = None,
) -> PolynomialProblem:
    """Encode a problem; raise OutOfTimeError if the deadline passes before that is done.

    Parameters
    ----------
    objective
        The number of one of its objectives, or a polynomial of degree 2 over the inputs
        (variables 0 .. n_0 - 1) and the last layer's signs (n_0 .. n_0 + n_L - 1).
    """
    deadline = deadline or Deadline(None)
    used = problem.layers[0].inputs
    if isinstance(objective, Polynomial):
        mentioned = sorted(v for v in objective.variables if v < region.size)
        used = np.union1d(used, np.array(mentioned, dtype=np.int64))
    inputs = scaled_inputs(region, used)
    ends = np.cumsum([inputs.index.size, *(layer.size for layer in problem.layers)]).tolist()
    layers = [tuple(range(start, stop)) for start, stop in pairwise([0, *ends])]
    inequalities = _input_constraints(region, inputs)
    for number, layer in enumerate(problem.layers, start=1):
        weights, bias, doubt = layer.weights, layer.bias, np.zeros(layer.size)
        if number == 1:
            weights, bias, doubt = _first_layer(layer, inputs)
        for j in range(layer.size):
            deadline.check()
            row = {
                layers[number - 1][i]: float(w)
                for i, w in zip(
                    weights.indices[weights.indptr[j] : weights.indptr[j + 1]].tolist(),
                    weights.data[weights.indptr[j] : weights.indptr[j + 1]].tolist(),
                    strict=True,
                )
            }
            x = Polynomial.affine({layers[number][j]: 1.0})
            inequalities += _neuron(x, row, float(bias[j]), float(doubt[j]), encoding)
    if isinstance(objective, Polynomial):
        f, slack = _substitute(objective, problem, region, inputs, layers)
    else:
        chosen = problem.objectives[objective]
        coefficients = dict(zip(layers[-1], chosen.coefficients.tolist(), strict=True))
        f, slack = Polynomial.affine(coefficients, chosen.constant), chosen.slack
    return PolynomialProblem(tuple(layers), f, tuple(inequalities), slack)


def _substitute(
    objective: Polynomial,
    problem: UnstableProblem,
    region: Region,
    inputs: ScaledInputs,
    layers: list[tuple[int, ...]],
) -> tuple[Polynomial, float]:
    """Return an objective of raw inputs and last-layer signs in the variables of the encoding."""
    if objective.degree > 2:
        raise InputError(f"the objective has degree {objective.degree}; expected at most 2")
    place = {int(i): k for k, i in enumerate(inputs.index)}
    open_ = {int(j): v for j, v in zip(problem.layers[-1].index, layers[-1], strict=True)}
    state = problem.fixed[-1]

    def value(v: int) -> Polynomial:
        if v < region.size:
            k = place[v]
            return Polynomial.affine({k: float(inputs.half[k])}, float(inputs.base[k]))
        j = v - region.size
        if not 0 <= j < state.size:
            raise InputError(f"the objective names variable {v}, which does not exist")
        if j in open_:
            return Polynomial.affine({open_[j]: 1.0})
        if state[j] == 0:
            raise InputError(f"neuron {j} of the last layer is not part of the problem")
        return Polynomial.constant(float(state[j]))

    f = objective.substituted(value)
    # Every coefficient is rounded a few times, and no variable is larger than 1.
    size = 0.0
    for monomial, c in objective.terms.items():
        product = abs(c)
        for v in monomial:
            product *= sum(map(abs, value(v).terms.values()))
        size += product
    return f, 2.0**-48 * size


def _first_layer(layer: UnstableLayer, inputs: ScaledInputs) -> tuple[Any, FloatArray, FloatArray]:
    """Return the weights over u, the bias, and a bound of their rounding error."""
    weights = layer.weights_over(inputs.index)
    scaled = sp.csr_array(weights @ sp.diags_array(inputs.half))
    scaled.eliminate_zeros()
    bias = np.asarray(weights @ inputs.base) + layer.bias
    reach = np.asarray(abs(weights) @ (np.abs(inputs.base) + inputs.half)) + np.abs(layer.bias)
    doubt = 2.0**-51 * (np.diff(weights.indptr) + 8) * reach
    # The error includes the enclosure of an irrational bias.
    return scaled, bias, doubt + (layer.minus_upto - layer.plus_from)


def _neuron(
    x: Polynomial, row: dict[int, float], bias: float, doubt: float, encoding: Encoding
) -> list[Polynomial]:
    """Return the constraints of one neuron, relaxed by the error of its sum."""
    value = Polynomial.affine(row, bias)
    norm = float(sum(map(abs, row.values())))
    if encoding == "standard":
        return [x * value + doubt]
    tight = [(x + 1.0) * value + 2 * doubt, (x - 1.0) * value + 2 * doubt]
    if encoding == "tight-plain":
        return tight
    if encoding != "tight":
        raise InputError(f"encoding is {encoding!r}; expected standard, tight-plain or tight")
    weighted = Polynomial.affine(row)
    # nv is rounded up, so that the inequalities hold for all inputs.
    norm *= 1 + 2.0**-50
    return [*tight, (x + 1.0) * (norm - weighted), (1.0 - x) * (norm + weighted)]


def _input_constraints(region: Region, inputs: ScaledInputs) -> list[Polynomial]:
    """Return 1 - u^2 >= 0 for each input, and the constraints of a ball or polytope."""
    count = inputs.index.size
    out = [Polynomial({(): 1.0, (k, k): -1.0}) for k in range(count)]
    if region.norm == "l2":
        # r^2 - |base + half u - m|^2 >= 0; inputs that are not used stay at the centre.
        gap = inputs.base - region.middle[inputs.index]
        square = region.radius**2 - float(gap @ gap)
        terms: dict[tuple[int, ...], float] = {}
        size = region.radius**2 + float(gap @ gap)
        for k in range(count):
            terms[(k,)] = -2.0 * float(gap[k] * inputs.half[k])
            terms[(k, k)] = -float(inputs.half[k] ** 2)
            size += 2.0 * abs(float(gap[k] * inputs.half[k])) + float(inputs.half[k] ** 2)
        terms[()] = square + 2.0**-50 * (count + 8) * size
        scale = 1.0 / max(region.radius**2, 1e-300)
        out.append(Polynomial({m: c for m, c in terms.items() if c}) * scale)
    elif region.norm in ("l0", "l1"):
        raise InputError("the polynomial encodings take L-inf and L2 balls, boxes and polytopes")
    else:
        for row, b in zip(*region.inequalities, strict=True):
            part = row[inputs.index]
            magnitude = float(np.abs(part) @ (np.abs(inputs.base) + inputs.half)) + abs(float(b))
            constant = float(b) - float(part @ inputs.base)
            constant += 2.0**-50 * (count + 8) * magnitude
            coefficients = dict(enumerate((-part * inputs.half).tolist()))
            out.append(Polynomial.affine(coefficients, constant))
    return out


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
