"""The part of a problem that remains after presolve: unstable neurons that influence the target.

Stable neurons become constants, which are added to the thresholds, and neurons that no unstable
neuron and no objective depends on are dropped.  All indices are those of the network, so that a
solution can be traced back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.model.network import Network
from bnncert.problem import Target


@dataclass(frozen=True, eq=False)
class UnstableLayer:
    """The unstable neurons of one layer, x = sign(w.y + b) over the unstable inputs y.

    x = +1 needs w.y >= plus_from and x = -1 needs w.y <= minus_upto; `bias` is the real bias b
    with the fixed inputs folded in; lower <= w.y <= upper.
    """

    index: IntArray
    inputs: IntArray
    weights: Any
    bias: FloatArray
    plus_from: FloatArray
    minus_upto: FloatArray
    lower: FloatArray
    upper: FloatArray

    @property
    def size(self) -> int:
        """The number of unstable neurons."""
        return int(self.index.size)

    def weights_over(self, index: IntArray) -> Any:
        """Return the weights as floats over the inputs `index`, which include all of its own."""
        place = np.searchsorted(index, self.inputs)
        cells = self.weights.data.astype(np.float64), place[self.weights.indices]
        shape = (self.size, index.size)
        return sp.csr_array((*cells, self.weights.indptr), shape=shape)


@dataclass(frozen=True, eq=False)
class UnstableProblem:
    """A target over its unstable neurons.  `fixed` holds the states of all layers."""

    layers: tuple[UnstableLayer, ...]
    objectives: tuple[UnstableObjective, ...]
    fixed: tuple[npt.NDArray[np.int8], ...]


@dataclass(frozen=True, eq=False)
class UnstableObjective:
    """f = <coefficients, x_L> + constant, over the unstable neurons of the last layer."""

    coefficients: FloatArray
    constant: float
    slack: float


def reduce_target(
    network: Network, bounds: tuple[LayerBounds, ...], target: Target
) -> UnstableProblem:
    """Return one target over its unstable neurons."""
    states = tuple(b.state for b in bounds)
    last = network.depth - 1
    matter = np.zeros(network.layers[last].size, dtype=bool)
    for objective in target.objectives:
        matter |= objective.coefficients != 0
    needed = [np.zeros(0, dtype=np.int64)] * network.depth
    for i in range(last, -1, -1):
        needed[i] = np.flatnonzero(matter & (states[i] == 0))
        if i > 0:
            rows = network.layers[i].weights[needed[i]]
            matter = np.zeros(network.layers[i - 1].size, dtype=bool)
            matter[np.unique(rows.indices)] = True
    layers = []
    for i, layer in enumerate(network.layers):
        rows = layer.weights[needed[i]]
        lower, upper = bounds[i].lower[needed[i]], bounds[i].upper[needed[i]]
        bias = layer.bias[needed[i]]
        plus_from, minus_upto = layer.plus_from[needed[i]], layer.minus_upto[needed[i]]
        if i == 0:
            inputs = np.unique(rows.indices).astype(np.int64)
        else:
            inputs = needed[i - 1]
            shift = np.asarray(
                rows.astype(np.int64) @ states[i - 1].astype(np.int64), dtype=np.float64
            )
            # The shift is an integer, so the thresholds remain exact.
            plus_from, minus_upto = plus_from - shift, minus_upto - shift
            bias, lower, upper = bias + shift, lower - shift, upper - shift
        layers.append(
            UnstableLayer(
                index=needed[i],
                inputs=inputs,
                weights=rows[:, inputs].tocsr(),
                bias=bias,
                plus_from=plus_from,
                minus_upto=minus_upto,
                lower=lower,
                upper=upper,
            )
        )
    return UnstableProblem(
        tuple(layers),
        tuple(_reduce_objective(o, needed[last], states[last]) for o in target.objectives),
        states,
    )


def _reduce_objective(
    objective: Any, open_: IntArray, state: npt.NDArray[np.int8]
) -> UnstableObjective:
    products = objective.coefficients * state
    constant = float(products.sum() + objective.constant)
    # A bound of the rounding error of the constant.
    reach = float(np.abs(products).sum() + abs(objective.constant))
    exact = bool(np.all(products == np.rint(products))) and reach < 2**52
    exact = exact and objective.constant == np.rint(objective.constant)
    rounding = 0.0 if exact else (products.size + 2) * 2.0**-52 * reach
    return UnstableObjective(
        objective.coefficients[open_], constant, float(objective.error) + rounding
    )
