"""Regions of few grid points, decided by evaluating the network at each of them.

First-layer sums are computed in floating point.  A sign counts if the sum is farther from the
threshold than its rounding error; points with other sums are evaluated in exact arithmetic.  Sums
of small multiples of a power of two have no error.  The layers above are exact in floats, because
their sums are small integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray
from bnncert.deadline import Deadline
from bnncert.model.network import MOST_TIE_CHOICES
from bnncert.problem import Problem
from bnncert.questions.explain.domain import Domain
from bnncert.regions.support import rounding_error, same_places

#: The most points, and the most multiplications for all of them.
MOST_POINTS, MOST_WORK = 2**16, 2e9

#: Points of one batch, and points that are evaluated in exact arithmetic, at most.
BATCH, MOST_EXACT = 2048, 500

#: Sums of multiples of UNIT that are smaller than LARGEST_EXACT are exact in float64.
UNIT, LARGEST_EXACT = 2.0**-20, 2.0**31


class Enumeration:
    """Decides regions of few grid points of one question."""

    def __init__(self, problem: Problem, domain: Domain, deadline: Deadline) -> None:
        self._network, self._targets = problem.network, problem.targets
        self._domain, self._deadline = domain, deadline
        whole = domain.everything
        self._values = whole.values
        if whole.values is not None:
            self._low = whole.values.nearest(whole.lo)
            self._counts = whole.values.nearest(whole.hi) - self._low + 1
        first = problem.network.layers[0]
        size = np.maximum(np.abs(whole.lo), np.abs(whole.hi))
        sizes = same_places(first.weights, np.abs(first.weights.data, dtype=np.float64))
        reach = np.asarray(sizes @ size)
        self._is_exact = _is_coarse(first.weights.data, 1.0) and self._has_coarse_values()
        self._is_exact &= bool(np.all(reach < LARGEST_EXACT))
        #: Twice the rounding error of a sum.
        self._error = 0.0 * reach if self._is_exact else 2 * rounding_error(first.weights, reach)
        work = sum(layer.weights.nnz for layer in problem.network.layers)
        self._most = min(MOST_POINTS, MOST_WORK / max(work, 1))
        # If sign(0) may be either, sums above the first layer may also be undetermined.
        self._is_exact_above = all(
            layer.sign_zero != "either" and (layer is first or layer.norm.max(initial=0.0) < 2**24)
            for layer in self._network.layers
        )

    def _has_coarse_values(self) -> bool:
        """Whether all values of inputs are multiples of UNIT."""
        values, domain = self._values, self._domain
        if values is None:
            return False
        numbers = (domain.image, domain.lo, domain.hi, values.step, values.origin)
        return all(_is_coarse(part, UNIT) for part in numbers)

    def fits(self, free: BoolArray) -> bool:
        """Whether the region of free inputs has few points."""
        if self._values is None or not self._is_exact_above:
            return False
        # The product itself may be too large for a float.
        return bool(np.log2(self._counts[free]).sum() <= np.log2(max(self._most, 0.5)) + 1e-9)

    def violation(self, free: BoolArray) -> tuple[bool, FloatArray | None]:
        """Return whether the region is decided, and a point with another class if it has one."""
        seen: set[bytes] = set()
        doubtful = 0
        for points in self._batches(free):
            if self._deadline.passed():
                return False, None
            signs, sure = self._last_signs(points)
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
        assert self._values is not None
        inputs = np.flatnonzero(free)
        shape = tuple(int(n) for n in self._counts[inputs])
        total = int(np.prod(shape, dtype=np.int64))
        home = self._values.nearest(self._domain.image)
        for start in range(0, total, BATCH):
            numbers = np.arange(start, min(start + BATCH, total))
            places = np.repeat(home[None, :], numbers.size, axis=0)
            if inputs.size:
                digits = np.stack(np.unravel_index(numbers, shape), axis=1)
                places[:, inputs] = self._low[inputs] + digits
            yield self._values.at(places)

    def _last_signs(self, points: FloatArray) -> tuple[npt.NDArray[Any], BoolArray]:
        """Return the last layer's signs, and for which points rounding cannot change them."""
        first, *others = self._network.layers
        sums = first.operator(np.float64).forward(points)
        low, high = first.enclosure
        on, off = sums + low > self._error, sums + high < -self._error
        if self._is_exact:
            tied = (sums + low == 0) & (low == high)
            on, off = (on | tied, off) if first.sign_zero == "plus" else (on, off | tied)
        signs: npt.NDArray[Any] = np.where(on, np.float32(1), np.float32(-1))
        for layer in others:
            value = layer.operator(np.float32).forward(signs)
            above = value >= layer.threshold(np.float32)
            signs = np.where(above, np.float32(1), np.float32(-1))
        return signs, np.asarray(np.all(on | off, axis=1))

    def _exactly(self, point: FloatArray) -> bool | None:
        """Return whether a point has another class, None if that is unknown."""
        patterns = list(self._network.exact_patterns(point))
        answers = [t.is_violated(p[-1]) for p in patterns for t in self._targets]
        if any(answers):
            return True
        if not patterns or len(patterns) >= MOST_TIE_CHOICES or None in answers:
            return None
        return False


def _is_coarse(numbers: npt.NDArray[Any], unit: float) -> bool:
    """Whether all numbers are multiples of a power of two."""
    scaled = np.asarray(numbers, dtype=np.float64) / unit
    return bool(np.all(scaled == np.rint(scaled)))
