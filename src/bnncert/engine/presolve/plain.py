"""Presolve by intervals alone, for searches that represent the region in other ways.

If a ball limits the number of sign changes, nearly all pairs of neurons conflict, and finding them
takes far longer than the search that follows.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.engine.presolve.conflicts import ConflictingPairs
from bnncert.engine.presolve.pipeline import Presolved, PresolvedLayer, over_variables
from bnncert.engine.presolve.presolve_record import PresolveRecord
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.model.network import Network
from bnncert.regions import Region


def plain_presolve(network: Network, region: Region, bounds: tuple[LayerBounds, ...]) -> Presolved:
    """Return the network with a variable for each unstable neuron and without pairs."""
    record = PresolveRecord()
    layers: list[PresolvedLayer] = []
    owner_layer, owner = [], []
    variables = 0
    for number, (layer, made) in enumerate(zip(network.layers, bounds, strict=True)):
        stable = np.flatnonzero(made.state)
        record.add("stable", number, stable, made.state[stable])
        rows, shift = sp.csr_array((layer.size, 0)), np.zeros(layer.size)
        if layers:
            rows, shift = over_variables(layer, layers[-1], variables)
        variable = np.full(layer.size, -1, dtype=np.int64)
        if number == 0 or number < network.depth - 1:
            unstable = made.unstable
            variable[unstable] = variables + np.arange(unstable.size)
            variables += unstable.size
            owner_layer.append(np.full(unstable.size, number, dtype=np.int64))
            owner.append(unstable)
        sign = np.ones(layer.size, dtype=np.int8)
        layers.append(PresolvedLayer(made, variable, sign, rows, shift))
    return Presolved(
        network,
        region,
        tuple(layers),
        np.concatenate(owner_layer),
        np.concatenate(owner),
        ConflictingPairs.none(),
        record,
        contradiction=False,
    )
