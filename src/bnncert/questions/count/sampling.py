r"""An estimate of the share of changed points, from uniform random points of the region.

For x changed points among n, the Clopper-Pearson interval at level 1 - a goes from the a/2 quantile
of the beta distribution B(x, n - x + 1) to the 1 - a/2 quantile of B(x + 1, n - x).
"""

from __future__ import annotations

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.questions.count.count_answer import ShareEstimate
from bnncert.questions.count.count_ties import TieBreaking
from bnncert.questions.count.grid_points import GridPoints, change_counts
from bnncert.questions.count.upper_layers import CHANGED, OPEN, LayersAbove

#: Points that are evaluated at once.
CHUNK = 256


def random_places(points: GridPoints, generator: np.random.Generator, count: int) -> IntArray:
    """Return the places of uniform random points, one in each row.

    In an L0 ball, the inputs are decided one after the other: with j changes left of which the
    inputs from i on have e_0(i) + .. + e_j(i) possible combinations, input i changes with the
    share of these combinations in which it does.
    """
    sizes = np.array([v.size for v in points.values])
    drawn = generator.random((count, sizes.size))
    places: IntArray = np.floor(drawn * sizes).astype(np.int64)
    if points.changes is None:
        return np.asarray(np.minimum(places, sizes - 1))
    assert points.home is not None
    shares = _change_shares((sizes - 1).tolist(), points.changes)
    left = np.full(count, points.changes)
    drawn = generator.random((count, sizes.size))
    for i, home in enumerate(points.home.tolist()):
        is_changed = drawn[:, i] < shares[i, left]
        left = left - is_changed
        others = np.floor(generator.random(count) * (sizes[i] - 1)).astype(np.int64)
        others = np.minimum(others, max(0, sizes[i] - 2))
        places[:, i] = np.where(is_changed, others + (others >= home), home)
    return places


def _change_shares(others: list[int], most: int) -> FloatArray:
    """Return for each input and number of changes left the probability that the input changes."""
    shares = np.zeros((len(others), most + 1))
    counts = [1] + [0] * most
    for i in range(len(others) - 1, -1, -1):
        sums = np.cumsum(np.array(counts, dtype=object)).tolist()
        for left in range(1, most + 1):
            changed = others[i] * sums[left - 1]
            # Integers of any size are divided with correct rounding.
            shares[i, left] = changed / (changed + sums[left])
        for j in range(most, 0, -1):
            counts[j] += others[i] * counts[j - 1]
    assert counts == change_counts(others, most)
    return shares


class Sampling:
    """Draws and evaluates points in exact arithmetic."""

    def __init__(self, problem: Problem, points: GridPoints, circuit: LayersAbove) -> None:
        self._network: Network = problem.network
        self._points, self._circuit = points, circuit
        self._break_ties = TieBreaking(problem.network, problem.targets)
        #: A changed point, if one was met.
        self.witness: FloatArray | None = None

    def __call__(
        self, seed: int, samples: int, confidence: float, deadline: Deadline
    ) -> ShareEstimate | None:
        """Return the estimate from `samples` points, or from those until the deadline."""
        generator = np.random.default_rng(seed)
        drawn = changed = undecided = 0
        while drawn < samples and not deadline.passed():
            chunk = random_places(self._points, generator, min(CHUNK, samples - drawn))
            for places in chunk:
                if deadline.passed():
                    break
                verdict = self.verdict(self._point(places))
                drawn += 1
                changed += verdict == CHANGED
                undecided += verdict == OPEN
                if verdict == CHANGED and self.witness is None:
                    self.witness = self._point(places)
        if not drawn:
            return None
        low, high = clopper_pearson(drawn, changed, undecided, confidence)
        return ShareEstimate(drawn, changed, undecided, confidence, low, high)

    def _point(self, places: IntArray) -> FloatArray:
        return np.array([v[k] for v, k in zip(self._points.values, places.tolist(), strict=True)])

    def verdict(self, point: FloatArray) -> int:
        """Return whether the class of a point changes."""
        first = self._network.layers[0].exact_signs(point)
        known = self._circuit.propagate(np.where(np.abs(first) == 1, first, 0).astype(np.int8))
        return known.verdict if known.verdict != OPEN else self._break_ties(first)


def clopper_pearson(
    samples: int, changed: int, undecided: int, confidence: float
) -> tuple[float, float]:
    """Return the interval of the share; undecided points count as unchanged, then as changed."""
    from scipy.stats import beta

    tail, most = (1 - confidence) / 2, changed + undecided
    low = 0.0 if changed == 0 else float(beta.ppf(tail, changed, samples - changed + 1))
    high = 1.0 if most == samples else float(beta.ppf(1 - tail, most + 1, samples - most))
    return low, high
