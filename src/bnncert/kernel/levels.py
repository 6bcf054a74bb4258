"""The layers above the first as functions of signs, for many nodes at once.

All sums are integers of at most 2^24 (`skeleton` rejects larger ones), so float32 products and sums
are exact in any order.  Functions are sums of integers below 2^53 in float64.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError
from bnncert.kernel.function import Function, Objects
from bnncert.kernel.skeleton import MOST_REACH, Layer, Skeleton
from bnncert.kernel.sparse import Integers, SparseRows
from bnncert.kernel.statement import ScoreFunction

#: The most weights between open neurons, and of all functions together.
MOST_ENTRIES, MOST_WEIGHTS = 2**27, 2**25

#: The finest unit of a function is 2^-FINEST.
FINEST = 48


class LayerLevel:
    """Neurons of one layer as functions of the variables below."""

    def __init__(self, layer: Layer, neurons: Integers, outputs: Integers) -> None:
        rows = layer.rows.matrix.take(neurons)
        #: The variables of the sums, and those of the neurons (none for the last layer).
        used = np.zeros(rows.width, dtype=bool)
        used[rows.columns] = True
        self.inputs, column = np.flatnonzero(used), (np.cumsum(used) - 1)[rows.columns]
        self.outputs = outputs
        if self.inputs.size * neurons.size > MOST_ENTRIES:
            raise RejectedError("a layer has too many weights for a tree of patterns")
        narrow = SparseRows(rows.start, column, rows.values, self.inputs.size)
        self.rows: Float32Array = narrow.dense().astype(np.float32)
        self.sizes = np.abs(self.rows)
        # No sum exceeds MOST_REACH, so larger thresholds may be clipped.
        most = MOST_REACH + 2
        numbers = layer.low, layer.high, layer.plus, layer.minus
        moved = (np.clip(n[neurons], -most, most).astype(np.float32) for n in numbers)
        self.low, self.high, self.plus, self.minus = moved

    def bounds(self, states: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Bound every sum from below and above."""
        below = states[:, self.inputs]
        middle, open_ = below @ self.rows.T, below == 0
        if not open_.any():
            return middle, middle
        radius = open_.astype(np.float32) @ self.sizes.T
        return middle - radius, middle + radius

    def settle(self, least: Float32Array, most: Float32Array) -> tuple[Float32Array, BoolArray]:
        """Decide the sign of every neuron, 0 if open, and the nodes without a contradiction."""
        least, most = np.maximum(least, self.low), np.minimum(most, self.high)
        signs = (least > self.minus).astype(np.float32) - (most < self.plus)
        return signs, ~np.any(least > most, axis=1)


@dataclass(frozen=True, eq=False)
class Scores:
    """Lower bounds of functions in whole units: column k proves `target[k]` from `enough[k]` on."""

    weights: FloatArray
    enough: FloatArray
    target: Integers

    @staticmethod
    def of(
        skeleton: Skeleton, members: Integers, targets: Sequence[Sequence[ScoreFunction]]
    ) -> Scores:
        """Take the functions of all targets over the open neurons `members` of the last layer.

        In a network of one layer they are functions of the variables.
        """
        owner = [k for k, target in enumerate(targets) for _ in target]
        width = members.size if len(skeleton.layers) > 1 else skeleton.size
        if len(owner) * width > MOST_WEIGHTS:
            raise RejectedError("the property has too many weights for one proof of all targets")
        weights, enough = np.zeros((len(owner), width)), np.zeros(len(owner))
        last = skeleton.layers[-1]
        objectives = (objective for target in targets for objective in target)
        for k, objective in enumerate(timed(objectives)):
            function = objective.of(skeleton.network)
            fixed = int((function.weights * last.state.astype(object)).sum())
            constant = function.constant + Fraction(fixed, function.denominator)
            own = function.weights[members]
            if len(skeleton.layers) == 1:
                total = np.zeros(width, dtype=object)
                np.add.at(total, last.variable[members], own * last.sign[members])
                own = total
            weights[k], enough[k] = _in_units(function, own, constant)
        return Scores(weights, enough, np.array(owner, dtype=np.int64))

    def excluded(self, last: Float32Array, targets: int) -> BoolArray:
        """Decide which targets the last layer's signs exclude, one row for each node."""
        least, open_ = last.astype(np.float64) @ self.weights.T, last == 0
        if open_.any():
            least -= open_.astype(np.float64) @ np.abs(self.weights).T
        table = np.zeros((last.shape[0], targets), dtype=bool)
        for k, target in enumerate(timed(self.target.tolist())):
            table[:, target] |= least[:, k] >= self.enough[k]
        return table


def _in_units(function: Function, weights: Objects, constant: Fraction) -> tuple[FloatArray, int]:
    """Find whole weights, and from which value of their sum on the function is positive."""
    sizes, step = sum(map(abs, weights.tolist())), gcd(*weights.tolist()) or 1
    if sizes // step < 2**51:
        whole, lost, unit = weights // step, 0, Fraction(step, function.denominator)
    else:
        shift = min(FINEST, 51 - (sizes // function.denominator + 1).bit_length())
        if shift < 0:
            raise RejectedError("the weights of the property are too large")
        exact, unit = weights << shift, Fraction(1, 1 << shift)
        whole = exact // function.denominator
        # The rounding costs at most one unit for each weight.
        lost = int(np.count_nonzero(whole * function.denominator != exact))
    # Sums are at most `reach` in size, bounds of them at most four times that; in this range the
    # answer changes from no to yes once, if at all.
    reach = sum(map(abs, whole.tolist()))
    values = range(-4 * reach - 1, reach + 2)

    def is_enough(value: int) -> bool:
        return function.is_positive_from(constant + (value - lost) * unit)

    return whole.astype(np.float64), values.start + bisect_left(values, True, key=is_enough)
