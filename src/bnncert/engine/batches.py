r"""Proofs by intervals, and a short attack, on many regions at once.

Intervals fix the signs that the bounds of each region alone would fix.  With the middle m and the
radius r of a box, the sums of the first layer lie in W m -+ |W| r, and above it in W y -+ |W| z for
the fixed signs y and the open ones z: two products with matrices for all boxes together.  The
bounds of one box (`presolve/stability`) have a rounding error of their own, and so have these; they
fix the same signs wherever both errors together do not decide.  A box with a sum that is nearer to
its threshold is left to its own bounds.  For a ball of another norm, or on a grid, the box around
it fixes most signs of the first layer, and its own support function and thresholds those that are
left.

The attack takes a few gradient steps from the centres of the boxes, against their nearest rivals.
The gradient is that of `methods/attack`; each step goes to the vertex of the box that the signs of
the gradient name.  What it finds are candidates, in floating point: a counterexample is one of them
after its exact replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray
from bnncert.engine.exact_classes import exact_type
from bnncert.engine.methods.attack import AttackMethod, layer_distances
from bnncert.engine.methods.auto import AutoMethod
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.engine import OpenQuestion
from bnncert.engine.methods.interval import interval_lower, lower_from_sums
from bnncert.engine.presolve.stability import LayerBounds, first_layer_thresholds
from bnncert.engine.verdict import TargetResult
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.matrices import Operator, make_operator
from bnncert.model.network import Network
from bnncert.problem import Problem, Target, Ties
from bnncert.regions import Region

#: The share of the signs of the first layer that the box around a region may leave open; with more
#: there is little to share with others.
MOST_LEFT = 0.5

#: Rounding errors of a sum of the first layer between the bounds here and those of one box.
ERRORS = 8.0


@dataclass(frozen=True, eq=False)
class BatchBounds:
    """What interval bounds fix on each of many boxes."""

    #: The signs by layer, 0 where both can occur; one row for each box.
    states: tuple[Float32Array, ...]
    #: By how much the sums of the first layer may change, at most.
    reach: FloatArray
    #: Boxes that are left to their own bounds, whose rows mean nothing.
    doubtful: BoolArray

    def open_signs(self, row: int) -> list[int]:
        """Return the number of open signs by layer on one box."""
        return [int(np.count_nonzero(state[row] == 0)) for state in self.states]


class BatchIntervals:
    """The interval bounds of one network on many boxes."""

    def __init__(self, network: Network) -> None:
        self._network = network
        first, *later = network.layers
        self._kinds: list[Any] = [np.float64, *map(exact_type, later)]
        self._sizes = [
            _magnitudes(layer, kind)
            for layer, kind in zip(network.layers, self._kinds, strict=True)
        ]
        self._terms = np.diff(first.rows.indptr) + 16

    def bounds(self, regions: Sequence[Region]) -> BatchBounds:
        """Bound all layers on each region."""
        state, reach, doubtful = self._first(regions)
        states = [state]
        layers = list(zip(self._network.layers, self._kinds, self._sizes, strict=True))
        for layer, kind, size in layers[1:]:
            below = state.astype(kind, copy=False)
            fixed = layer.operator(kind).forward(below)
            loose = size.forward((below == 0).astype(kind))
            on, off = fixed - loose > layer.minus_upto, fixed + loose < layer.plus_from
            state = on.astype(np.float32) - off
            states.append(state)
        return BatchBounds(tuple(states), reach, doubtful)

    def _first(self, regions: Sequence[Region]) -> tuple[Float32Array, FloatArray, BoolArray]:
        """Return signs and reach of the first layer, and where a sum is near its threshold."""
        layer = self._network.layers[0]
        lo, hi = np.array([r.lo for r in regions]), np.array([r.hi for r in regions])
        largest = np.maximum(np.abs(lo), np.abs(hi)).max(axis=1, initial=0.0)[:, None]
        fixed = layer.operator(np.float64).forward((lo + hi) / 2)
        reach = self._sizes[0].forward((hi - lo) / 2)
        error = ERRORS * self._terms * ROUNDOFF * layer.norm * largest + 1e-290
        above, below = fixed - reach - layer.minus_upto, fixed + reach - layer.plus_from
        clear = (np.abs(above) > error) & (np.abs(below) > error)
        state = ((above > 0).astype(np.float32) - (below < 0)).astype(np.float32)
        for k, region in enumerate(regions):
            if not region.is_box or region.values is not None:
                # A sign that the box around a region fixes is fixed.
                rest = np.flatnonzero(~clear[k] | (state[k] == 0))
                clear[k, rest] = False
                if rest.size <= MOST_LEFT * layer.size:
                    state[k, rest], clear[k, rest] = _own_signs(layer, region, rest, error[k, rest])
        return state, reach, ~np.all(clear, axis=1)


def _own_signs(
    layer: ThresholdLayer, region: Region, neurons: IntArray, error: FloatArray
) -> tuple[Float32Array, BoolArray]:
    """Return the signs that the bounds of one region fix, and which of them are clear."""
    rows = layer.weights[neurons].astype(np.float64)
    plus_from, minus_upto = first_layer_thresholds(layer, region, neurons)
    above, below = -region.support(-rows) - minus_upto, region.support(rows) - plus_from
    state = (above > 0).astype(np.float32) - (below < 0)
    return state, (np.abs(above) > error) & (np.abs(below) > error)


def _magnitudes(layer: ThresholdLayer, kind: Any) -> Operator:
    """Return the product with the magnitudes of the weights of a layer."""
    convolution = layer.convolution
    if convolution is not None:
        convolution = replace(convolution, kernel=np.abs(convolution.kernel))
    return make_operator(abs(layer.weights), convolution, None, kind)


def interval_lowers(targets: Sequence[Target], last: Float32Array) -> FloatArray:
    """Return the lower bounds of :func:`interval_proof` for targets of one function each.

    There is one row for each box; a bound that proves nothing may be -inf.
    """
    lowers = np.full((last.shape[0], len(targets)), -np.inf)
    signs = last.astype(np.float64)
    open_ = (signs == 0).astype(np.float64)
    for k, target in enumerate(targets):
        (objective,) = target.objectives
        d = objective.coefficients
        sums = np.stack([signs @ d, open_ @ np.abs(d)], axis=1)
        if np.all(d == np.rint(d)) and objective.size < 2.0**52:
            # Exact in any order; few boxes have sums of their own.
            different, places = np.unique(sums, axis=0, return_inverse=True)
            found = [lower_from_sums(objective, *pair) for pair in different.tolist()]
            lowers[:, k] = np.array(found)[places.reshape(-1)]
            continue
        error = (d.size + 2) * 2.0**-50 * objective.size + 2 * objective.error
        least = objective.enough - objective.constant - error
        for row in np.flatnonzero(sums[:, 0] - sums[:, 1] >= least):
            # Summed as for one box, because rounding depends on the order.
            own = LayerBounds(sums[0], sums[0], last[row].astype(np.int8))
            lowers[row, k] = interval_lower(objective, own)
    return lowers


def interval_proofs(
    problems: Sequence[Problem], bounds: BatchBounds, ties: Ties
) -> tuple[list[FloatArray], BoolArray]:
    """Find the lower bounds by problem and target, and which problems they prove."""
    proved = np.zeros(len(problems), dtype=bool)
    lowers = [np.zeros(0)] * len(problems)
    # Problems with the same label and rivals have the same targets.
    same: dict[tuple[Target, ...], list[int]] = {}
    for k, problem in enumerate(problems):
        same.setdefault(problem.targets, []).append(k)
    for targets, own in same.items():
        found = interval_lowers(targets, bounds.states[-1][own])
        enough = found >= 0 if ties == "robust" else found > 0
        for k, lower, is_enough in zip(own, found, np.all(enough, axis=1), strict=True):
            lowers[k], proved[k] = lower, is_enough and not bounds.doubtful[k]
    return lowers, proved


#: Rivals of a box that are attacked, steps towards each, and the width of the windows around the
#: thresholds, in parts of the reach of the sums.
RIVALS, STEPS, WIDTH = 3, 4, 0.3


class BatchAttack:
    """The attack on one network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._weights = network.output.weights.astype(np.float32)
        self._bias = network.output.bias.astype(np.float32)

    # Beyond the range of float32 there are no candidates.
    @np.errstate(over="ignore", invalid="ignore")
    def candidates(
        self, problems: Sequence[Problem], bounds: BatchBounds, rows: IntArray
    ) -> dict[int, FloatArray]:
        """Return points with another class than the label, for some of the chosen rows."""
        lo, hi = (np.array([getattr(problems[k].region, n) for k in rows]) for n in ("lo", "hi"))
        points = np.array([problems[k].region.center for k in rows])
        label = np.array([problems[k].label for k in rows])
        margins = self._margins(problems, rows, layer_distances(self._network, points)[1], label)
        nearest = np.argsort(margins, axis=1, kind="stable")[:, :RIVALS]
        box, place = np.nonzero(np.isfinite(np.take_along_axis(margins, nearest, axis=1)))
        rival, points = nearest[box, place], points[box]
        found: dict[int, FloatArray] = {}
        for step in range(STEPS + 1):
            distances, last = layer_distances(self._network, points)
            lowest = self._margins(problems, rows[box], last, label[box]).min(axis=1)
            for k in np.flatnonzero(lowest < 0):
                found.setdefault(int(rows[box[k]]), points[k])
            left = np.array([row not in found for row in rows[box]], dtype=bool)
            if step == STEPS or not left.any():
                break
            box, rival, points = box[left], rival[left], points[left]
            toward = self._weights[label[box]] - self._weights[rival]
            gradient = self._backward([d[left] for d in distances], bounds, rows[box], toward)
            lower = np.where(gradient > 0, lo[box], points)
            points = np.where(gradient < 0, hi[box], lower)
        return found

    def _margins(
        self, problems: Sequence[Problem], rows: IntArray, last: Float32Array, label: IntArray
    ) -> Float32Array:
        """Return the margins over the rivals of each problem; infinite for other classes."""
        scores = last @ self._weights.T + self._bias
        margins = np.full(scores.shape, np.float32(np.inf))
        own = scores[np.arange(label.size), label]
        for k, row in enumerate(rows):
            rivals = [target.rival for target in problems[row].targets]
            margins[k, rivals] = own[k] - scores[k, rivals]
        return margins

    def _backward(
        self,
        distances: list[Float32Array],
        bounds: BatchBounds,
        rows: IntArray,
        gradient: Float32Array,
    ) -> Float32Array:
        for number in reversed(range(len(distances))):
            layer = self._network.layers[number]
            # A sum of signs of which few flip changes by about the root of their number.
            window = np.maximum(np.sqrt(layer.norm), 2.0) if number else bounds.reach[rows]
            scaled = distances[number] / (WIDTH * np.clip(window, 1e-12, 1e30))
            weight = (bounds.states[number][rows] == 0) / (1 + scaled.astype(np.float32) ** 2)
            gradient = layer.operator(np.float32).backward(gradient * weight.astype(np.float32))
        return gradient


class CandidateMethod(AutoMethod):
    """What `auto` answers if its attack finds a given point first; no verdict if it is none.

    It is not registered: only batches have candidates.
    """

    def __init__(self, point: FloatArray) -> None:
        self._point = point

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Replay the point for the targets that intervals do not prove."""
        question = OpenQuestion(problem, context)
        for target in question.open:
            since = context.deadline.elapsed()
            found = context.replayer.confirm(target, self._point)
            if found is not None and not found.tie:
                stage = AttackMethod.name
                after = context.result(target, stage, since, counterexample=found)
                question.enter(after, is_shared=True)
                break
        return question.answers()
