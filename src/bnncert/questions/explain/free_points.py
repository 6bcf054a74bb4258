"""Points at which free inputs have other values than in the image.

A region of few grid points is decided by evaluating the network at each of them (`Enumeration`),
in exact arithmetic where floats leave a sign open.

A witness shows that a unit, an input or a block, is needed: with it also free, the class can change
(`Witnesses`).  For points of the region with low margins, every other unit is moved to the ends of
its domain, or to each of its values on a grid with few; a block also to its values at points of low
margin of the whole domain.  A point of another class counts after it has been replayed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, last_place
from bnncert.deadline import Deadline
from bnncert.engine.exact_classes import certain_signs
from bnncert.engine.methods import Context, Options
from bnncert.engine.methods.attack import Attack
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.model.network import MOST_TIE_CHOICES
from bnncert.problem import Problem, Target
from bnncert.questions.explain.explanation_answer import Domain

#: The most points that are enumerated, and the most multiplications for all of them.
MOST_POINTS, MOST_WORK = 2**16, 2e9

#: Points of one batch of them, and points that are evaluated in exact arithmetic, at most.
BATCH, MOST_EXACT = 2048, 500

#: Points of low margin that are kept, and values of an input on a grid up to which all are tried.
MOST_KEPT, FEW_VALUES = 6, 4

#: Points of one batch of changes, at most and at least, and the multiplications for one.
LARGEST_BATCH, LEAST_BATCH, BATCH_WORK = 512, 4, 1e8

#: Gradient steps and points of an attack on a region.
ATTACK_STEPS, ATTACK_POINTS = 12, 32

#: Rounds in which the changes of a counterexample are undone.
MOST_ROUNDS = 64


def with_free(free: BoolArray, added: IntArray | list[int]) -> BoolArray:
    """Add free units to a copy, because the old set stays in use if a proof fails."""
    larger: BoolArray = np.array(free)
    larger[added] = True
    return larger


class Enumeration:
    """Decides regions of few grid points of one question."""

    def __init__(self, problem: Problem, domain: Domain, deadline: Deadline) -> None:
        self._network, self._targets = problem.network, problem.targets
        self._image, self._owner, self._deadline = domain.image, domain.unit, deadline
        layers, whole = problem.network.layers, domain.everything
        # If sign(0) may be either, sums above the first layer may also be undetermined.
        fits = whole.values is not None and all(
            layer.sign_zero != "either" and (k == 0 or layer.norm.max(initial=0.0) < 2**24)
            for k, layer in enumerate(layers)
        )
        work = sum(layer.weights.nnz for layer in layers)
        self._most = min(MOST_POINTS, MOST_WORK / max(work, 1)) if fits else 0
        if whole.values is None:
            return
        self._values = whole.values
        self._low = whole.values.nearest(whole.lo)
        self._counts = whole.values.nearest(whole.hi) - self._low + 1
        numbers = (domain.image, domain.lo, domain.hi, whole.values.step, whole.values.origin)
        #: All points are multiples of this power of two.
        self._unit = last_place(np.concatenate(numbers))

    def fits(self, free: BoolArray) -> bool:
        """Whether the region of free units has few points."""
        if not self._most:
            return False
        # The product itself may be too large for a float.
        return bool(
            np.log2(self._counts[free[self._owner]]).sum() <= np.log2(max(self._most, 0.5)) + 1e-9
        )

    def violation(self, free: BoolArray) -> tuple[bool, FloatArray | None]:
        """Return whether the region is decided, and a point with another class if it has one."""
        seen: set[bytes] = set()
        doubtful = 0
        for points in self._batches(free):
            if self._deadline.passed():
                return False, None
            signs, sure = certain_signs(self._network, points, self._unit)
            for row in np.flatnonzero(sure).tolist():
                key = signs[row].tobytes()
                if key not in seen:
                    seen.add(key)
                    answers = [target.is_violated(signs[row]) for target in self._targets]
                    if any(answers):
                        return True, points[row]
                    if None in answers:
                        return False, None
            for point in points[~sure]:
                doubtful += 1
                if doubtful > MOST_EXACT or self._deadline.passed():
                    return False, None
                answer = self._exactly(point)
                if answer is not False:
                    return answer is True, point if answer else None
        return True, None

    def _batches(self, free: BoolArray) -> Iterator[FloatArray]:
        """Yield all points of the region."""
        inputs = np.flatnonzero(free[self._owner])
        shape = tuple(int(n) for n in self._counts[inputs])
        total = int(np.prod(shape, dtype=np.int64))
        home = self._values.nearest(self._image)
        for start in range(0, total, BATCH):
            numbers = np.arange(start, min(start + BATCH, total))
            places = np.repeat(home[None, :], numbers.size, axis=0)
            if inputs.size:
                digits = np.stack(np.unravel_index(numbers, shape), axis=1)
                places[:, inputs] = self._low[inputs] + digits
            yield self._values.at(places)

    def _exactly(self, point: FloatArray) -> bool | None:
        """Return whether a point has another class, None if that is unknown."""
        patterns = list(self._network.exact_patterns(point))
        answers = [t.is_violated(p[-1]) for p in patterns for t in self._targets]
        if any(answers):
            return True
        if not patterns or len(patterns) >= MOST_TIE_CHOICES or None in answers:
            return None
        return False


class Witnesses:
    """Finds counterexamples that change one further unit; `problem` is about the image alone."""

    def __init__(self, problem: Problem, domain: Domain, deadline: Deadline) -> None:
        self._problem, self._domain, self._deadline = problem, domain, deadline
        self._runtime = OnnxRuntime.of(problem.network)
        whole = domain.everything
        self._lo, self._hi = whole.lo, whole.hi
        work = sum(layer.weights.nnz for layer in problem.network.layers)
        self._batch = int(np.clip(BATCH_WORK / max(work, 1), LEAST_BATCH, LARGEST_BATCH))
        #: Points of low margin, the lowest first; units that are not free are as in the image.
        self._points: FloatArray = domain.image[None, :].copy()
        #: Points of low margin of the whole domain, from which blocks take their values.
        self._corners: FloatArray | None = None
        #: Whether some point of the whole domain is known that seems to have another class.
        self._can_change = False

    def question(self, free: BoolArray) -> Problem:
        """Ask what is asked about the image, with some inputs free."""
        return replace(self._problem, inputs=self._domain.region(free))

    def _margins(self, points: FloatArray) -> FloatArray:
        """Return the margins over all rivals, one row for each point."""
        last = self._problem.network.last_signs(points)
        return np.stack([target.values(last) for target in self._problem.targets], axis=1)

    def confirm(self, free: BoolArray, point: FloatArray) -> Counterexample | None:
        """Return a point as a counterexample if it is one in exact arithmetic."""
        problem = self.question(free)
        lowest = int(np.argmin(self._margins(point[None, :])[0]))
        return Replayer(problem, self._runtime).confirm(problem.targets[lowest], point)

    def attack(self, free: BoolArray, deadline: Deadline) -> None:
        """Look for points of low margin in the region of free units, and keep them."""
        if self._corners is None and self._domain.blocks is not None:
            self._corners = self._low_points(np.ones_like(free), deadline)[:MOST_KEPT]
            self._can_change = bool(self._margins(self._corners).min() <= 0)
        self._keep(self._low_points(free, deadline))

    @property
    def closest(self) -> Target:
        """The target with the lowest margin at the points that are known."""
        points = self._points if self._corners is None else self._corners
        return self._problem.targets[int(np.argmin(self._margins(points).min(axis=0)))]

    def _low_points(self, free: BoolArray, deadline: Deadline) -> FloatArray:
        """Find points of low margin in the region of free units, the lowest first."""
        problem = self.question(free)
        options = Options(restarts=ATTACK_POINTS, iterations=ATTACK_STEPS)
        context = Context(options, deadline, Replayer(problem, self._runtime))
        search = Attack(problem, context)
        search.run(deadline, 1)
        return problem.region.project(search.lowest_points)

    def _keep(self, points: FloatArray) -> None:
        """Add points of the region to those of low margin."""
        every = np.unique(np.concatenate([self._points, points]), axis=0)
        order = np.argsort(self._margins(every).min(axis=1), kind="stable")
        self._points = every[order[:MOST_KEPT]]

    def find(
        self, free: BoolArray, units: IntArray, deadline: Deadline, *, attack: bool
    ) -> Iterator[tuple[int, Counterexample]]:
        """Yield units with a counterexample in the region in which they are free in addition.

        Blocks are few enough for an attack on each, if one is asked for; it is worth its time only
        if the class is known to change somewhere in the whole domain.
        """
        found: set[int] = set()
        for base in self._points:
            for columns, points in self._changed(base, units):
                if deadline.passed():
                    return
                low = self._margins(points).min(axis=1)
                for row in np.flatnonzero(low <= 1e-6).tolist():
                    i = int(columns[row])
                    if i in found or deadline.passed():
                        continue
                    witness = self.confirm(with_free(free, [i]), points[row])
                    if witness is not None:
                        found.add(i)
                        yield i, witness
        attack = attack and self._domain.blocks is not None and self._can_change
        for i in units.tolist() if attack else ():
            larger = with_free(free, [i])
            if i in found or deadline.passed():
                continue
            lowest = self._low_points(larger, deadline)[:1]
            for point in lowest[self._margins(lowest).min(axis=1) <= 1e-6]:
                witness = self.confirm(larger, point)
                if witness is not None:
                    yield i, witness

    def _changed(self, base: FloatArray, units: IntArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield batches of points in which one unit differs from the base, and that unit."""
        for values in self._moves():
            moved = np.intersect1d(units, self._domain.differing(values))
            for start in range(0, moved.size, self._batch):
                part = moved[start : start + self._batch]
                yield part, self._with_values(base, part, values)

    def _moves(self) -> list[FloatArray]:
        """List points whose values are tried for each unit; those of the image are left out."""
        moves = [self._lo, self._hi]
        grid = self._domain.everything.values
        if grid is not None:
            low, high = grid.nearest(self._lo), grid.nearest(self._hi)
            for k in range(1, FEW_VALUES - 1):
                inner = (low + k < high) & (high - low < FEW_VALUES)
                moves.append(np.where(inner, grid.at(low + k), self._domain.image))
        return [*moves, *(() if self._corners is None else self._corners)]

    def narrow(
        self, free: BoolArray, added: IntArray, found: Counterexample
    ) -> tuple[IntArray, Counterexample]:
        """Undo changes of the added units while the class stays wrong.

        Returns the added units that still differ from the image, and the counterexample.
        """
        image = self._domain.image
        self._can_change = True
        if found.exact is not None:
            return added, found
        point = found.point
        for _ in range(MOST_ROUNDS):
            changed = np.intersect1d(added, self._domain.differing(point))
            if changed.size <= 1 or self._deadline.passed():
                break
            some = changed[: self._batch]
            undone = self._with_values(point, some, image)
            low = self._margins(undone).min(axis=1)
            best = int(np.argmin(low))
            if low[best] > 0:
                break
            point = undone[best]
        changed = np.intersect1d(added, self._domain.differing(point))
        inside = np.where(np.isin(self._domain.unit, added), image, point)
        self._keep(inside[None, :])
        if changed.size < added.size:
            confirmed = self.confirm(with_free(free, changed), point)
            if confirmed is not None:
                return changed, confirmed
        return added, found

    def _with_values(self, base: FloatArray, units: IntArray, values: FloatArray) -> FloatArray:
        """Make one point for each unit, in which this unit has other values than in the base."""
        return np.where(self._domain.unit == units[:, None], values, base)
