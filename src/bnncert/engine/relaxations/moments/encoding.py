r"""The network as a quadratically constrained polynomial problem, in the paper's encodings.

With inputs rescaled so that the bounding box of the region is [-1, 1]^n and nv the row-wise 1-norm,
a neuron x = sign(w.y + b) with x^2 = 1 is

    standard     x (w.y + b) >= 0                                                   (the QCQP)
    tight-plain  (x+1)(w.y + b) >= 0,  (x-1)(w.y + b) >= 0
    tight        these two, and the tautologies (x+1)(nv - w.y) >= 0, (1-x)(nv + w.y) >= 0.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableProblem
from bnncert.engine.relaxations.moments.polynomial import Polynomial, PolynomialProblem
from bnncert.errors import InputError
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
