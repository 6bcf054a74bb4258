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
from bnncert.equivalence.difference import Difference, settled_difference
from bnncert.methods import Progress
from bnncert.network.product import Product
from bnncert.regions import Region

#: Points of the first sample, segments of one round, and rounds at most.
SAMPLES, SEGMENTS, ROUNDS = 512, 256, 8

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
        self._seen: set[int] = set()

    @property
    def one_class(self) -> int | None:
        """The class that A gave to all points, or None."""
        return next(iter(self._seen)) if len(self._seen) == 1 else None

    def run(
        self, points: FloatArray | None, deadline: Deadline, progress: Progress | None
    ) -> Difference | None:
        """Return a difference, or None if none is found before the deadline."""
        region = self._region
        pool = [region.center[None, :], region.sample(self._random, SAMPLES)]
        corners = np.where(self._random.random((SAMPLES, region.size)) < 0.5, region.lo, region.hi)
        pool.append(region.project(corners))
        if points is not None and points.size:
            chosen = self._random.permutation(points.shape[0])[: 4 * SAMPLES]
            pool.insert(1, region.project(points[np.sort(chosen)]))
        ends = np.concatenate(pool)
        classes, found = self._look(ends)
        for number in range(ROUNDS):
            if found is not None or self.one_class is not None or deadline.passed():
                break
            if progress is not None:
                progress("decision boundaries", number, ROUNDS)
            found = self._round(ends, classes, deadline)
        return found

    def _look(self, points: FloatArray) -> tuple[IntArray, Difference | None]:
        """Return the classes that A gives, in floats, and a difference at one of the points."""
        network, count = self._product.network, self._product.first.classes
        scores = network.evaluate(points)
        self.evaluated += points.shape[0]
        one, two = scores[:, :count].argmax(axis=1), scores[:, count:].argmax(axis=1)
        self._seen.update(np.unique(one).tolist())
        for row in np.flatnonzero(one != two)[:MOST_CANDIDATES].tolist():
            found = settled_difference(
                self._product.first, self._product.second, self._region, points[row]
            )
            if found is not None:
                return one, found
        return one, None

    def _round(self, ends: FloatArray, classes: IntArray, deadline: Deadline) -> Difference | None:
        """Bisect random segments between points of different classes."""
        draw = self._random.integers(0, ends.shape[0], (2, 4 * SEGMENTS))
        draw = draw[:, classes[draw[0]] != classes[draw[1]]][:, :SEGMENTS]
        if not draw.size:
            return None
        low, high, own = ends[draw[0]], ends[draw[1]], classes[draw[0]]
        for _ in range(HALVINGS):
            if deadline.passed():
                return None
            middle = self._region.project((low + high) / 2)
            made, found = self._look(middle)
            if found is not None:
                return found
            same = (made == own)[:, None]
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return None
