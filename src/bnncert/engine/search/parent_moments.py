r"""Moments of a node as the primal start of its children.

The moments of the parent, restricted to the variables that are still free, are averaged with those
of independent uniform signs, which are away from the boundary.  The sum of each table starts from a
normal density with the mean and the variance that these moments give it.  The start need not be
feasible: the solver needs fewer iterations from it than from the moments of random patterns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.relaxations.reduced.patterns import cut_start
from bnncert.engine.search.restrict import Restriction

#: The share of the parent in the start.
SHARE = 0.8

#: The least density at a point of a lattice, relative to the largest.
LEAST_DENSITY = 1e-2


@dataclass(frozen=True, eq=False)
class ParentMoments:
    """Moments of (1, x), x being the variables `free` of the whole problem."""

    free: IntArray
    moments: FloatArray

    @property
    def bytes(self) -> int:
        """The approximate memory."""
        return int(self.free.nbytes + self.moments.nbytes)

    def start(self, left: Restriction) -> tuple[FloatArray, list[FloatArray]] | None:
        """Return moments and distributions for a child; None if it has gates."""
        problem = left.problem
        if problem.gates.rows.shape[0] or not np.all(np.isin(left.free, self.free)):
            return None
        own = np.append(0, 1 + np.searchsorted(self.free, left.free))
        moments = SHARE * self.moments[np.ix_(own, own)] + (1 - SHARE) * np.eye(own.size)
        rows, points = problem.table.rows, problem.table.points
        mean = rows @ moments[0, 1:]
        square = np.einsum("ji,ik,jk->j", rows, moments[1:, 1:], rows, optimize=True)
        width = np.sqrt(np.maximum(1.0, square - mean**2))
        bell = np.exp(-0.5 * ((points - mean[:, None]) / width[:, None]) ** 2) + LEAST_DENSITY
        start = [bell / bell.sum(axis=1, keepdims=True), np.zeros_like(problem.gates.points)]
        if problem.cuts is not None:
            start.append(cut_start(problem.cuts, moments))
        return moments, start
