r"""The linear encoding of a binary network (the paper's LP and MILP, and their lattice form).

With z = (x+1)/2 in [0, 1] and Lo <= u = <w, y> <= U, a sign neuron is

    u >= Lo + (p - Lo) z          (z = 1 needs u >= p),
    u <= q + (U - q) z            (z = 0 needs u <= q).

The paper's form has p = q = -b, which is its (nv+b)(x+1) >= 2(w.y+b) and (nv-b)(1-x) >= -2(w.y+b).
The Soft form lets both signs pass within a margin, p = -b - 1e-7 and q = -b + 1e-7.  The lattice
form takes the integers p and q = p - 2 that the pre-activations can really reach.

Of an L2 ball only the bounding box is linear: its block is x = m + r v, and a solver that knows
quadratic constraints adds |v|_2 <= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.errors import InputError
from bnncert.presolve.reduction import OpenLayer, OpenObjective, OpenProblem
from bnncert.regions import Region
from bnncert.regions.linear_block import InputBlock, input_block
from bnncert.solvers.linear_program import LinearProgram

Form: TypeAlias = Literal["paper", "soft", "lattice"]

#: The paper's margin on the sign of a pre-activation.
SOFT_MARGIN = 1e-7


@dataclass(frozen=True, eq=False)
class LinearModel:
    """The encoding, and where its variables are."""

    program: LinearProgram
    inputs: InputBlock
    offsets: tuple[int, ...]
    problem: OpenProblem

    def point(self, solution: FloatArray, region: Region) -> FloatArray:
        """Return the input that a solution stands for."""
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

    def objective_row(self, objective: OpenObjective) -> tuple[FloatArray, float]:
        """Return f as cost over the last layer's z, and its constant: x = 2z - 1."""
        return 2.0 * objective.coefficients, float(
            objective.constant - objective.coefficients.sum()
        )


def _thresholds(layer: OpenLayer, form: Form) -> tuple[FloatArray, FloatArray]:
    if form == "paper":
        return -layer.bias, -layer.bias
    if form == "soft":
        return -layer.bias - SOFT_MARGIN, -layer.bias + SOFT_MARGIN
    if form == "lattice":
        return layer.plus_from, layer.minus_upto
    raise InputError(f"form is {form!r}; expected paper, soft or lattice")


def linear_model(
    problem: OpenProblem,
    region: Region,
    form: Form,
    *,
    integer: bool,
    block: InputBlock | None = None,
    deadline: Deadline | None = None,
) -> LinearModel:
    """Encode an open problem, with integer or relaxed neurons and no objective yet.

    `block` takes the place of the region's own :func:`input_block`.  OutOfTimeError is raised if
    the deadline passes before the model is complete.
    """
    limit = deadline or Deadline(None)
    block = block or input_block(region, problem.layers[0].inputs)
    sizes = [layer.size for layer in problem.layers]
    offsets = tuple(int(o) for o in block.size + np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    columns = block.size + sum(sizes)
    rows: list[Any] = []
    lowers: list[FloatArray] = []
    uppers: list[FloatArray] = []
    if block.right.size:
        rows.append(sp.hstack([block.rows, sp.csr_array((block.right.size, sum(sizes)))]))
        lowers.append(np.full(block.right.size, -np.inf))
        uppers.append(block.right)
    for i, layer in enumerate(problem.layers):
        if layer.size == 0:
            continue
        p, q = _thresholds(layer, form)
        part, base, slack, scale = _first_rows(layer, block) if i == 0 else _later_rows(layer)
        left = 0 if i == 0 else offsets[i - 1]
        if form != "lattice":
            slack = slack + 1e-13 * (np.abs(layer.bias) + layer.upper - layer.lower)
        for threshold, end, sense in ((p, layer.lower, 1), (q, layer.upper, -1)):
            limit.check()
            # u - (p - Lo) z >= Lo,  and  u - (U - q) z <= q.
            slope = threshold - end if sense > 0 else end - threshold
            right = (end if sense > 0 else threshold) - base
            rows.append(
                _place(
                    sp.diags_array(scale).tocsr() @ part,
                    sp.diags_array(-scale * slope).tocsr(),
                    left,
                    offsets[i],
                    columns,
                )
            )
            side = scale * (right - sense * slack)
            lowers.append(side if sense > 0 else np.full(layer.size, -np.inf))
            uppers.append(side if sense < 0 else np.full(layer.size, np.inf))
    limit.check()
    matrix = sp.csr_array(sp.vstack(rows)) if rows else sp.csr_array((0, columns))
    return LinearModel(
        LinearProgram(
            cost=np.zeros(columns),
            matrix=matrix,
            row_lower=np.concatenate([np.zeros(0), *lowers]),
            row_upper=np.concatenate([np.zeros(0), *uppers]),
            lower=np.concatenate([block.lower, np.zeros(sum(sizes))]),
            upper=np.concatenate([block.upper, np.ones(sum(sizes))]),
            integer=np.concatenate([np.zeros(block.size, bool), np.full(sum(sizes), integer)]),
        ),
        block,
        offsets,
        problem,
    )


def _first_rows(
    layer: OpenLayer, block: InputBlock
) -> tuple[Any, FloatArray, FloatArray, FloatArray]:
    """Return the first layer over v, its constant, what rounding it may lose, a row scale."""
    # A polytope's block may hold more inputs than this layer uses.
    place = np.searchsorted(block.index, layer.inputs)
    weights = sp.csr_array(
        (layer.weights.data.astype(np.float64), place[layer.weights.indices], layer.weights.indptr),
        shape=(layer.size, block.index.size),
    )
    part = sp.csr_array(weights @ block.spread)
    base = np.asarray(weights @ block.base)
    reach = np.asarray(abs(weights) @ np.abs(block.base))
    reach = reach + np.asarray(abs(part) @ np.maximum(np.abs(block.lower), np.abs(block.upper)))
    reach = reach + np.abs(layer.lower) + np.abs(layer.upper) + np.abs(layer.bias)
    terms = np.diff(weights.indptr) + 8
    largest = np.full(layer.size, 1e-12)
    np.maximum.at(largest, np.repeat(np.arange(layer.size), np.diff(part.indptr)), abs(part.data))
    # Powers of two scale without rounding.
    scale = 2.0 ** np.rint(-np.log2(largest))
    return part, base, 2.0**-51 * terms * reach, scale


def _later_rows(layer: OpenLayer) -> tuple[Any, FloatArray, FloatArray, FloatArray]:
    """Return the same for a later layer over z, which is exact: y = 2z - 1, in integers."""
    part = (2 * layer.weights).astype(np.float64)
    base = -np.asarray(layer.weights.sum(axis=1), dtype=np.float64).reshape(-1)
    return part, base, np.zeros(layer.size), np.ones(layer.size)


def _place(part: Any, diagonal: Any, left: int, own: int, columns: int) -> Any:
    """Put a block at column `left` and a diagonal at column `own` of a wide matrix."""
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
