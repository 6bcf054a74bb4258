r"""Networks that are at least as free as one with faults.

If at most k neurons of a layer have another sign than their inputs give them, a sum of the next
layer is wrong by at most twice the sum of its k largest |w_i|; if k weights of a neuron flip, its
own sum is wrong by at most twice its k largest |w_i y_i|.  A neuron whose sum may be wrong by s can
be +1 from s below its threshold, and -1 up to s above it.  Above the last layer, the score of a
rival is raised by as much as faults can lower the margin over it.

Every neuron is wrong on its own here, so the widened network allows more than k faults do: if it is
robust, then so is the network with any k faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.kernel.budget import timed
from bnncert.kernel.rules.weight_flips import derived
from bnncert.model.layers import UNIT, ThresholdLayer
from bnncert.model.network import Network
from bnncert.model.rationals import float_above


def with_wrong_signs(network: Network, number: int, count: int) -> Network:
    """Return a network that allows `count` wrong signs in a layer below the last one."""
    if not count:
        return network
    layer = network.layers[number + 1]
    slack = 2 * _largest_sums(layer, np.ones(layer.inputs), count).astype(np.int64)
    return _with_layer(network, number + 1, _widened(layer, slack))


def with_own_flips(
    network: Network, number: int, count: int, lo: FloatArray, hi: FloatArray
) -> Network:
    """Return a network that allows `count` flips of weights in every neuron of a layer.

    `lo` and `hi` are a box around the inputs of the network.
    """
    layer = network.layers[number]
    if not count:
        return network
    if layer.is_lattice:
        sums = _largest_sums(layer, np.ones(layer.inputs), count)
        return _with_layer(network, number, _widened(layer, 2 * sums.astype(np.int64)))
    sums = 2 * _largest_sums(layer, np.maximum(np.abs(lo), np.abs(hi)), count)
    # Room for the rounding errors of the products and of their sum.
    sums = sums * (1 + (count + 4) * 4 * UNIT) + np.where(sums > 0, 1e-300, 0.0)
    bias_lo, bias_hi = layer.enclosure
    lower = np.where(sums > 0, np.nextafter(bias_lo - sums, -np.inf), bias_lo)
    upper = np.where(sums > 0, np.nextafter(bias_hi + sums, np.inf), bias_hi)
    return _with_layer(network, number, replace(layer, bias_lo=lower, bias_hi=upper))


def with_raised_scores(network: Network, losses: Mapping[int, Fraction]) -> Network:
    """Return the network in which the scores of classes are raised by at least these numbers."""
    bias = network.output.bias.copy()
    for rival, loss in losses.items():
        bias[rival] = float_above(Fraction(float(bias[rival])) + loss)
    return derived(network, output=replace(network.output, bias=bias))


def _with_layer(network: Network, number: int, layer: ThresholdLayer) -> Network:
    layers = (*network.layers[:number], layer, *network.layers[number + 1 :])
    return derived(network, layers=layers)


def _widened(layer: ThresholdLayer, slack: IntArray) -> ThresholdLayer:
    return replace(layer, slack=slack if layer.slack is None else layer.slack + slack)


def _largest_sums(layer: ThresholdLayer, sizes: FloatArray, count: int) -> FloatArray:
    """Return for each row the sum of its `count` largest |w_i| sizes_i."""
    rows = layer.rows
    sums = np.zeros(layer.size)
    for j in timed(range(layer.size)):
        row = slice(rows.indptr[j], rows.indptr[j + 1])
        terms = np.abs(rows.data[row].astype(np.float64)) * sizes[rows.indices[row]]
        sums[j] = terms.sum() if count >= terms.size else -np.partition(-terms, count)[:count].sum()
    return sums
