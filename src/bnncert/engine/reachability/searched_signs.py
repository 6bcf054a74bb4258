r"""Feasibility checks by a search for points that have some of the signs of a pattern.

The active signs are first those that a starting point violates.  Signs that a found point violates
become active, too.  If no point has the active signs, they are a conflict of few neurons.

On a grid, grid points are searched depth first.  A node is a range of grid values for every input.
If M_j is the largest value of the left-hand side of an inequality s_j (w_j.x + b_j) >= 0 in a node,
the inequality restricts input i to values with

    s_j w_ji x_i  >=  max (s_j w_ji x_i) - M_j,

and a norm ball restricts the distance of an input from the centre, given the least distances of the
others.  Floating-point bounds are widened by their rounding errors; single points are decided
exactly.  Conflicts that are found in this way have no Farkas multipliers.

Where at most k inputs may change, each by a real number, the sets of inputs that change are
searched depth first.  If the inputs I are chosen and others are open, the left-hand side of an
inequality s_j (w_j.x + b_j) >= 0 is at most its value at the centre plus the gains of I and the k -
|I| largest gains of open inputs.  Once k inputs are chosen, the region is a box in these inputs,
and a rational linear program decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.reachability.feasibility import Feasibility, SignPattern
from bnncert.engine.reachability.polyhedron import polyhedral_feasibility
from bnncert.regions import Box, Region
from bnncert.regions.grid import GridValues

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


#: The largest number of nodes of a search, and of rounds of tightening in a node of grid values.
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
        node = _GridNode.of(self, np.concatenate([active, extra]))
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
class _GridNode:
    """A range of grid values for every input of the inequalities; the others stay central."""

    search: _GridSearch
    rows: Any
    constant: FloatArray
    numbers: IntArray
    low: FloatArray
    high: FloatArray

    @staticmethod
    def of(search: _GridSearch, active: IntArray) -> _GridNode:
        """Return the node of all grid points, for some of the inequalities."""
        rows = sp.csr_array(search.rows[active])
        low, high = search.central.copy(), search.central.copy()
        used = np.unique(rows.indices)
        low[used], high[used] = search.low[used], search.high[used]
        return _GridNode(search, rows, search.constant[active], active, low, high)

    @property
    def is_point(self) -> bool:
        """Whether every input has one value."""
        return bool(np.all(self.low == self.high))

    def is_likely(self, point: FloatArray) -> bool:
        """Whether a point satisfies the inequalities, in floating point."""
        return bool(np.all(self.rows @ point + self.constant >= 0))

    def split(self, guide: FloatArray) -> list[_GridNode]:
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
