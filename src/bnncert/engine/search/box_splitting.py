r"""Boxes with few free inputs: halved until intervals decide every part.

A box in which d inputs are free and all others are fixed has first-layer sums

    s_j(y) = base_j + sum_{i free} w_ji y_i,

so that only few first-layer neurons are open, and halving the range of a free input closes many of
them.  The halves are bounded in batches: the ranges of all sums layer by layer, and the functions
of all targets at the end.  Sums of the first layer are rounded outwards, and those above it are
integers that float32 represents exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.stability import LayerBounds, stability
from bnncert.model.layers import ThresholdLayer
from bnncert.problem import Problem, Target
from bnncert.regions.support import rounding_error, same_places

#: Boxes that are bounded at once.
BATCH = 2048

#: The largest number of weights between open neurons of two layers.
MOST_WEIGHTS = 2**24

Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SplitAnswer:
    """What splitting shows: all targets are proved, or points that seem to violate one."""

    is_proved: bool
    nodes: int
    #: Points at which floats show a violation, one in each row.
    candidates: FloatArray | None = None


class BoxSplitter:
    """Splits the box of one problem.

    `is_suited` tells whether it can be used: sums have to be exact in float32, every target has one
    function, and the open part of the network must not be too large.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._bounds = stability(problem.network, problem.region)

    @cached_property
    def _open(self) -> list[IntArray]:
        return [bounds.unstable for bounds in self._bounds]

    @property
    def is_suited(self) -> bool:
        """Whether the problem can be solved in this way."""
        upper = self._problem.network.layers[1:]
        sizes = [a.size * b.size for a, b in zip(self._open, self._open[1:], strict=False)]
        return (
            all(float(layer.norm.max(initial=0.0)) < 2**24 for layer in upper)
            and all(len(target.objectives) == 1 for target in self._problem.targets)
            and max(sizes, default=0) <= MOST_WEIGHTS
        )

    def run(self, most_nodes: int, deadline: Deadline) -> SplitAnswer:
        """Split until all boxes are proved, floats show a violation, or a limit is reached."""
        region = self._problem.region
        free = np.flatnonzero(region.lo < region.hi)
        first = _OpenFirstLayer(self._problem, self._bounds[0], self._open[0], free)
        upper = [
            _OpenLayer(layer, *pair)
            for layer, pair in zip(
                self._problem.network.layers[1:], pairwise(self._bounds), strict=True
            )
        ]
        functions = _OpenFunctions(self._problem.targets, self._bounds[-1])
        stack = [(region.lo[free][None, :], region.hi[free][None, :])]
        nodes = 0
        while stack:
            lo, hi = stack.pop()
            if lo.shape[0] > BATCH:
                stack.append((lo[BATCH:], hi[BATCH:]))
                lo, hi = lo[:BATCH], hi[:BATCH]
            nodes += lo.shape[0]
            open_first = first.states(lo, hi)
            states = open_first
            for layer in upper:
                states = layer.states(states)
            left = functions.undecided(states)
            if not np.any(left):
                continue
            lo, hi, open_first = lo[left], hi[left], open_first[left]
            middles = lo + (hi - lo) / 2
            found = self._violating(free, middles)
            if found.size:
                return SplitAnswer(False, nodes, found)
            if nodes > most_nodes or deadline.passed() or free.size == 0:
                return SplitAnswer(False, nodes)
            halves = first.halves(lo, hi, middles, open_first)
            if halves is None:
                return SplitAnswer(False, nodes)
            stack.append(halves)
        return SplitAnswer(True, nodes)

    def _violating(self, free: IntArray, values: FloatArray) -> FloatArray:
        """Return the points with these values of free inputs that have another class in floats."""
        points = np.repeat(self._problem.region.lo[None, :], values.shape[0], axis=0)
        points[:, free] = values
        signs = self._problem.network.last_signs(points).astype(np.float64)
        lowest = np.min([t.values(signs) for t in self._problem.targets], axis=0)
        return np.asarray(points[lowest <= 0])


class _OpenFirstLayer:
    """The open neurons of the first layer, as functions of the free inputs."""

    def __init__(
        self, problem: Problem, bounds: LayerBounds, open_: IntArray, free: IntArray
    ) -> None:
        layer, region = problem.network.layers[0], problem.region
        rows = layer.weights[open_].astype(np.float64)
        weights = rows[:, free].toarray()
        self._plus, self._minus = np.maximum(weights, 0.0).T, np.minimum(weights, 0.0).T
        fixed = np.where(region.lo < region.hi, 0.0, region.lo)
        self._base = np.asarray(rows @ fixed)
        reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
        magnitude = np.asarray(same_places(rows, np.abs(rows.data)) @ reach)
        # The sums of base and free inputs are sums of the same products in another order.
        self._error = rounding_error(rows, magnitude)
        self._plus_from, self._minus_upto = layer.plus_from[open_], layer.minus_upto[open_]
        self._sign_zero = layer.sign_zero

    def states(self, lo: FloatArray, hi: FloatArray) -> Floats32:
        """Return the signs of the open neurons on each box, 0 where both may occur."""
        lower = lo @ self._plus + hi @ self._minus + self._base - self._error
        upper = hi @ self._plus + lo @ self._minus + self._base + self._error
        # The next float, because the subtraction of the error is rounded, too.
        lower, upper = np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)
        if self._sign_zero == "plus":
            on, off = lower >= self._minus_upto, upper < self._plus_from
        elif self._sign_zero == "minus":
            on, off = lower > self._minus_upto, upper <= self._plus_from
        else:
            on, off = lower > self._minus_upto, upper < self._plus_from
        return np.asarray(on.astype(np.float32) - off.astype(np.float32))

    def halves(
        self, lo: FloatArray, hi: FloatArray, middles: FloatArray, states: Floats32
    ) -> tuple[FloatArray, FloatArray] | None:
        """Halve each box at the input with the most influence on open neurons.

        The result is None if a box cannot be halved: its input has two neighbouring floats.
        """
        influence = (states == 0).astype(np.float64) @ (self._plus - self._minus).T
        chosen = np.argmax(influence * (hi - lo), axis=1)
        rows = np.arange(lo.shape[0])
        cut = middles[rows, chosen]
        if np.any((cut <= lo[rows, chosen]) | (cut >= hi[rows, chosen])):
            return None
        below, above = hi.copy(), lo.copy()
        below[rows, chosen] = cut
        above[rows, chosen] = cut
        return np.concatenate([lo, above]), np.concatenate([below, hi])


class _OpenLayer:
    """The open neurons of a later layer, as functions of the open ones below."""

    def __init__(self, layer: ThresholdLayer, below: LayerBounds, bounds: LayerBounds) -> None:
        chosen = bounds.unstable
        rows = layer.weights[chosen].astype(np.float32)
        self._weights = rows[:, below.unstable].toarray().T
        self._size = np.abs(self._weights)
        self._fixed = np.asarray(rows @ below.state.astype(np.float32))
        self._plus_from = layer.plus_from[chosen].astype(np.float64)
        self._minus_upto = layer.minus_upto[chosen].astype(np.float64)

    def states(self, below: Floats32) -> Floats32:
        """Return the signs of the open neurons, given those of the layer below."""
        sums = below @ self._weights + self._fixed
        reach = (below == 0).astype(np.float32) @ self._size
        on, off = sums - reach > self._minus_upto, sums + reach < self._plus_from
        return np.asarray(on.astype(np.float32) - off.astype(np.float32))


class _OpenFunctions:
    """The functions of all targets, as functions of the open neurons of the last layer."""

    def __init__(self, targets: Sequence[Target], last: LayerBounds) -> None:
        objectives = [target.objectives[0] for target in targets]
        rows = np.stack([o.coefficients for o in objectives])
        constants = np.array([o.constant for o in objectives])
        self._weights = rows[:, last.unstable].T
        self._size = np.abs(self._weights)
        self._fixed = rows @ last.state.astype(np.float64) + constants
        reach = np.abs(constants) + np.abs(rows).sum(axis=1)
        whole = np.all(rows == np.rint(rows), axis=1) & (constants == np.rint(constants))
        rounding = np.where(whole, 0.0, (rows.shape[1] + 4) * 2.0**-52 * reach)
        self._slack = rounding + np.array([o.error for o in objectives])
        self._tie_is_fine = np.array([o.tie_is_fine for o in objectives])

    def undecided(self, states: Floats32) -> npt.NDArray[np.bool_]:
        """Return the boxes on which some function is not proved positive."""
        signs = states.astype(np.float64)
        lower = signs @ self._weights + self._fixed - (signs == 0) @ self._size
        exact = self._slack == 0
        lower = np.where(exact, lower, np.nextafter(lower - self._slack, -np.inf))
        proved = np.where(self._tie_is_fine, lower >= 0, lower > 0)
        return np.asarray(~np.all(proved, axis=1))
