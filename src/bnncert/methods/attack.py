r"""Straight-through projected gradient, on many points at once.

The network is evaluated as it is; going back, the derivative of sign is replaced by a window
around the threshold, so that d F / d x0 becomes the product of the weights of the neurons that are
near their thresholds.  Neurons that the region cannot flip get no gradient at all.  Points move
by the sign of the gradient (L-inf) or along it (other norms), are projected back to the region,
and start anew when a round ends.  Whatever reaches F <= 0 is replayed exactly before it counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.formats.description import FloatArray
from bnncert.methods.base import Context, Method, register
from bnncert.network import Network
from bnncert.presolve.stability import LayerBounds, stability
from bnncert.problem import Problem, Target
from bnncert.regions import Ball, Box, Region
from bnncert.verdict import Counterexample, TargetResult

Batch = npt.NDArray[Any]

#: Multiply-adds that one gradient step of all restarts may take.
WORK_PER_STEP = 1e8

#: Share of the points of a round that start at a random vertex rather than at a random point.
VERTEX_SHARE = 0.5


class SurrogateGradient:
    """Values of all objectives at a batch of points, and their surrogate gradients."""

    def __init__(
        self, network: Network, bounds: tuple[LayerBounds, ...], targets: tuple[Target, ...]
    ) -> None:
        self._network = network
        self._open = [(b.state == 0).astype(np.float32) for b in bounds]
        objectives = [o for target in targets for o in target.objectives]
        width = network.layers[-1].size
        self._matrix = np.array([o.coefficients for o in objectives]).reshape(-1, width)
        self._constant = np.array([o.constant for o in objectives])
        ends = np.cumsum([len(target.objectives) for target in targets])
        self._groups = [
            np.arange(e - len(t.objectives), e) for e, t in zip(ends, targets, strict=True)
        ]
        # Layer 1 moves by at most half the region's width; above it, a sum of nv signs of which
        # a few flip moves by about sqrt(nv), far less than interval bounds allow.
        self._windows = []
        for number, (layer, b) in enumerate(zip(network.layers, bounds, strict=True)):
            reach = np.maximum((b.upper - b.lower) / 2, 1e-12)
            if number:
                reach = np.clip(np.sqrt(layer.norm), 2.0, np.maximum(reach / 2, 2.0))
            self._windows.append(reach.astype(np.float32))

    def values(self, signs: Batch) -> FloatArray:
        """Return F of every target (columns) at every sign vector (rows)."""
        parts = signs @ self._matrix.T + self._constant
        # A target without conditions is met everywhere.
        columns = [parts[:, g].max(axis=1, initial=-np.inf) for g in self._groups]
        return np.stack(columns, axis=1)

    def forward(self, points: Batch) -> tuple[list[Batch], FloatArray]:
        """Return the distances to the thresholds, layer by layer, and the targets' values."""
        distances = []
        signs = points.astype(np.float32)
        for layer in self._network.layers:
            value = layer.operator(np.float32).forward(signs)
            distance = value - layer.threshold(np.float32)
            distances.append(distance)
            signs = np.where(distance >= 0, np.float32(1), np.float32(-1))
        return distances, self.values(signs)

    def backward(
        self,
        distances: list[Batch],
        signs_values: Batch,
        targets: npt.NDArray[np.int64],
        scale: Batch,
    ) -> Batch:
        """Return d F_target / d x0 for each point, with windows widened by `scale`."""
        rows = np.empty(targets.size, dtype=np.int64)
        for k in np.unique(targets):
            group, mine = self._groups[k], targets == k
            if not group.size:
                return np.zeros((targets.size, self._network.inputs), dtype=np.float32)
            rows[mine] = group[np.argmax(signs_values[mine][:, group], axis=1)]
        gradient = self._matrix[rows].astype(np.float32)
        layers = list(zip(self._network.layers, distances, self._open, self._windows, strict=True))
        for layer, distance, open_, window in reversed(layers):
            reach = window * scale
            # A soft window: full weight at the threshold, fading over the reach of the region.
            weight = open_ / (1 + (distance / reach) ** 2)
            gradient = layer.operator(np.float32).backward(gradient * weight)
        return gradient

    def objective_values(self, distances: list[Batch]) -> Batch:
        """Return every objective at the points whose last distances are given."""
        signs = np.where(distances[-1] >= 0, np.float32(1), np.float32(-1))
        result: Batch = signs @ self._matrix.T + self._constant
        return result


@dataclass(eq=False)
class _State:
    """What an attack has found so far."""

    best: FloatArray
    places: FloatArray
    found: list[Counterexample | None]


def _grid(points: FloatArray, region: Region, step: float | None) -> FloatArray:
    """Round points to multiples of `step` inside the region's bounding box."""
    if step is None:
        return points
    lo, hi = np.ceil(region.lo / step) * step, np.floor(region.hi / step) * step
    # A coordinate without a multiple of the step in its range keeps its own value.
    usable = lo <= hi
    rounded = np.clip(np.rint(points / step) * step, lo, np.maximum(lo, hi))
    return np.where(usable, rounded, points)


def _natural_step(problem: Problem) -> float | None:
    """Integer pixels if the region is a box with integer bounds (as in VNN-COMP's images)."""
    region = problem.region
    if not isinstance(region, Box):
        return None
    whole = np.all(region.lo == np.rint(region.lo)) and np.all(region.hi == np.rint(region.hi))
    return 1.0 if whole and np.any(region.hi - region.lo >= 1) else None


def _vertices(region: Region, points: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Push a share of the points to vertices of the bounding box (back into the region)."""
    chosen = np.asarray(generator.uniform(size=points.shape[0]) < VERTEX_SHARE)
    corners = np.where(generator.uniform(size=points.shape) < 0.5, region.lo, region.hi)
    return region.project(np.where(chosen[:, None], corners, points))


def attack(
    problem: Problem,
    context: Context,
    *,
    bounds: tuple[LayerBounds, ...] | None = None,
    wanted: set[str] | None = None,
    rounds: int | None = None,
    stop_at_first: bool = True,
) -> tuple[FloatArray, list[Counterexample | None]]:
    """Search for counterexamples until time or rounds end.

    Parameters
    ----------
    wanted
        Names of the targets to look for (all by default).
    rounds
        How many times to start from new points; None goes on until the deadline.
    stop_at_first
        Whether one counterexample settles the question.

    Returns
    -------
    upper, found
        Per target: the lowest exact value seen, and a confirmed counterexample or None.
    """
    network, region, options = problem.network, problem.region, context.options
    generator = context.generator()
    bounds = stability(network, region) if bounds is None else bounds
    count = len(problem.targets)
    active = np.array(
        [k for k, t in enumerate(problem.targets) if wanted is None or t.name in wanted],
        dtype=np.int64,
    )
    state = _State(np.full(count, np.inf), np.tile(region.center, (count, 1)), [None] * count)
    surrogate = SurrogateGradient(network, bounds, problem.targets)
    step = options.pixel_step if options.pixel_step is not None else _natural_step(problem)
    restarts = options.restarts or _restarts(network)
    linf = isinstance(region, Box) or (isinstance(region, Ball) and region.norm == "linf")
    width = np.maximum(region.hi - region.lo, 0.0)
    scale_of_step = width / 2 if linf else np.full(region.size, float(np.linalg.norm(width)) / 2)
    if isinstance(region, Ball) and not linf:
        scale_of_step = np.full(region.size, region.radius)
    round_ = 0
    if not bounds[-1].unstable.size:
        # Nothing above can change, so the centre stands for the whole region.
        rounds, options = 1, replace(options, iterations=1, restarts=1)
        restarts = 1
    while active.size and not (round_ and context.deadline.passed()):
        points = region.sample(generator, restarts)
        points = _vertices(region, points, generator)
        if round_ == 0:
            points[0] = region.center
        points = _grid(points, region, step)
        # The targets that came closest so far are tried most.
        order = active[np.argsort(state.best[active], kind="stable")]
        share = order[: max(1, order.size // 2)] if round_ % 2 else order
        targets = np.resize(share, restarts)
        # Wide and narrow windows see different neurons: each point has its own.
        scale = np.exp(generator.uniform(-2.5, 0.7, size=(restarts, 1))).astype(np.float32)
        velocity = np.zeros(points.shape, dtype=np.float32)
        for iteration in range(options.iterations):
            distances, values = surrogate.forward(points)
            if _harvest(problem, context, state, points, values, active) and stop_at_first:
                active = np.zeros(0, dtype=np.int64)
                break
            active = np.array([k for k in active if state.found[k] is None], dtype=np.int64)
            if not active.size or (context.deadline.passed()):
                break
            if round_ == 0 and iteration == 0:
                closest = active[np.argsort(values[0, active], kind="stable")]
                targets = np.resize(closest, restarts)
            gradient = surrogate.backward(
                distances, surrogate.objective_values(distances), targets, scale
            )
            size = np.abs(gradient).max(axis=1, keepdims=True)
            velocity = 0.7 * velocity + gradient / np.maximum(size, 1e-30)
            shrink = 1.0 - 0.9 * iteration / max(1, options.iterations - 1)
            if linf:
                move = np.sign(velocity) * scale_of_step * shrink
                # Where the gradient vanishes, wander a little instead of standing still.
                move = np.where(velocity == 0, 0.0, move)
            else:
                length = np.linalg.norm(velocity, axis=1, keepdims=True)
                move = velocity / np.maximum(length, 1e-30) * scale_of_step * shrink
            if np.any(size <= 0):
                stuck = (size <= 0)[:, 0]
                move[stuck] = generator.standard_normal((int(stuck.sum()), region.size)) * (
                    scale_of_step * 0.3
                )
            points = _grid(region.project(points - move), region, step)
            context.report("attack", iteration, options.iterations)
        round_ += 1
        if rounds is not None and round_ >= rounds:
            break
    return context.exact_upper_bounds(problem.targets, state.places, state.best), state.found


def _restarts(network: Network) -> int:
    work = 0.0
    for layer in network.layers:
        work += float(layer.weights.nnz)
    return int(np.clip(WORK_PER_STEP / max(work, 1.0), 8, 256))


def _harvest(
    problem: Problem,
    context: Context,
    state: _State,
    points: FloatArray,
    values: FloatArray,
    active: npt.NDArray[np.int64],
) -> bool:
    """Note the lowest values, replay what looks violated; whether one was confirmed."""
    confirmed = False
    for k in active.tolist():
        lowest = int(np.argmin(values[:, k]))
        if values[lowest, k] < state.best[k]:
            state.best[k] = values[lowest, k]
            state.places[k] = points[lowest]
        if values[lowest, k] <= 1e-6 and state.found[k] is None:
            # Several candidates: the first may be undone by rounding.
            for row in np.argsort(values[:, k])[:3].tolist():
                if values[row, k] > 1e-6:
                    break
                state.found[k] = context.confirm_at(problem.targets[k], points[row])
                if state.found[k] is not None:
                    confirmed = True
                    break
        if confirmed:
            return True
    return confirmed


@register
class AttackMethod(Method):
    """Straight-through projected gradient."""

    name = "attack"
    summary = "searches for counterexamples by straight-through gradients from many points"
    promises = ("counterexample",)
    reads = frozenset({"seed", "restarts", "iterations", "pixel_step"})

    #: Rounds without a time limit.
    rounds_without_limit = 5

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Attack all targets until the first counterexample or the end of the time."""
        started = time.monotonic()
        rounds = None if context.deadline.seconds is not None else self.rounds_without_limit
        upper, found = attack(problem, context, rounds=rounds)
        elapsed = time.monotonic() - started
        since = context.deadline.elapsed() - elapsed
        return tuple(
            context.result(target, self.name, since, upper=float(upper[k]), counterexample=found[k])
            for k, target in enumerate(problem.targets)
        )
