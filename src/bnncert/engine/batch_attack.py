"""A few gradient steps from the centres of many boxes at once, against their nearest rivals.

The gradient is that of `methods/attack`; each step goes to the vertex of the box that the signs of
the gradient name.  What it finds are candidates, in floating point: a counterexample is one of them
after its exact replay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bnncert.arrays import Float32Array, FloatArray, IntArray
from bnncert.engine.batch_intervals import BatchBounds
from bnncert.engine.methods.attack import AttackMethod
from bnncert.engine.methods.auto import AutoMethod
from bnncert.engine.methods.base import Context
from bnncert.engine.methods.open_question import OpenQuestion
from bnncert.engine.verdict import TargetResult
from bnncert.model.network import Network
from bnncert.problem import Problem

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
        margins = self._margins(problems, rows, self._forward(points)[1], label)
        nearest = np.argsort(margins, axis=1, kind="stable")[:, :RIVALS]
        box, place = np.nonzero(np.isfinite(np.take_along_axis(margins, nearest, axis=1)))
        rival, points = nearest[box, place], points[box]
        found: dict[int, FloatArray] = {}
        for step in range(STEPS + 1):
            distances, last = self._forward(points)
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

    def _forward(self, points: FloatArray) -> tuple[list[Float32Array], Float32Array]:
        """Return the distances from the thresholds by layer, and the signs of the last layer."""
        distances, signs = [], points.astype(np.float32)
        for layer in self._network.layers:
            distance = layer.operator(np.float32).forward(signs) - layer.threshold(np.float32)
            distances.append(distance)
            signs = np.where(distance >= 0, np.float32(1), np.float32(-1))
        return distances, signs

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
