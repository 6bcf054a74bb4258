r"""The linear encoding of a binary network (the paper's LP and MILP, and their lattice form).

With z = (x+1)/2 in [0, 1] and Lo <= u = <w, y> <= U, a sign neuron is

    u >= Lo + (p - Lo) z          (z = 1 needs u >= p),
    u <= q + (U - q) z            (z = 0 needs u <= q).

The paper's form has p = q = -b, which is its (nv+b)(x+1) >= 2(w.y+b) and (nv-b)(1-x) >= -2(w.y+b).
The soft form allows both signs within a margin, p = -b - 1e-7 and q = -b + 1e-7.  The lattice form
has the integers p and q = p - 2 that are values of the pre-activations.

An L2 ball is represented by its bounding box x = m + r v, and a solver for quadratic constraints
adds |v|_2 <= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.reduction import UnstableLayer, UnstableObjective, UnstableProblem
from bnncert.errors import InputError
from bnncert.regions import Region
from bnncert.regions.linear_program import InputBlock, LinearProgram

Form: TypeAlias = Literal["paper", "soft", "lattice"]

#: The paper's margin on the sign of a pre-activation.
SOFT_MARGIN = 1e-7


@dataclass(frozen=True, eq=False)
class LinearModel:
    """The encoding, and the places of its variables.

    The variables of the input come first, then those of each layer from its entry of `offsets`.
    """

    program: LinearProgram
    inputs: InputBlock
    offsets: tuple[int, ...]
    problem: UnstableProblem

    def point(self, solution: FloatArray, region: Region) -> FloatArray:
        """Return the input of a solution."""
        x = np.array(region.center)
        x[self.inputs.index] = self.inputs.base + self.inputs.spread @ solution[: self.inputs.size]
        return x

    def first_layer_signs(self, solution: FloatArray) -> npt.NDArray[np.int8]:
        """Return the rounded signs of the unstable neurons of the first layer."""
        start = self.offsets[0]
        part = solution[start : start + self.problem.layers[0].size]
        return np.where(part >= 0.5, 1, -1).astype(np.int8)

    def last_layer(self) -> slice:
        """Return the columns of the last layer's variables."""
        start = self.offsets[-1]
        return slice(start, start + self.problem.layers[-1].size)

    def objective_row(self, objective: UnstableObjective) -> tuple[FloatArray, float]:
        """Return f as cost over the last layer's z, and its constant: x = 2z - 1."""
        return 2.0 * objective.coefficients, float(
            objective.constant - objective.coefficients.sum()
        )


def _thresholds(layer: UnstableLayer, form: Form) -> tuple[FloatArray, FloatArray]:
    if form == "paper":
        return -layer.bias, -layer.bias
    if form == "soft":
        return -layer.bias - SOFT_MARGIN, -layer.bias + SOFT_MARGIN
    if form == "lattice":
        return layer.plus_from, layer.minus_upto
    raise InputError(f"form is {form!r}; expected paper, soft or lattice")


def linear_model(
    problem: UnstableProblem,
    block: InputBlock,
    form: Form,
    *,
    integer: bool,
    deadline: Deadline | None = None,
) -> LinearModel:
    """Encode a problem without its objective, with integer or relaxed neurons.

    `block` is the region over the inputs that the first layer reads.  OutOfTimeError is raised if
    the deadline passes before the model is complete.
    """
    limit = deadline or Deadline(None)
    sizes = [layer.size for layer in problem.layers]
    neurons = sum(sizes)
    offsets = tuple(int(o) for o in block.size + np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    columns = block.size + neurons
    rows = [_Rows(sp.csr_array((0, columns)), np.zeros(0), np.zeros(0))]
    if block.right.size:
        wide = sp.hstack([block.rows, sp.csr_array((block.right.size, neurons))])
        rows.append(_Rows(wide, np.full(block.right.size, -np.inf), block.right))
    for i, layer in enumerate(problem.layers):
        if layer.size:
            sums = _later_sums(layer) if i else _first_sums(layer, block)
            at = (offsets[i - 1] if i else 0, offsets[i])
            for sense in (1, -1):
                limit.check()
                rows.append(_sign_rows(layer, form, sums, sense, at, columns))
    limit.check()
    program = LinearProgram(
        cost=np.zeros(columns),
        matrix=sp.csr_array(sp.vstack([r.matrix for r in rows])),
        row_lower=np.concatenate([r.lower for r in rows]),
        row_upper=np.concatenate([r.upper for r in rows]),
        lower=np.concatenate([block.lower, np.zeros(neurons)]),
        upper=np.concatenate([block.upper, np.ones(neurons)]),
        integer=np.concatenate([np.zeros(block.size, bool), np.full(neurons, integer)]),
    )
    return LinearModel(program, block, offsets, problem)


class _Rows(NamedTuple):
    """lower <= matrix z <= upper."""

    matrix: Any
    lower: FloatArray
    upper: FloatArray


class _Sums(NamedTuple):
    """u = weights z + base up to `slack` over the layer below, and a scale for each row."""

    weights: Any
    base: FloatArray
    slack: FloatArray
    scale: FloatArray


def _sign_rows(
    layer: UnstableLayer, form: Form, sums: _Sums, sense: int, at: tuple[int, int], columns: int
) -> _Rows:
    """Return one of the two inequalities of every neuron.

    It is  u - (p - Lo) z >= Lo  for sense +1 and  u - (U - q) z <= q  for sense -1, with the
    columns of the layer below and of the layer itself from `at`.
    """
    p, q = _thresholds(layer, form)
    slack = sums.slack
    if form != "lattice":
        slack = slack + 1e-13 * (np.abs(layer.bias) + layer.upper - layer.lower)
    slope = p - layer.lower if sense > 0 else layer.upper - q
    right = (layer.lower if sense > 0 else q) - sums.base
    matrix = _place(
        sp.diags_array(sums.scale).tocsr() @ sums.weights,
        sp.diags_array(-sums.scale * slope).tocsr(),
        *at,
        columns,
    )
    side = sums.scale * (right - sense * slack)
    endless = np.full(layer.size, np.inf)
    return _Rows(matrix, side, endless) if sense > 0 else _Rows(matrix, -endless, side)


def _first_sums(layer: UnstableLayer, block: InputBlock) -> _Sums:
    """Return the sums of the first layer over the variables v of the region."""
    weights = layer.weights_over(block.index)
    part = sp.csr_array(weights @ block.spread)
    base = np.asarray(weights @ block.base)
    reach = np.asarray(abs(weights) @ np.abs(block.base))
    reach = reach + np.asarray(abs(part) @ np.maximum(np.abs(block.lower), np.abs(block.upper)))
    reach = reach + np.abs(layer.lower) + np.abs(layer.upper) + np.abs(layer.bias)
    terms = np.diff(weights.indptr) + 8
    largest = np.full(layer.size, 1e-12)
    np.maximum.at(largest, np.repeat(np.arange(layer.size), np.diff(part.indptr)), abs(part.data))
    # Scaling by powers of two is exact.
    scale = 2.0 ** np.rint(-np.log2(largest))
    return _Sums(part, base, 2.0**-51 * terms * reach, scale)


def _later_sums(layer: UnstableLayer) -> _Sums:
    """Return the sums of a later layer over z, which are exact: y = 2z - 1, in integers."""
    part = (2 * layer.weights).astype(np.float64)
    base = -np.asarray(layer.weights.sum(axis=1), dtype=np.float64).reshape(-1)
    return _Sums(part, base, np.zeros(layer.size), np.ones(layer.size))


def _place(part: Any, diagonal: Any, left: int, own: int, columns: int) -> Any:
    """Return a wide matrix with a block from column `left` and a diagonal from column `own`."""
    a, d = part.tocoo(), diagonal.tocoo()
    return sp.coo_array(
        (
            np.concatenate([a.data, d.data]),
            (
                np.concatenate([a.coords[0], d.coords[0]]),
                np.concatenate([a.coords[1] + left, d.coords[1] + own]),
            ),
        ),
        shape=(part.shape[0], columns),
    ).tocsr()
