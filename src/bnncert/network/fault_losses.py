r"""How far faults in the last layer and in the output can lower the margin over another class.

Let d_i = w_li - w_ri be the coefficients of the margin f = score l - score r.  Another sign of
last-layer neuron i changes f by -2 d_i x_i, a flip of w_li by -2 w_li x_i and one of w_ri by
+2 w_ri x_i.  Without signs x, the absolute values are upper bounds of these losses; with them, the
largest loss of faults with costs is a knapsack problem, which dynamic programming solves exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray, SignArray
from bnncert.network.layers import OutputLayer

#: Integers, also large ones, in units of one over the common denominator of the output's weights.
Gains: TypeAlias = npt.NDArray[Any]

#: Sums of gains below this limit fit 64 bits.
MOST_SMALL = 2**62


def largest_losses(
    output: OutputLayer, pair: tuple[int, int], count: int, *, last: bool, weights: bool
) -> Fraction:
    """Return an upper bound of the loss by `count` faults at any signs of the last layer.

    `last` allows wrong signs of last-layer neurons, `weights` flips of the output's weights.
    """
    first, second = (output.integers[0][k] for k in pair)
    parts = [first - second] if last else []
    parts += [first, second] if weights else []
    most = sum_of_largest(np.abs(np.concatenate(parts)), count)
    return Fraction(2 * most, output.integers[1]) + _doubt(output, pair, count)


def largest_row_loss(output: OutputLayer, pair: tuple[int, int], count: int) -> Fraction:
    """Return an upper bound of the loss by `count` flips of weights in one row of the output."""
    most = max(sum_of_largest(np.abs(output.integers[0][k]), count) for k in pair)
    return Fraction(2 * most, output.integers[1]) + _doubt(output, pair, count)


def sign_gains(output: OutputLayer, pair: tuple[int, int], signs: SignArray) -> Gains:
    """Return the loss of margin by another sign of each last-layer neuron, in units."""
    first, second = (output.integers[0][k] for k in pair)
    return np.asarray(2 * (first - second) * signs.astype(np.int64))


def weight_gains(output: OutputLayer, pair: tuple[int, int], signs: SignArray) -> list[Gains]:
    """Return the loss of margin by a flip of each weight in the rows of both classes, in units."""
    rows = zip((2, -2), (output.integers[0][k] for k in pair), strict=True)
    return [np.asarray(factor * row * signs.astype(np.int64)) for factor, row in rows]


def sum_of_largest(gains: Gains, count: int) -> int:
    """Return the sum of the `count` largest gains that are positive."""
    found = np.sort(gains[gains > 0])[::-1][:count]
    return sum(map(int, found.tolist()))


def knapsack(cost: IntArray, gains: Gains, budget: int) -> tuple[Sequence[int], list[int]]:
    """Return the largest sum of gains for every budget, and what is chosen for the whole budget.

    Each fault is chosen at most once, and the costs of the chosen ones sum to at most the budget.
    """
    useful = np.flatnonzero((gains > 0) & (cost <= budget))
    size = min(budget, int(cost[useful].sum()))
    small = sum(map(int, gains[useful].tolist())) < MOST_SMALL
    best: Any = np.zeros(size + 1, dtype=np.int64 if small else object)
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


def _doubt(output: OutputLayer, pair: tuple[int, int], count: int) -> Fraction:
    """Return by how much `count` losses may differ because weights are rounded."""
    return 2 * count * sum((Fraction(float(output.weight_error[k])) for k in pair), Fraction(0))
