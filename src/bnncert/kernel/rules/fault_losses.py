r"""How far faults in the last layer and in the output can lower the margin over another class.

Let d_i = w_li - w_ri be the coefficients of the margin f = score l - score r.  Another sign of
last-layer neuron i changes f by -2 d_i x_i, a flip of w_li by -2 w_li x_i and one of w_ri by
+2 w_ri x_i.  Without signs x, the absolute values are upper bounds of these losses; with them, the
largest loss of faults with costs is a knapsack problem, which dynamic programming solves exactly.

Interval arithmetic says which signs of the last layer are known on a box of inputs: the signs of a
layer that are the same on the whole box give bounds of the sums of the next layer.  With the known
signs x_i and the set U of the others,

    |w.x - sum_{i not in U} w_i x_i|  <=  sum_{i in U} |w_i|.

A neuron of the last layer with a known sign s and s w.x >= l on the box needs at least
(l - t) / (2 max_i |w_i|) flips of weights for its other sign, t being the largest s w.x with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.kernel.budget import timed
from bnncert.model.layers import ROUNDOFF, OutputLayer, ThresholdLayer
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


#: Integers, also large ones, in units of one over the common denominator of the output's weights.
Gains: TypeAlias = npt.NDArray[Any]

#: Sums of gains below this limit fit 64 bits.
MOST_SMALL = 2**62


def largest_losses(
    output: OutputLayer, pair: tuple[int, int], count: int, last: LastSigns, *, weights: bool
) -> Fraction:
    """Return an upper bound of the loss by `count` faults in the last layer, but for its `doubt`.

    `last` has the signs and the faults that a wrong sign takes.  `weights` allows flips of the
    output's weights, too, whose gains depend on signs that may be wrong.
    """
    first, second = (output.integers[0][k] for k in pair)
    gains, cost = _signed(first - second, last.state), last.cost
    if weights:
        gains = np.concatenate([gains, np.abs(first), np.abs(second)])
        cost = np.concatenate([cost, np.ones(2 * first.size, dtype=np.int64)])
    most = largest_gain(cost, gains, count)
    return Fraction(2 * most, output.integers[1])


def largest_output_losses(
    output: OutputLayer, pair: tuple[int, int], count: int, last: LastSigns, *, one_row: bool
) -> Fraction:
    """Return an upper bound of the loss by `count` flips of the output's weights, as above.

    With `one_row` all flips are in the row of one class.
    """
    first, second = (output.integers[0][k] for k in pair)
    rows = [_signed(first, last.state), _signed(-second, last.state)]
    rows = rows if one_row else [np.concatenate(rows)]
    most = max(sum_of_largest(row, count) for row in rows)
    return Fraction(2 * most, output.integers[1])


def _signed(coefficients: Gains, state: SignArray) -> Gains:
    """Return c_i x_i for known signs, and |c_i| for unknown ones."""
    known = coefficients * state.astype(np.int64)
    return np.asarray(np.where(state == 0, np.abs(coefficients), known))


def sum_of_largest(gains: Gains, count: int) -> int:
    """Return the sum of the `count` largest gains that are positive."""
    found = np.sort(gains[gains > 0])[::-1][:count]
    return sum(map(int, found.tolist()))


def knapsack(cost: IntArray, gains: Gains, budget: int) -> tuple[Sequence[int], list[int]]:
    """Return the largest sum of gains for every budget, and what is chosen for the whole budget.

    Each fault is chosen at most once, and the costs of the chosen ones sum to at most the budget.
    """
    useful, size, best = _sizes(cost, gains, budget)
    taken = np.zeros((useful.size, size + 1), dtype=bool)
    for place, j in enumerate(useful.tolist()):
        c = int(cost[j])
        more = best[: size + 1 - c] + int(gains[j])
        better = more > best[c:]
        taken[place, c:] = better
        best[c:] = np.where(better, more, best[c:])
    chosen, left = [], size
    for place in reversed(range(useful.size)):
        if taken[place, left]:
            chosen.append(int(useful[place]))
            left -= int(cost[useful[place]])
    values = list(map(int, best.tolist()))
    return values + [values[-1]] * (budget - size), chosen


def largest_gain(cost: IntArray, gains: Gains, budget: int) -> int:
    """Return the largest sum of gains for the whole budget, without a table of what is chosen."""
    useful, size, best = _sizes(cost, gains, budget)
    for j in timed(useful.tolist()):
        c = int(cost[j])
        best[c:] = np.maximum(best[c:], best[: size + 1 - c] + int(gains[j]))
    return int(best[-1])


def _sizes(cost: IntArray, gains: Gains, budget: int) -> tuple[IntArray, int, Any]:
    """Return which faults are useful, the largest sum of their costs, and no gain for each sum."""
    useful = np.flatnonzero((gains > 0) & (cost <= budget))
    size = min(budget, int(cost[useful].sum()))
    small = sum(map(int, gains[useful].tolist())) < MOST_SMALL
    return useful, size, np.zeros(size + 1, dtype=np.int64 if small else object)


def doubt(output: OutputLayer, pair: tuple[int, int], count: int) -> Fraction:
    """Return by how much `count` losses may differ because weights are rounded."""
    return 2 * count * sum((Fraction(float(output.weight_error[k])) for k in pair), Fraction(0))
