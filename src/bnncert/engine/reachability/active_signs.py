"""Feasibility checks by a search for points that have some of the signs of a pattern.

The active signs are first those that a starting point violates.  Signs that a found point violates
become active, too.  If no point has the active signs, they are a conflict of few neurons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern

#: A point in floats or in rationals.
Place: TypeAlias = FloatArray | Sequence[Fraction]

#: The largest number of rounds in which signs become active.
MOST_ROUNDS = 30

#: Conflicts of at most this many neurons are made smaller by leaving out one neuron at a time.
MOST_SHRUNK = 12


@dataclass(frozen=True, eq=False)
class Found:
    """A point that has the active signs, or neurons whose signs exclude it, or neither."""

    point: Place | None = None
    blamed: IntArray | None = None


class ActiveSearch(ABC):
    """Searches points that have some of the signs of a pattern."""

    def __init__(self, pattern: SignPattern) -> None:
        self.pattern = pattern

    @abstractmethod
    def run(self, active: IntArray, deadline: Deadline) -> Found:
        """Search a point that has the signs at some places of the pattern."""

    def wrong(self, point: Place) -> BoolArray:
        """Return which neurons have the other sign at a point, exactly.

        A neuron whose sign is undetermined there may have the wanted sign, so it is not wrong.
        """
        signs = self.pattern.layer.exact_signs(point)[self.pattern.neurons]
        return np.asarray(signs == -self.pattern.signs)

    def decide(self, start: FloatArray, deadline: Deadline) -> Feasibility:
        """Look for a point with the whole pattern, or for a conflict."""
        active = np.flatnonzero(self.wrong(start))
        for _ in range(MOST_ROUNDS):
            found = self.run(active, deadline)
            if found.blamed is not None and found.blamed.size:
                return Feasibility(conflict=self._shrunk(found.blamed, deadline))
            if found.point is None:
                break
            wrong = np.flatnonzero(self.wrong(found.point))
            if not wrong.size:
                return Feasibility.at([Fraction(v) for v in found.point])
            active = np.union1d(active, wrong)
        return Feasibility()

    def _shrunk(self, blamed: IntArray, deadline: Deadline) -> IntArray:
        """Leave out neurons one at a time, if the others still conflict."""
        if blamed.size > MOST_SHRUNK:
            return blamed
        for neuron in blamed.tolist():
            if neuron not in blamed or blamed.size == 1:
                continue
            found = self.run(blamed[blamed != neuron], deadline)
            if found.blamed is not None and found.blamed.size:
                blamed = found.blamed
        return blamed
