"""Points that show that an input is needed: with it also free, the class can change.

For points of the region with low margins, every other input is moved to the ends of its domain, or
to each of its values on a grid with few.  All inputs are tried in batches of points.  A point of
another class counts after it has been replayed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.methods import Context, Options
from bnncert.engine.methods.attack import Attack
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample
from bnncert.problem import Problem
from bnncert.questions.explain.domain import Domain

#: Points of low margin that are kept, and values of an input on a grid up to which all are tried.
MOST_POINTS, FEW_VALUES = 6, 4

#: Points of one batch, at most and at least, and the multiplications for one.
LARGEST_BATCH, LEAST_BATCH, BATCH_WORK = 512, 4, 1e8

#: Gradient steps and points of an attack on a region.
ATTACK_STEPS, ATTACK_POINTS = 12, 32

#: Rounds in which the changes of a counterexample are undone.
MOST_ROUNDS = 64


class Witnesses:
    """Finds counterexamples that change one further input.

    Parameters
    ----------
    problem
        The question about the image alone, with its targets.
    """

    def __init__(
        self, problem: Problem, domain: Domain, runtime: OnnxRuntime | None, deadline: Deadline
    ) -> None:
        self._problem, self._domain, self._runtime = problem, domain, runtime
        self._deadline = deadline
        whole = domain.everything
        self._lo, self._hi = whole.lo, whole.hi
        work = sum(layer.weights.nnz for layer in problem.network.layers)
        self._batch = int(np.clip(BATCH_WORK / max(work, 1), LEAST_BATCH, LARGEST_BATCH))
        #: Points of low margin, the lowest first; inputs that are not free are as in the image.
        self._points: FloatArray = domain.image[None, :].copy()

    def question(self, free: BoolArray) -> Problem:
        """Return the question about the region of free inputs."""
        return replace(self._problem, inputs=self._domain.region(free))

    def margins(self, points: FloatArray) -> FloatArray:
        """Return the margins over all adversarial classes, one row for each point."""
        last = self._problem.network.last_signs(points)
        columns = [target.values(last) for target in self._problem.targets]
        return np.stack(columns, axis=1)

    def confirm(self, free: BoolArray, points: FloatArray) -> Counterexample | None:
        """Return the first point that is a counterexample in exact arithmetic, if one is."""
        problem = self.question(free)
        replayer = Replayer(problem, self._runtime)
        for point, margins in zip(points, self.margins(points), strict=True):
            found = replayer.confirm(problem.targets[int(np.argmin(margins))], point)
            if found is not None:
                return found
        return None

    def attack(self, free: BoolArray, deadline: Deadline) -> None:
        """Look for points of low margin in the region of free inputs, and keep them."""
        problem = self.question(free)
        options = Options(restarts=ATTACK_POINTS, iterations=ATTACK_STEPS)
        context = Context(options, deadline, Replayer(problem, self._runtime))
        search = Attack(problem, context)
        search.run(deadline, 1)
        self.keep(problem.region.project(search.lowest_points))

    def keep(self, points: FloatArray) -> None:
        """Add points of the region to those of low margin."""
        every = np.unique(np.concatenate([self._points, points]), axis=0)
        order = np.argsort(self.margins(every).min(axis=1), kind="stable")
        self._points = every[order[:MOST_POINTS]]

    def find(
        self, free: BoolArray, inputs: IntArray, deadline: Deadline
    ) -> Iterator[tuple[int, Counterexample]]:
        """Yield inputs with a counterexample in the region in which they are free in addition."""
        found: set[int] = set()
        for base in self._points:
            for columns, points in self._changed(base, inputs):
                if deadline.passed():
                    return
                low = self.margins(points).min(axis=1)
                for row in np.flatnonzero(low <= 1e-6).tolist():
                    i = int(columns[row])
                    if i in found or deadline.passed():
                        continue
                    witness = self.confirm(with_free(free, [i]), points[row][None, :])
                    if witness is not None:
                        found.add(i)
                        yield i, witness

    def _changed(self, base: FloatArray, inputs: IntArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield batches of points in which one input differs from the base, and that input."""
        columns, values = self._moves(inputs)
        for start in range(0, columns.size, self._batch):
            part = slice(start, start + self._batch)
            rows = np.repeat(base[None, :], columns[part].size, axis=0)
            rows[np.arange(columns[part].size), columns[part]] = values[part]
            yield columns[part], rows

    def _moves(self, inputs: IntArray) -> tuple[IntArray, FloatArray]:
        """Return inputs and values to try for them."""
        columns, values = [inputs, inputs], [self._lo[inputs], self._hi[inputs]]
        grid = self._domain.everything.values
        if grid is not None:
            low, high = grid.nearest(self._lo), grid.nearest(self._hi)
            for k in range(1, FEW_VALUES - 1):
                inner = inputs[(low + k < high)[inputs] & (high - low < FEW_VALUES)[inputs]]
                columns.append(inner)
                values.append(grid.at(low + k)[inner])
        every, value = np.concatenate(columns), np.concatenate(values)
        differs = value != self._domain.image[every]
        return every[differs], value[differs]

    def narrow(
        self, free: BoolArray, added: IntArray, found: Counterexample
    ) -> tuple[IntArray, Counterexample]:
        """Undo changes of the added inputs while the class stays wrong.

        Returns the added inputs that still differ from the image, and the counterexample.
        """
        image = self._domain.image
        if found.exact is not None:
            return added, found
        point = found.point
        for _ in range(MOST_ROUNDS):
            changed = added[point[added] != image[added]]
            if changed.size <= 1 or self._deadline.passed():
                break
            some = changed[: self._batch]
            undone = np.repeat(point[None, :], some.size, axis=0)
            undone[np.arange(some.size), some] = image[some]
            low = self.margins(undone).min(axis=1)
            best = int(np.argmin(low))
            if low[best] > 0:
                break
            point = undone[best]
        changed = added[point[added] != image[added]]
        inside = point.copy()
        inside[added] = image[added]
        self.keep(inside[None, :])
        if changed.size < added.size:
            confirmed = self.confirm(with_free(free, changed), point[None, :])
            if confirmed is not None:
                return changed, confirmed
        return added, found


def with_free(free: BoolArray, added: IntArray | list[int]) -> BoolArray:
    """Return the free inputs and further ones."""
    larger: BoolArray = np.array(free)
    larger[added] = True
    return larger
