r"""A search for inputs at which two networks give different classes.

Points of the region are evaluated by both networks.  Between two points of different classes lies
a point at which the class changes; bisection of many such segments at once finds where A changes
its class, and at the points that it evaluates, B may give another class.  Networks that are nearly
equal differ near their decision boundaries, if anywhere.
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.methods import Progress
from bnncert.kernel.rules.product import Product
from bnncert.questions.compare.difference import Difference, settled_difference
from bnncert.regions import Region

#: Points of the first sample, segments of one round, and rounds at most.
SAMPLES, SEGMENTS, ROUNDS = 512, 256, 8

#: Multiply-adds of the points that are evaluated at once, between two looks at the clock, and the
#: fewest such points.
WORK, FEWEST = 5e8, 8

#: Halvings of a segment: float32 numbers have 24 bits.
HALVINGS = 24

#: Points at which the classes seem to differ that are examined in exact arithmetic, at most.
MOST_CANDIDATES = 8


class BoundarySearch:
    """Looks for a difference on a region.

    Parameters
    ----------
    product
        The two networks.
    region
        The inputs that count.
    seed
        The seed of the random points.

    Attributes
    ----------
    evaluated
        The number of points that were evaluated.
    one_class
        The class that A gave to all of them, or None if there were several.
    """

    def __init__(self, product: Product, region: Region, seed: int) -> None:
        self._product, self._region = product, region
        self._random = np.random.default_rng(seed)
        self.evaluated = 0
        networks = (product.first, product.second)
        layers = [layer for network in networks for layer in network.layers]
        # Convolutions are faster as such than as the sparse rows that they have in the product.
        self._apart = any(layer.convolution is not None for layer in layers)
        work = sum(int(layer.rows.nnz) for layer in layers)
        self._most = int(np.clip(WORK // max(1, work), FEWEST, SAMPLES))
        self._seen: set[int] = set()

    @property
    def one_class(self) -> int | None:
        """The class that A gave to all points, or None."""
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
            self.evaluated += batch.shape[0]
            self._seen.update(np.unique(one).tolist())
            for row in np.flatnonzero(one != two)[:MOST_CANDIDATES].tolist():
                found = settled_difference(
                    self._product.first, self._product.second, self._region, batch[row]
                )
                if found is not None:
                    return np.concatenate(parts), found
            if deadline.passed():
                break
        return np.concatenate(parts), None

    def _classes(self, points: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the classes of both networks, in floats."""
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
