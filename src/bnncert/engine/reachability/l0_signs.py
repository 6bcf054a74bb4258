r"""Feasibility check where at most k inputs may change, each by a real number.

The sets of inputs that change are searched depth first.  If the inputs I are chosen and others are
open, the left-hand side of an inequality s_j (w_j.x + b_j) >= 0 is at most its value at the centre
plus the gains of I and the k - |I| largest gains of open inputs.  Once k inputs are chosen, the
region is a box in these inputs, and a rational linear program decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.active_signs import ActiveSearch, Found
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.engine.reachability.polyhedron import polyhedral_feasibility
from bnncert.regions import Box, Region

#: The largest number of nodes of a search.
MOST_NODES = 400

#: Relative widening of sums, far above their rounding errors.
WIDEN = 1e-11


def l0_feasibility(pattern: SignPattern, region: Region, deadline: Deadline) -> Feasibility:
    """Look for a point of the ball with the pattern, or for a conflict."""
    return _ChangeSearch(pattern, region).decide(region.center, deadline)


class _ChangeSearch(ActiveSearch):
    """Searches the inputs that change."""

    def __init__(self, pattern: SignPattern, region: Region) -> None:
        super().__init__(pattern)
        self._region, self._changes = region, int(region.radius)

    def run(self, active: IntArray, deadline: Deadline) -> Found:
        """Search a point that has the signs at some places of the pattern."""
        part = self.pattern.part(active)
        sums = _Gains.of(part, self._region)
        blamed = np.zeros(active.size, dtype=bool)
        open_: list[SignArray] = [np.zeros(sums.inputs.size, dtype=np.int8)]
        undecided = False
        for _ in range(MOST_NODES):
            if not open_:
                return Found() if undecided else Found(blamed=active[np.flatnonzero(blamed)])
            if deadline.passed():
                return Found()
            node = open_.pop()
            most = sums.most(node, self._changes)
            if np.any(most < 0):
                blamed[int(np.argmin(most))] = True
                continue
            left = self._changes - np.count_nonzero(node > 0)
            if left == 0 or not np.any(node == 0):
                check = polyhedral_feasibility(part, self._box(sums.inputs[node > 0]), deadline)
                if check.exact_point is not None:
                    return Found(point=check.exact_point)
                if check.conflict is None:
                    undecided = True
                else:
                    blamed[check.conflict] = True
                continue
            open_.extend(sums.split(node))
        return Found()

    def _box(self, chosen: IntArray) -> Box:
        lo, hi = np.array(self._region.middle), np.array(self._region.middle)
        lo[chosen], hi[chosen] = self._region.lo[chosen], self._region.hi[chosen]
        return Box(lo, hi)


@dataclass(frozen=True, eq=False)
class _Gains:
    """The gain of each input in each inequality, and the values at the centre, rounded up.

    A node has 1 for inputs that may change, -1 for inputs that may not, and 0 for open ones.
    """

    inputs: IntArray
    value: FloatArray
    gain: FloatArray

    @staticmethod
    def of(pattern: SignPattern, region: Region) -> _Gains:
        """Return the sums of the neurons of a pattern."""
        signs, bias = pattern.signs.astype(np.float64), pattern.bias
        rows = pattern.layer.weights[pattern.neurons].astype(np.float64)
        inputs = np.unique(rows.indices)
        matrix = signs[:, None] * rows[:, inputs].toarray()
        middle, lo, hi = region.middle[inputs], region.lo[inputs], region.hi[inputs]
        size = np.abs(matrix) @ np.maximum(np.abs(lo), np.abs(hi)) + np.abs(bias)
        value = matrix @ middle + signs * bias + WIDEN * size + 1e-300
        gain = np.maximum(matrix * (hi - middle), matrix * (lo - middle))
        return _Gains(inputs, value, gain)

    def most(self, node: SignArray, changes: int) -> FloatArray:
        """Return upper bounds of the left-hand sides in a node."""
        chosen = self.gain[:, node > 0].sum(axis=1)
        left = changes - int(np.count_nonzero(node > 0))
        best = -np.sort(-self.gain[:, node == 0], axis=1)[:, :left]
        return np.asarray(self.value + chosen + best.sum(axis=1))

    def split(self, node: SignArray) -> list[SignArray]:
        """Return the node without and with the input of the largest gain in the worst row."""
        short = np.argmin(self.value + self.gain[:, node > 0].sum(axis=1))
        i = int(np.argmax(np.where(node == 0, self.gain[short], -1.0)))
        halves = np.stack([node, node])
        halves[:, i] = (-1, 1)
        return list(halves)
