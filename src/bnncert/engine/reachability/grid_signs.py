r"""Feasibility check on a grid.

Grid points are searched depth first.  A node is a range of grid values for every input.  If M_j is
the largest value of the left-hand side of an inequality s_j (w_j.x + b_j) >= 0 in a node, the
inequality restricts input i to values with

    s_j w_ji x_i  >=  max (s_j w_ji x_i) - M_j,

and a norm ball restricts the distance of an input from the centre, given the least distances of the
others.  Floating-point bounds are widened by their rounding errors; single points are decided
exactly.  Conflicts that are found in this way have no Farkas multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.active_signs import ActiveSearch, Found
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.regions import Region
from bnncert.regions.grid import GridValues

#: The largest number of nodes of a search, and of rounds of tightening in a node.
MOST_NODES, TIGHTENINGS = 400, 20

#: Relative widening of bounds, far above the rounding errors of sums of a few thousand terms.
WIDEN = 1e-11


def grid_feasibility(
    pattern: SignPattern, region: Region, guide: FloatArray | None, deadline: Deadline
) -> Feasibility:
    """Look for a grid point of the region with the pattern, or for a conflict.

    `guide` is a real point near which grid points are tried first.
    """
    start = region.on_grid(region.center[None, :])[0]
    return _GridSearch(pattern, region, guide).decide(start, deadline)


class _GridSearch(ActiveSearch):
    """Searches grid points that have some of the signs of a pattern."""

    def __init__(self, pattern: SignPattern, region: Region, guide: FloatArray | None) -> None:
        assert region.values is not None
        super().__init__(pattern)
        self._region = region
        self.values: GridValues = region.values
        signs = pattern.signs.astype(np.float64)
        weights = sp.csr_array(pattern.layer.weights[pattern.neurons]).astype(np.float64)
        self.constant = signs * pattern.bias_in(region)
        matrix, right = region.inequalities
        self._extra: Any = sp.csr_array(-matrix)
        self.constant = np.concatenate([self.constant, right])
        self.rows: Any = sp.csr_array(sp.vstack([sp.diags_array(signs) @ weights, self._extra]))
        self.low = self.values.first_from(region.lo)
        self.high = self.values.last_until(region.hi)
        self.middle = region.middle
        self.cost = _Cost.of(region)
        self.central = self._nearest(self.middle)
        self._guide = self.central if guide is None else self._nearest(guide)

    def _nearest(self, point: FloatArray) -> FloatArray:
        """Return the places of the nearest grid values, decided by their distances."""
        middle = self.values.nearest(point)
        tried = [np.clip(middle + k, self.low, self.high) for k in (0.0, -1.0, 1.0)]
        gaps = np.abs(np.array([self.values.at(t) - point for t in tried]))
        return np.asarray(np.choose(np.argmin(gaps, axis=0), tried))

    def run(self, active: IntArray, deadline: Deadline) -> Found:
        """Search a point that has the signs of the active neurons."""
        count = self.pattern.neurons.size
        extra = np.arange(count, count + self._extra.shape[0])
        node = _Node.of(self, np.concatenate([active, extra]))
        open_, blamed = [node], np.zeros(count + extra.size, dtype=bool)
        for _ in range(MOST_NODES):
            if not open_:
                return Found(blamed=np.flatnonzero(blamed[:count]))
            if deadline.passed():
                return Found()
            node = open_.pop()
            if not node.tighten(blamed):
                continue
            point = self.values.at(np.clip(self._guide, node.low, node.high))
            if node.is_point or node.is_likely(point):
                wrong = np.intersect1d(np.flatnonzero(self.wrong(point)), active)
                if not wrong.size and self._region.contains(point):
                    return Found(point=point)
            if not node.is_point:
                open_.extend(node.split(self._guide))
            elif wrong.size:
                blamed[wrong[0]] = True
        return Found()


@dataclass(frozen=True, eq=False)
class _Cost:
    """The constraint of a ball: the sum of the costs |x_i - c_i|^power is at most `budget`.

    With the power 0, the cost of every input that differs from the centre is 1.
    """

    power: int
    budget: float

    @staticmethod
    def of(region: Region) -> _Cost | None:
        """Return the constraint of a ball; other regions are boxes with inequalities."""
        if region.norm == "l0":
            return _Cost(0, region.radius)
        if region.norm not in ("l1", "l2"):
            return None
        power = 2 if region.norm == "l2" else 1
        return _Cost(power, region.radius**power * (1 + WIDEN) + 1e-300)


@dataclass(eq=False)
class _Node:
    """A range of grid values for every input of the inequalities; the others stay central."""

    search: _GridSearch
    rows: Any
    constant: FloatArray
    numbers: IntArray
    low: FloatArray
    high: FloatArray

    @staticmethod
    def of(search: _GridSearch, active: IntArray) -> _Node:
        """Return the node of all grid points, for some of the inequalities."""
        rows = sp.csr_array(search.rows[active])
        low, high = search.central.copy(), search.central.copy()
        used = np.unique(rows.indices)
        low[used], high[used] = search.low[used], search.high[used]
        return _Node(search, rows, search.constant[active], active, low, high)

    @property
    def is_point(self) -> bool:
        """Whether every input has one value."""
        return bool(np.all(self.low == self.high))

    def is_likely(self, point: FloatArray) -> bool:
        """Whether a point satisfies the inequalities, in floating point."""
        return bool(np.all(self.rows @ point + self.constant >= 0))

    def split(self, guide: FloatArray) -> list[_Node]:
        """Return two halves of the node; the last one is searched first."""
        i = int(np.argmax((self.high - self.low) * self.search.values.step))
        at = float(np.clip(guide[i], self.low[i], self.high[i] - 1))
        low, high = self.low.copy(), self.high.copy()
        high[i], low[i] = at, at + 1
        halves = [replace(self, high=high), replace(self, low=low)]
        return halves if guide[i] > at else halves[::-1]

    def tighten(self, blamed: BoolArray) -> bool:
        """Shrink the ranges, and mark the inequalities used; return False if a range is empty."""
        for _ in range(TIGHTENINGS):
            before = float((self.high - self.low).sum())
            if not (self._by_rows(blamed) and self._by_cost()):
                return False
            if float((self.high - self.low).sum()) == before:
                break
        return True

    def _by_rows(self, blamed: BoolArray) -> bool:
        values, rows = self.search.values, self.rows
        lo, hi = values.at(self.low), values.at(self.high)
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        a, column = rows.data, rows.indices
        most = np.where(a > 0, a * hi[column], a * lo[column])
        count = rows.shape[0]
        size = np.bincount(owner, np.abs(a) * np.maximum(np.abs(lo), np.abs(hi))[column], count)
        room = np.bincount(owner, most, count) + self.constant
        room = room + WIDEN * (size + np.abs(self.constant)) + 1e-300
        if np.any(room < 0):
            blamed[self.numbers[np.flatnonzero(room < 0)[:1]]] = True
            return False
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            move = np.where(a != 0, room[owner] / np.abs(a) * (1 + WIDEN), np.inf)
        width = WIDEN * np.maximum(np.abs(lo), np.abs(hi))[column]
        raised = np.where(a > 0, hi[column] - move - width, -np.inf)
        lowered = np.where(a < 0, lo[column] + move + width, np.inf)
        used = (raised > lo[column]) | (lowered < hi[column])
        if not used.any():
            return True
        blamed[self.numbers[np.unique(owner[used])]] = True
        np.maximum.at(lo, column, raised)
        np.minimum.at(hi, column, lowered)
        return self._within(lo, hi)

    def _by_cost(self) -> bool:
        cost, search = self.search.cost, self.search
        if cost is None:
            return True
        nearest = search.values.at(np.clip(search.central, self.low, self.high))
        if not cost.power:
            stays = nearest == search.middle
            more = cost.budget - float(np.count_nonzero(~stays))
            if more == 0:
                self.low = np.where(stays, search.central, self.low)
                self.high = np.where(stays, search.central, self.high)
            return more >= 0
        least = np.abs(nearest - search.middle) ** cost.power
        left = cost.budget - float(least.sum())
        if left < -WIDEN * cost.budget:
            return False
        reach = (np.maximum(left, 0.0) + least + WIDEN * cost.budget) ** (1 / cost.power)
        reach = reach * (1 + WIDEN) + WIDEN * np.abs(search.middle)
        return self._within(search.middle - reach, search.middle + reach)

    def _within(self, lo: FloatArray, hi: FloatArray) -> bool:
        """Keep the grid values between lo and hi; False if an input has none."""
        values = self.search.values
        self.low = np.maximum(self.low, values.first_from(lo))
        self.high = np.minimum(self.high, values.last_until(hi))
        return bool(np.all(self.low <= self.high))
