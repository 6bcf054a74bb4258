r"""What interval arithmetic says about the last layer on a box of inputs.

The signs of a layer that are the same on the whole box give bounds of the sums of the next layer:
with the known signs x_i and the set U of the others,

    |w.x - sum_{i not in U} w_i x_i|  <=  sum_{i in U} |w_i|.

A neuron of the last layer with a known sign s and s w.x >= l on the box needs at least
(l - t) / (2 max_i |w_i|) flips of weights for its other sign, t being the largest s w.x with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.network import Network


@dataclass(frozen=True, eq=False)
class LastSigns:
    """The signs of the last layer on a box (0: unknown), and how many flips change them."""

    state: SignArray
    #: A lower bound of the flips of weights of each neuron for its other sign, at least 1.
    cost: IntArray


def last_signs_on(network: Network, lo: FloatArray, hi: FloatArray) -> LastSigns:
    """Return what is known about the last layer for all inputs between `lo` and `hi`."""
    first, *above = network.layers
    lower, upper = _first_ranges(first, lo, hi)
    plus, minus = first.plus_from, first.minus_upto
    state = np.where(lower > minus, 1, np.where(upper < plus, -1, 0)).astype(np.int8)
    cost = np.ones(first.size, dtype=np.int64)
    for layer in above:
        sums, room = _sums(layer, state)
        plus, minus = layer.plus_from, layer.minus_upto
        state = np.where(sums - room > minus, 1, np.where(sums + room < plus, -1, 0))
        state = state.astype(np.int8)
        away = np.where(state > 0, sums - room - minus, plus - sums - room)
        largest = np.ones(layer.size, dtype=np.int64)
        row = np.repeat(np.arange(layer.size), np.diff(layer.rows.indptr))
        np.maximum.at(largest, row, np.abs(layer.rows.data.astype(np.int64)))
        cost = np.where(state != 0, np.maximum(-(-away // (2 * largest)), 1), 1)
    return LastSigns(state, cost.astype(np.int64))


def _first_ranges(
    layer: ThresholdLayer, lo: FloatArray, hi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the sums of the first layer, rounded outwards."""
    columns, weights = layer.rows.indices, layer.rows.data.astype(np.float64)
    row = np.repeat(np.arange(layer.size), np.diff(layer.rows.indptr))
    ends = np.stack([weights * lo[columns], weights * hi[columns]])
    lower, upper, size = (
        np.bincount(row, terms, layer.size)
        for terms in (ends.min(axis=0), ends.max(axis=0), np.abs(ends).max(axis=0))
    )
    error = 4 * (np.diff(layer.rows.indptr) + 4) * ROUNDOFF * size + 1e-290
    return lower - error, upper + error


def _sums(layer: ThresholdLayer, state: SignArray) -> tuple[IntArray, IntArray]:
    """Return the sums over known signs, and the sums of |w_i| over unknown ones."""
    weights = layer.rows.data.astype(np.int64)
    below = state[layer.rows.indices].astype(np.int64)
    row = np.repeat(np.arange(layer.size), np.diff(layer.rows.indptr))
    parts = (weights * below, np.where(below == 0, np.abs(weights), 0))
    # Sums of fewer than 2^53 units are exact in floats.
    known, room = (np.bincount(row, part, layer.size).astype(np.int64) for part in parts)
    return known, room
