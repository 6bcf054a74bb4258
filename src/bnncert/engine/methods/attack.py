r"""Straight-through projected gradient on many points at once.

The forward pass evaluates the network; in the backward pass, the derivative of sign is replaced by
a window around the threshold, so that d F / d x0 is the product of the weights of the neurons that
are near their thresholds.  Stable neurons have no gradient.  Points move by the sign of the
gradient (L-inf) or along it (other norms), are projected back to the region, and start again from
new points when a round ends.  In balls with few points the rounds are short, and each is followed
by a walk (`grid_walk`).  A point with F <= 0 is a counterexample only after an exact replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Method, register
from bnncert.engine.methods.engine import STEP, Engine
from bnncert.engine.methods.grid_walk import WALKERS, GridWalk, has_few_points
from bnncert.engine.presolve.stability import LayerBounds
from bnncert.engine.verdict import Counterexample, TargetResult
from bnncert.model.layers import ThresholdLayer
from bnncert.model.network import Network
from bnncert.problem import Problem, Target
from bnncert.regions import Region

Batch = npt.NDArray[Any]

#: The number of multiply-adds of one gradient step of all restarts.
WORK_PER_STEP = 1e8

#: Multiply-adds of one layer from which on the clock is looked at before it.
LONG_WORK = 2e7

#: Share of the time of the first round of the method `attack`.
FIRST_SHARE = 0.3

#: Share of the points of a round that start at a random vertex rather than at a random point.
VERTEX_SHARE = 0.5

#: Around a given point the first round begins at shares from 1 down to 2^-NEAREST of the region.
NEAREST = 8.0

#: Rounds after which an attack is not worth going on when nothing else is left to do.
ROUNDS = 8

#: How many times more points a round has than the one before.
GROWTH = 4

#: Replays that may fail before there is only one for each step: at a tie almost all of them fail.
MOST_REFUSED = 64

#: A target is close if its lowest value is at most this share of the value at the centre.
CLOSE = 0.25


def layer_distances(
    network: Network, points: Batch, check: Callable[[ThresholdLayer, Batch], None] | None = None
) -> tuple[list[Batch], Batch]:
    """Return the distances from the thresholds by layer, and the signs of the last layer.

    `check` is called before each layer.
    """
    distances, signs = [], points.astype(np.float32)
    for layer in network.layers:
        if check is not None:
            check(layer, signs)
        distance = layer.operator(np.float32).forward(signs) - layer.threshold(np.float32)
        distances.append(distance)
        signs = np.where(distance >= 0, np.float32(1), np.float32(-1))
    return distances, signs


class SurrogateGradient:
    """Values of all objectives at a batch of points, and their surrogate gradients.

    Raises OutOfTimeError if `limit` passes before a layer that takes long.
    """

    def __init__(
        self, network: Network, bounds: tuple[LayerBounds, ...], targets: tuple[Target, ...]
    ) -> None:
        self._network = network
        self.limit = Deadline(None)
        self._open = [(b.state == 0).astype(np.float32) for b in bounds]
        objectives = [o for target in targets for o in target.objectives]
        width = network.layers[-1].size
        self._matrix = np.array([o.coefficients for o in objectives]).reshape(-1, width)
        self._constant = np.array([o.constant for o in objectives])
        ends = np.cumsum([len(target.objectives) for target in targets])
        self._groups = [
            np.arange(e - len(t.objectives), e) for e, t in zip(ends, targets, strict=True)
        ]
        # The sums of layer 1 change by at most half the region's width; above it, a sum of nv signs
        # of which a few flip changes by about sqrt(nv), far less than interval bounds allow.
        self._windows = []
        for number, (layer, b) in enumerate(zip(network.layers, bounds, strict=True)):
            # Float32 numbers end near 3e38.
            reach = np.clip((b.upper - b.lower) / 2, 1e-12, 1e30)
            if number:
                reach = np.clip(np.sqrt(layer.norm), 2.0, np.maximum(reach / 2, 2.0))
            self._windows.append(reach.astype(np.float32))

    # Beyond the range of float32 the surrogate only guides the search less well.
    @np.errstate(over="ignore", invalid="ignore")
    def forward(self, points: Batch) -> tuple[list[Batch], Batch, FloatArray]:
        """Return the distances to the thresholds by layer, and the values f_i and F of targets."""
        distances, signs = layer_distances(self._network, points, self._check)
        parts: Batch = signs @ self._matrix.T + self._constant
        # A target without conditions is violated everywhere.
        columns = [parts[:, g].max(axis=1, initial=-np.inf) for g in self._groups]
        return distances, parts, np.stack(columns, axis=1)

    def values(self, points: FloatArray) -> FloatArray:
        """Return F of every target, for each point."""
        return self.forward(points)[2]

    def gradient(
        self, points: FloatArray, targets: npt.NDArray[np.int64], scale: FloatArray
    ) -> FloatArray:
        """Return d F_target / d x0 for each point."""
        distances, parts, _ = self.forward(points)
        found = self.backward(distances, parts, targets, scale.astype(np.float32))
        return found.astype(np.float64)

    @np.errstate(over="ignore", invalid="ignore")
    def backward(
        self, distances: list[Batch], parts: Batch, targets: npt.NDArray[np.int64], scale: Batch
    ) -> Batch:
        """Return d F_target / d x0 for each point, with windows widened by `scale`."""
        rows = np.empty(targets.size, dtype=np.int64)
        for k in np.unique(targets):
            group, mine = self._groups[k], targets == k
            if not group.size:
                return np.zeros((targets.size, self._network.inputs), dtype=np.float32)
            rows[mine] = group[np.argmax(parts[mine][:, group], axis=1)]
        gradient = self._matrix[rows].astype(np.float32)
        layers = list(zip(self._network.layers, distances, self._open, self._windows, strict=True))
        for layer, distance, open_, window in reversed(layers):
            reach = window * scale
            # A soft window: full weight at the threshold, decreasing over the reach of the region.
            weight = open_ / (1 + (distance / reach) ** 2)
            self._check(layer, gradient)
            gradient = layer.operator(np.float32).backward(gradient * weight)
        return gradient

    def _check(self, layer: ThresholdLayer, batch: Batch) -> None:
        if batch.shape[0] * layer.rows.indices.size > LONG_WORK:
            self.limit.check()


def _has_integer_bounds(region: Region) -> bool:
    """Whether the region is a box with integer bounds (as in VNN-COMP), which pixels have."""
    if not region.is_box or region.norm is not None or region.values is not None:
        return False
    whole = np.all(region.lo == np.rint(region.lo)) and np.all(region.hi == np.rint(region.hi))
    return bool(whole and np.any(region.hi - region.lo >= 1))


def _vertices(region: Region, points: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Move a share of the points to vertices of the bounding box, projected to the region."""
    chosen = np.asarray(generator.uniform(size=points.shape[0]) < VERTEX_SHARE)
    corners = np.where(generator.uniform(size=points.shape) < 0.5, region.lo, region.hi)
    return region.project(np.where(chosen[:, None], corners, points))


class Attack:
    """A search for counterexamples that can be interrupted and continued.

    Parameters
    ----------
    bounds
        Bounds of the layers (default: those of interval arithmetic).
    stop_at_first
        Whether one counterexample ends the search.
    near
        A point of the region from which the first round begins, in steps of all sizes.

    Attributes
    ----------
    rounds
        The number of complete rounds from new points.
    steps
        The number of gradient steps of all points.
    """

    #: Points of the first round, of which the next ones have more.
    FEWEST = 16

    def __init__(
        self,
        problem: Problem,
        context: Context,
        *,
        bounds: tuple[LayerBounds, ...] | None = None,
        stop_at_first: bool = True,
        near: FloatArray | None = None,
    ) -> None:
        network, region = problem.network, problem.region
        self._problem, self._context = problem, context
        self._stop_at_first, self._near = stop_at_first, near
        if bounds is None:
            bounds = context.intervals(problem)
        count = len(problem.targets)
        self._active = np.arange(count)
        self._best = np.full(count, np.inf)
        self._places: FloatArray = np.tile(region.center, (count, 1))
        self._found: list[Counterexample | None] = [None] * count
        self._surrogate = SurrogateGradient(network, bounds, problem.targets)
        self.rounds = self.steps = self._refused = 0
        #: The step at which the lowest value of each target was found.
        self._improved = np.zeros(count, dtype=np.int64)
        #: The values at the region's centre.
        self._at_centre = np.full(count, np.inf)
        self._move = _Move(region)
        # If no last-layer sign can change, the centre represents the whole region.
        self._only_centre = not bounds[-1].unstable.size
        self._generator = context.generator()
        self._walk = self._steps()

    def look_for(self, wanted: set[str]) -> None:
        """Search for counterexamples to these targets only."""
        names = [target.name for target in self._problem.targets]
        active = [k for k, name in enumerate(names) if name in wanted and self._found[k] is None]
        self._active = np.array(active, dtype=np.int64)

    @property
    def is_over(self) -> bool:
        """Whether no target is left to attack."""
        return not self._active.size

    @property
    def is_stalled(self) -> bool:
        """Whether the search is far from all open targets and does not improve.

        For the target with the lowest value: this value is above a quarter of the value at the
        centre, and since it was found as many steps were made as before, in total at least half a
        round.
        """
        if not self._active.size:
            return True
        closest = self._active[int(np.argmin(self._best[self._active]))]
        is_far = bool(self._best[closest] > CLOSE * self._at_centre[closest])
        enough = max(self._context.options.iterations // 2, 2 * int(self._improved[closest]))
        return is_far and self.steps >= enough

    def run(self, deadline: Deadline, rounds: int | None = None) -> bool:
        """Continue for some rounds, until the deadline, or until every target is violated.

        The first step is made even if the deadline has passed, unless the network is large: it
        evaluates the centre.  False if there is nothing more to try.
        """
        last = None if rounds is None else self.rounds + rounds
        self._surrogate.limit = deadline
        while self._active.size:
            try:
                if next(self._walk, None) is None:
                    return False
            except OutOfTimeError:
                # The round is given up: another run begins with new points.
                self._walk = self._steps()
                return True
            if deadline.passed() or (last is not None and self.rounds >= last):
                return True
        return False

    @property
    def found(self) -> list[Counterexample | None]:
        """A counterexample for each target, or None."""
        return list(self._found)

    @property
    def lowest_points(self) -> FloatArray:
        """The points with the lowest values so far, in floating point, one row for each target."""
        return np.array(self._places)

    @property
    def closest_point(self) -> FloatArray:
        """The point with the lowest value of any target so far, in floating point."""
        return np.array(self._places[int(np.argmin(self._best))])

    def outcome(self, deadline: Deadline) -> tuple[FloatArray, list[Counterexample | None]]:
        """Return the lowest exact value of each target, and a counterexample or None."""
        context = replace(self._context, deadline=deadline)
        targets = self._problem.targets
        return context.exact_upper_bounds(targets, self._places, self._best), self.found

    def _steps(self) -> Iterator[bool]:
        """Yield after each gradient step of all points, round after round."""
        problem, options = self._problem, self._context.options
        region, generator = problem.region, self._generator
        in_integers = _has_integer_bounds(region)
        most = options.restarts or _restarts(problem.network)
        iterations = options.iterations
        if self._only_centre:
            most = iterations = 1
        walks = has_few_points(region) and not self._only_centre
        if walks:
            # The walk does most of the work; gradients bring it to different places.
            most = options.restarts or min(most, WALKERS)
            iterations = max(1, iterations // 6)
        while True:
            restarts = options.restarts or min(most, self.FEWEST * GROWTH ** min(self.rounds, 8))
            points = region.sample(generator, restarts)
            points = _vertices(region, points, generator)
            reach = np.ones((restarts, 1))
            if self.rounds == 0 and self._near is not None:
                reach = np.exp2(-generator.uniform(0, NEAREST, size=(restarts, 1)))
                points = region.project(self._near + reach * (points - self._near))
            if self.rounds == 0:
                points[0] = region.center
            points = np.rint(points) if in_integers else points
            # The targets with the lowest values so far are attacked most.
            order = self._active[np.argsort(self._best[self._active], kind="stable")]
            chosen = order[: max(1, order.size // 2)] if self.rounds % 2 else order
            targets = np.resize(chosen, restarts)
            # Wide and narrow windows select different neurons: each point has its own width.
            scale = np.exp(generator.uniform(-2.5, 0.7, size=(restarts, 1))).astype(np.float32)
            velocity = np.zeros(points.shape, dtype=np.float32)
            for iteration in range(iterations):
                distances, parts, values = self._surrogate.forward(points)
                self._harvest(points, values)
                if not self._active.size:
                    return
                if self.rounds == 0 and iteration == 0:
                    self._at_centre = values[0]
                    closest = self._active[np.argsort(values[0, self._active], kind="stable")]
                    targets = np.resize(closest, restarts)
                gradient = self._surrogate.backward(distances, parts, targets, scale)
                size = np.abs(gradient).max(axis=1, keepdims=True)
                velocity = 0.7 * velocity + gradient / np.maximum(size, 1e-30)
                shrink = 1.0 - 0.9 * iteration / max(1, iterations - 1)
                move = reach * self._move(velocity, shrink, (size <= 0)[:, 0], generator)
                points = region.project(points - move)
                points = np.rint(points) if in_integers else points
                self._context.report("attack", iteration, iterations)
                self.steps += 1
                if iteration == iterations - 1 and not walks:
                    self.rounds += 1
                yield True
            if walks:
                yield from self._walk_nearby(points, generator)
            if self._only_centre:
                return

    def _walk_nearby(self, points: FloatArray, generator: np.random.Generator) -> Iterator[bool]:
        """Walk from the best points so far and from the last ones of a round, step by step."""
        order = self._active[np.argsort(self._best[self._active], kind="stable")]
        targets = np.resize(order[: WALKERS // 2], WALKERS)
        starts = self._places[targets]
        others = generator.integers(points.shape[0], size=WALKERS - WALKERS // 2)
        starts[WALKERS // 2 :] = points[others]
        walk = GridWalk(self._problem.region, self._surrogate, generator, starts, targets)
        iterations = self._context.options.iterations
        for iteration in range(iterations):
            self._harvest(*walk.step())
            if not self._active.size:
                return
            self._context.report("attack", iteration, iterations)
            self.steps += 1
            if iteration == iterations - 1:
                self.rounds += 1
            yield True

    def _harvest(self, points: FloatArray, values: FloatArray) -> None:
        """Record the lowest values, replay points with F <= 0, and drop violated targets."""
        for k in self._active.tolist():
            lowest = int(np.argmin(values[:, k]))
            if values[lowest, k] < self._best[k]:
                self._best[k] = values[lowest, k]
                self._improved[k] = self.steps
                self._places[k] = points[lowest]
            # Several candidates are tried: rounding may make the first one fail.
            for row in np.argsort(values[:, k])[:3].tolist():
                if values[row, k] > 1e-6 or self._found[k] is not None:
                    break
                target = self._problem.targets[k]
                # Equal scores may be no violation; replays of many such points take long.
                if values[row, k] > target.largest_violation + 1e-6:
                    break
                if self._context.deadline.passed() or self._refused > MOST_REFUSED + self.steps:
                    break
                self._found[k] = self._context.replayer.confirm(target, points[row])
                self._refused += self._found[k] is None
            if self._found[k] is not None and self._stop_at_first:
                self._active = np.zeros(0, dtype=np.int64)
                return
        self._active = np.array([k for k in self._active if self._found[k] is None], dtype=np.int64)


class _Move:
    """The step of points along a direction."""

    def __init__(self, region: Region) -> None:
        self._linf = region.is_box
        width = np.maximum(region.hi - region.lo, 0.0)
        if self._linf:
            self._length = width / 2
        elif region.norm in ("l1", "l2"):
            self._length = np.full(region.size, region.radius)
        else:
            self._length = np.full(region.size, float(np.linalg.norm(width)) / 2)

    def __call__(
        self,
        velocity: Batch,
        shrink: float,
        stuck: npt.NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> FloatArray:
        """Return the step to subtract from the points, random for points without a gradient."""
        move: FloatArray
        if self._linf:
            move = np.sign(velocity) * self._length * shrink
        else:
            norm = np.linalg.norm(velocity, axis=1, keepdims=True)
            move = velocity / np.maximum(norm, 1e-30) * self._length * shrink
        if np.any(stuck):
            noise = generator.standard_normal((int(stuck.sum()), self._length.size))
            move[stuck] = noise * (self._length * 0.3)
        return move


def _restarts(network: Network) -> int:
    work = float(sum(layer.weights.nnz for layer in network.layers))
    return int(np.clip(WORK_PER_STEP / max(work, 1.0), 8, 256))


#: Seconds of a multiplication in products of sparse matrices, and the largest estimate of a first
#: step: products of large convolutions are faster.
MULTIPLY, FIRST_STEP = 6e-10, 0.1


@register
class AttackMethod(Method):
    """Straight-through projected gradient; for local networks also minimising patterns."""

    name = "attack"
    summary = "searches for counterexamples by straight-through gradients from many points"
    promises = ("counterexample",)
    reads = frozenset({"seed", "restarts", "iterations"})

    #: Rounds without a time limit.
    rounds_without_limit = 5

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Attack all targets until the first counterexample or the deadline."""
        since = context.deadline.elapsed()
        rounds = None if context.deadline.seconds is not None else self.rounds_without_limit
        search = Attack(problem, context)
        search.run(context.deadline.within(FIRST_SHARE * context.deadline.remaining()), 1)
        near: dict[str, TargetResult] = {}
        if not search.is_over and not context.deadline.passed():
            # Imported on use: it imports linear programs, and most attacks end before.
            from bnncert.engine.methods.elimination import attack_locally

            near = attack_locally(problem, context)
        if all(result.counterexample is None for result in near.values()):
            search.run(context.deadline, rounds)
        upper, found = search.outcome(context.deadline)
        for k, target in enumerate(problem.targets):
            if target.name in near:
                upper[k] = min(upper[k], near[target.name].upper)
                found[k] = found[k] or near[target.name].counterexample
        return tuple(
            context.result(target, self.name, since, upper=float(upper[k]), counterexample=found[k])
            for k, target in enumerate(problem.targets)
        )


class AttackEngine(Engine):
    """Gradients from many points."""

    method = AttackMethod

    def first_slice(self) -> float:
        """One step of few points."""
        weights: int = sum(layer.weights.nnz for layer in self.question.problem.network.layers)
        return STEP + min(2 * Attack.FEWEST * weights * MULTIPLY, FIRST_STEP)

    @property
    def is_endless(self) -> bool:
        """Whether it is stalled, has had some rounds, or no time limit ends it."""
        is_unlimited = self.context.deadline.seconds is None
        return is_unlimited or self.stalled or self.search.rounds >= ROUNDS

    @cached_property
    def search(self) -> Attack:
        """The attack, from its first point on."""
        question = self.question
        return Attack(question.problem, question.context, bounds=question.bounds)

    def work(self, end: Deadline) -> bool:
        """Continue the attack on all open targets together."""
        since, search = self.context.deadline.elapsed(), self.search
        search.look_for({t.name for t in self.question.open})
        goes_on = search.run(end)
        self.stalled = search.is_stalled
        violated = any(found is not None for found in search.found)
        if violated:
            self._enter(since, np.full(len(search.found), np.inf))
        else:
            self.context.spend(self.method.name, since)
        return goes_on

    def finish(self) -> None:
        """Enter the lowest exact values that it has found."""
        if not self.question.is_over and "search" in self.__dict__:
            since = self.context.deadline.elapsed()
            self._enter(since, self.search.outcome(self.context.deadline)[0])

    def _enter(self, since: float, upper: FloatArray) -> None:
        targets, found = self.question.problem.targets, self.search.found
        for target in self.question.open:
            k = targets.index(target)
            after = self.context.result(
                target, self.method.name, since, upper=float(upper[k]), counterexample=found[k]
            )
            self.question.enter(after, is_shared=True)
