r"""Inputs at which two networks give different classes, in exact arithmetic, and where to look.

First-layer sums of many inputs are computed in float64.  If the weights are integers and all inputs
are multiples of one power of two u with max sum |w_i x_i| < 2^53 u, these sums are exact; else a
sum within its rounding error of the threshold is computed again in rationals.  Sums above the first
layer are small integers, and the scores are compared with their rounding errors in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray, last_place
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods import Progress
from bnncert.kernel.rules.disagreement import Condition
from bnncert.kernel.rules.product import Product
from bnncert.model.layers import ROUNDOFF, ThresholdLayer
from bnncert.model.network import BATCH_FLOATS, MOST_TIE_CHOICES, Network
from bnncert.problem.objective import score_objective
from bnncert.problem.problem import Target
from bnncert.questions.compare.comparison_answer import Difference, InputsComparison
from bnncert.regions import Region

#: The class of an input whose signs or scores the network does not determine: sign(0) may be
#: either, or an irrational number is not known well enough.
UNDETERMINED = -1

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


# -- exact classes ------------------------------------------------------------------------


def exact_class(network: Network, point: npt.NDArray[Any] | tuple[Fraction, ...]) -> int:
    """Return the class of one input, in rational arithmetic, or UNDETERMINED."""
    lasts = [pattern[-1] for pattern in network.exact_patterns(point)]
    found = {network.output.exact_class(signs) for signs in lasts}
    # With as many patterns as this, some ways to decide ties may be missing.
    complete = len(lasts) < MOST_TIE_CHOICES
    only = found.pop() if len(found) == 1 and complete else None
    return UNDETERMINED if only is None else only


def exact_classes(network: Network, points: FloatArray, deadline: Deadline) -> IntArray:
    """Return the class of every row of `points`, or UNDETERMINED.

    Raises OutOfTimeError if the deadline passes.
    """
    widest = max((*(layer.size for layer in network.layers), network.inputs))
    chunk = max(1, BATCH_FLOATS // (8 * widest))
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, points.shape[0], chunk):
        deadline.check()
        parts.append(_classes(network, points[start : start + chunk], deadline))
    return np.concatenate(parts)


def _classes(network: Network, points: FloatArray, deadline: Deadline) -> IntArray:
    signs, sure = _first_signs(network.layers[0], points)
    for layer in network.layers[1:]:
        if float(layer.norm.max(initial=0.0)) >= 2**24:
            sure[:] = False
            break
        sums = layer.operator(np.float32).forward(signs)
        if layer.sign_zero == "either" and layer.tie is not None:
            sure &= ~np.any((sums == layer.on_from) & layer.tie, axis=1)
        plus = sums >= layer.threshold(np.float32)
        signs = np.where(plus, np.float32(1), np.float32(-1))
    found, decided = _first_best(network, signs) if sure.any() else (np.zeros(sure.size), sure)
    classes = np.asarray(found, dtype=np.int64)
    for row in np.flatnonzero(~(sure & decided)).tolist():
        deadline.check()
        classes[row] = exact_class(network, points[row])
    return classes


def _first_signs(layer: ThresholdLayer, points: FloatArray) -> tuple[Any, BoolArray]:
    """Return the signs of a first layer, and for which rows all of them are certain."""
    sums = layer.operator(np.float64).forward(points)
    low, high = layer.enclosure
    largest = np.abs(points).max(axis=1, initial=0.0)
    whole = np.issubdtype(layer.rows.dtype, np.integer)
    exact_below = np.ldexp(1.0, 53 + last_place(points)) if whole else 0.0
    if float(layer.norm.max(initial=0.0)) * largest.max() < exact_below:
        # Every partial sum is a multiple of the unit below 2^53 of it, so no sum is rounded.
        plus = sums > -high if layer.sign_zero == "minus" else sums >= -high
        sure = (sums > -low) | (sums < -high) | ((low == high) & (layer.sign_zero != "either"))
        return np.where(plus, np.float32(1), np.float32(-1)), np.all(sure, axis=1)
    terms = np.diff(layer.rows.indptr) + 2
    reach = np.outer(largest, layer.norm) + np.maximum(np.abs(low), np.abs(high))
    error = 1.01 * terms * ROUNDOFF * reach + 1e-300
    plus, minus = sums + low > error, sums + high < -error
    return np.where(plus, np.float32(1), np.float32(-1)), np.all(plus | minus, axis=1)


def _first_best(network: Network, signs: Any) -> tuple[IntArray, BoolArray]:
    """Return the first class with the highest score, and where it is certain."""
    output = network.output
    scores = signs.astype(np.float64) @ output.weights.T + output.bias
    best = np.argmax(scores, axis=1)
    arrays = (output.weights, output.bias)
    size = np.abs(output.weights).sum(axis=1) + np.abs(output.bias)
    exact = all(np.all(a == np.rint(a)) for a in arrays) and not np.any(output.error > 0)
    if exact and float(size.max()) < 2.0**52:
        return best, np.ones(best.size, dtype=bool)
    error = 1.01 * (signs.shape[1] + 2) * ROUNDOFF * size + output.error + 1e-300
    rows = np.arange(best.size)
    gaps = scores[rows, best][:, None] - scores - (error[best][:, None] + error)
    gaps[rows, best] = np.inf
    return best, np.all(gaps > 0, axis=1)


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
            parts.append(np.stack([exact_classes(network, batch, deadline) for network in (a, b)]))
        except OutOfTimeError:
            break
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
