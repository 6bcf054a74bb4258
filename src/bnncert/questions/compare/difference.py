"""Inputs at which two networks give different classes, in exact arithmetic, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.exact_classes import UNDETERMINED, determined_classes, exact_class
from bnncert.engine.methods import Progress
from bnncert.kernel.rules.disagreement import Condition
from bnncert.kernel.rules.product import Product
from bnncert.model.network import Network
from bnncert.problem.objective import score_objective
from bnncert.problem.problem import Target
from bnncert.questions.compare.comparison_answer import Difference, InputsComparison
from bnncert.regions import Region

#: Inputs that are evaluated between two reports of progress.
BATCH = 1000

#: Points of the first sample, segments of one round, and rounds at most.
SAMPLES, SEGMENTS, ROUNDS = 512, 256, 8

#: Multiply-adds of the points that are evaluated at once, between two looks at the clock, and the
#: fewest such points.
WORK, FEWEST = 5e8, 8

#: Halvings of a segment: float32 numbers have 24 bits.
HALVINGS = 24

#: Points at which the classes seem to differ that are examined in exact arithmetic, at most.
MOST_CANDIDATES = 8


def condition_target(network: Network, name: str, conditions: Sequence[Condition]) -> Target:
    """Return the target that all conditions on the scores of a product hold at once."""
    return Target(
        name,
        tuple(
            score_objective(
                network,
                {k: Fraction(c) for k, c in condition.scores},
                tie_is_fine=condition.strict,
                name=name,
            )
            for condition in conditions
        ),
    )


def compare_inputs(
    a: Network, b: Network, rows: FloatArray, deadline: Deadline, progress: Progress | None = None
) -> InputsComparison:
    """Return the exact classes of all inputs, or of the first ones if the time is up."""
    parts = [np.zeros((2, 0), dtype=np.int64)]
    for start in range(0, rows.shape[0], BATCH):
        if progress is not None:
            progress("inputs", start, rows.shape[0])
        batch = rows[start : start + BATCH]
        try:
            found = [determined_classes(network, batch, deadline) for network in (a, b)]
        except OutOfTimeError:
            break
        parts.append(np.stack(found))
    classes = np.concatenate(parts, axis=1)
    unknown = np.any(classes == UNDETERMINED, axis=0)
    differing = np.flatnonzero((classes[0] != classes[1]) & ~unknown)
    one, two = classes[:, differing]
    return InputsComparison(classes.shape[1], differing, one, two, np.flatnonzero(unknown))


def difference_at(
    product: Product,
    region: Region,
    point: FloatArray,
    exact: tuple[Fraction, ...] | None = None,
) -> Difference | None:
    """Return the difference at a point of the region; None if there is none, or it is not inside.

    Where sign(0) may be either, the classes have to differ however ties are decided.
    """
    a, b = product.first, product.second
    place = point if exact is None else exact
    if not region.contains(place):
        return None
    classes = exact_class(a, place), exact_class(b, place)
    if UNDETERMINED in classes or classes[0] == classes[1]:
        return None
    return Difference(point, exact, classes, (a.evaluate(point), b.evaluate(point)))


# -- a search at decision boundaries ------------------------------------------------------


class BoundarySearch:
    """Looks for a difference on a region.

    Points of the region are evaluated by both networks.  Between two points of different classes
    lies a point at which the class changes; bisection of many such segments at once finds where A
    changes its class, and at the points that it evaluates, B may give another class.  Networks that
    are nearly equal differ near their decision boundaries, if anywhere.
    """

    def __init__(self, product: Product, region: Region, seed: int) -> None:
        self._product, self._region = product, region
        self._random = np.random.default_rng(seed)
        layers = [*product.first.layers, *product.second.layers]
        # Convolutions are faster as such than as the sparse rows that they have in the product.
        self._apart = any(layer.convolution is not None for layer in layers)
        work = sum(int(layer.rows.nnz) for layer in layers)
        self._most = int(np.clip(WORK // max(1, work), FEWEST, SAMPLES))
        self._seen: set[int] = set()

    @property
    def one_class(self) -> int | None:
        """The class that A gave to all points, or None if there were several."""
        return next(iter(self._seen)) if len(self._seen) == 1 else None

    def run(
        self, points: FloatArray | None, deadline: Deadline, progress: Progress | None
    ) -> Difference | None:
        """Return a difference, or None if none is found before the deadline."""
        region, count = self._region, min(SAMPLES, 4 * self._most)
        corners = np.where(self._random.random((count, region.size)) < 0.5, region.lo, region.hi)
        pool = [region.center[None, :], region.sample(self._random, count), region.project(corners)]
        if points is not None and points.size:
            chosen = self._random.permutation(points.shape[0])[: 4 * count]
            pool.insert(1, region.project(points[np.sort(chosen)]))
        ends = np.concatenate(pool)
        classes, found = self._look(ends, deadline)
        ends = ends[: classes.size]
        for number in range(ROUNDS):
            if found is not None or self.one_class is not None or deadline.passed():
                break
            if progress is not None:
                progress("decision boundaries", number, ROUNDS)
            found = self._round(ends, classes, deadline)
        return found

    def _look(self, points: FloatArray, deadline: Deadline) -> tuple[IntArray, Difference | None]:
        """Return the classes that A gives, in floats, and a difference at one of the points.

        If the time is up or a difference is found, these are the classes of the first points.
        """
        parts: list[IntArray] = []
        for start in range(0, points.shape[0], self._most):
            batch = points[start : start + self._most]
            one, two = self._classes(batch)
            parts.append(one)
            self._seen.update(np.unique(one).tolist())
            for row in np.flatnonzero(one != two)[:MOST_CANDIDATES].tolist():
                found = self._near(batch[row])
                if found is not None:
                    return np.concatenate(parts), found
            if deadline.passed():
                break
        return np.concatenate(parts), None

    def _near(self, candidate: FloatArray) -> Difference | None:
        """Return a difference at a float32 point near the candidate, else at a float64 point."""
        for kind in (np.float32, np.float64):
            point = self._region.settle(candidate, kind)
            found = None if point is None else difference_at(self._product, self._region, point)
            if found is not None:
                return found
        return None

    def _classes(self, points: FloatArray) -> tuple[IntArray, IntArray]:
        """Classify in floats, which is enough to find candidates."""
        if self._apart:
            return self._product.first.classify(points), self._product.second.classify(points)
        count = self._product.first.classes
        scores = self._product.network.evaluate(points)
        return scores[:, :count].argmax(axis=1), scores[:, count:].argmax(axis=1)

    def _round(self, ends: FloatArray, classes: IntArray, deadline: Deadline) -> Difference | None:
        """Bisect random segments between points of different classes."""
        draw = self._random.integers(0, ends.shape[0], (2, 4 * SEGMENTS))
        draw = draw[:, classes[draw[0]] != classes[draw[1]]][:, : min(SEGMENTS, self._most)]
        if not draw.size:
            return None
        low, high, own = ends[draw[0]], ends[draw[1]], classes[draw[0]]
        for _ in range(HALVINGS):
            middle = self._region.project((low + high) / 2)
            made, found = self._look(middle, deadline)
            if found is not None or deadline.passed():
                return found
            same = (made == own)[:, None]
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return None
