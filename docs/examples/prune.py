"""Set one weight of a layer of a network to 0, as pruning does, and save the result.

``python docs/examples/prune.py energy.json LAYER NEURON INPUT energy_pruned.json`` made the pruned
networks beside this file (energy: 1 1 1; advisory: 1 16 14); layers, neurons and inputs are counted
from 0.
"""

from __future__ import annotations

import sys

import bnncert


def prune(network: bnncert.Network, layer: int, neuron: int, source: int) -> bnncert.Network:
    """Return the network without one weight of a sign layer."""
    weights = [w.weights.toarray().astype(float) for w in network.layers]
    weights[layer][neuron, source] = 0.0
    biases = [w.bias for w in network.layers]
    return bnncert.Network.from_arrays(
        [*weights, network.output.weights],
        [*biases, network.output.bias],
        input_lo=network.input_lo,
        input_hi=network.input_hi,
    )


if __name__ == "__main__":
    file, *numbers, target = sys.argv[1:]
    layer, neuron, source = map(int, numbers)
    prune(bnncert.load(file), layer, neuron, source).save(target)
