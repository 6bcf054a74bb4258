r"""Proofs by branching on inputs: no grid point has some signs although real points have them.

At a node every input has a range.  With the terms of `kernel/branches.py`, a linear program
searches for a real point in these ranges,

    max t   s.t.   s_j (w_j.x + b_j) >= t len_j,   sum_i q_i <= B,   q_i >= cost_i(z_i),

where tangents replace the costs of a ball.  Inequalities of the region have no margin t if the
program has a point without it.  If t < 0, the multipliers close the node if the checker's own
arithmetic accepts them.  Otherwise the node is split at an input whose value is not on the grid,
or, in an L0 ball, which changes by a share of its range.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.kernel.branches import COSTLY, FIRST_CHANGE, LEAF, Branch, Branched, Ranges
from bnncert.kernel.container import RejectedError
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.section_reading import Clauses, joined
from bnncert.kernel.space import StatedGrid
from bnncert.proofs.clause_proof import integer_versions
from bnncert.regions.linear_program import HighsModel, LinearProgram

#: The largest number of nodes of one tree.
MOST_NODES = 1000

#: With a larger margin than this, a real point has the signs.
TIE = 1e-7

#: A value this share of a step away from the grid is off the grid, and an input of an L0 ball that
#: changes by this share of its range changes.
OFF_GRID = 1e-6

#: The largest denominator of a simple fraction.
SIMPLE = 48

#: Rounds of tangents to the squares of an L2 ball.
TANGENTS = 4


def prove_by_branching(
    geometry: Geometry, neurons: IntArray, signs: npt.NDArray[Any], deadline: Deadline
) -> Branched | None:
    """Return a proof that no input has the signs, or None if no small tree is found."""
    inequalities = -1 - np.arange(geometry.inequalities, dtype=np.int64)
    entries = np.concatenate([neurons.astype(np.int64), inequalities])
    wanted = np.concatenate([signs.astype(np.int64), np.ones_like(inequalities)])
    start = np.array([0, entries.size], dtype=np.int64)
    clause = Clauses(start, entries, wanted, np.zeros_like(entries))
    try:
        tree = _InputSearch(geometry, clause).run(deadline)
    except RejectedError:
        return None
    if tree is None:
        return None
    theta = np.array(tree.theta, dtype=np.int64).reshape(-1, entries.size + 1)
    used = np.flatnonzero(theta[:, :-1].any(axis=0) | (entries >= 0))
    kept = Clauses(np.array([0, used.size]), entries[used], wanted[used], np.zeros_like(used))
    columns = np.append(used, entries.size)
    nodes, places = (np.array(v, dtype=np.int64) for v in (tree.nodes, tree.places))
    return Branched(kept, nodes, places, theta[:, columns].reshape(-1))


def joined_trees(parts: list[Branched]) -> Branched:
    """Return the clauses of several lists with their trees."""
    nothing = np.zeros(0, dtype=np.int64)
    nodes, places, theta = (
        np.concatenate([nothing, *(getattr(part, name) for part in parts)])
        for name in ("nodes", "places", "theta")
    )
    return Branched(joined([part.clauses for part in parts]), nodes, places, theta)


@dataclass(eq=False)
class _MadeTree:
    """A tree in the form of the file."""

    nodes: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    theta: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    """One side of a branch; `place` is the number of the grid value below it."""

    branch: Branch
    upper: bool
    place: int = 0

    @property
    def node(self) -> int:
        """The branch in the form of the file."""
        return FIRST_CHANGE - self.branch.input if self.branch.on_change else self.branch.input


class _InputSearch:
    """Splits nodes depth first until multipliers close all of them."""

    def __init__(self, geometry: Geometry, clause: Clauses) -> None:
        self.geometry, self.clause = geometry, clause

    def run(self, deadline: Deadline) -> _MadeTree | None:
        """Return the tree, or None if it would be too large, or if a point is found."""
        tree = _MadeTree()
        stack: list[tuple[_Side, ...]] = [()]
        for _ in range(MOST_NODES):
            if not stack:
                return tree
            if deadline.passed():
                return None
            path = stack.pop()
            ranges = self._ranges(path)
            node = _InputNode(ranges, self.clause, self.geometry)
            theta = node.close(deadline)
            if theta is not None:
                tree.nodes.append(LEAF)
                tree.theta.append(theta)
                continue
            split = node.split()
            if split is None:
                return None
            tree.nodes.append(split.node)
            tree.places += [] if split.branch.on_change else [split.place]
            stack += [(*path, replace(split, upper=True)), (*path, split)]
        return None

    def _ranges(self, path: tuple[_Side, ...]) -> Ranges:
        ranges = Ranges([side.branch for side in path], self.clause, self.geometry)
        for side in path:
            ranges.enter(side.branch, upper=side.upper)
        return ranges


class _InputNode:
    """One node as a linear program in z = x - c, in units of the largest range."""

    def __init__(self, ranges: Ranges, clause: Clauses, geometry: Geometry) -> None:
        self.is_sign = clause.neuron >= 0
        self.ranges, self.grid = ranges, geometry.space.grid
        self.norm, self.weight_shift = ranges.norm, geometry.weight_shift
        point, weight = Fraction(1, 1 << ranges.shift), Fraction(1, 1 << geometry.weight_shift)
        self.low, self.high = (_floats(v, point) for v in (ranges.low, ranges.high))
        self.center = _floats(ranges.center, point)
        self.rows = _floats(ranges.rows, weight)
        self.constant = _floats(ranges.constant, weight * point)
        self.unit = float(np.abs([self.low, self.high]).max(initial=0.0)) or 1.0
        power = 2 if self.norm == "l2" else 1
        budget = ranges.radius if self.norm == "l0" else ranges.limit * point**power
        self.budget = float(budget)
        #: The point of the program: the inputs, and their costs.
        self.point: FloatArray | None = None
        self.cost: FloatArray = np.zeros(self.low.size)

    # -- closing ------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> list[int] | None:
        """Return multipliers that close the node, or None."""
        by_ball = [*[0] * self.rows.shape[0], int(self.norm in COSTLY)]
        if self.ranges.excludes(np.array(by_ball)):
            return by_ball
        tangents = [self.low, self.high, (self.low + self.high) / 2]
        for _ in range(TANGENTS if self.norm == "l2" else 1):
            found = self._solve(tangents, deadline, elastic=False)
            found = found or self._solve(tangents, deadline, elastic=True)
            if found is None:
                break
            margin, multipliers = found
            if margin <= TIE:
                accepted = self._accepted(multipliers)
                if accepted is not None or margin < -TIE:
                    return accepted
            assert self.point is not None
            tangents.append(self.point)
        return self._by_one_row()

    def _accepted(self, multipliers: FloatArray) -> list[int] | None:
        """Return integer multipliers that the checker accepts, or None."""
        for whole in (*_simple(multipliers), *integer_versions(multipliers)):
            if self.ranges.excludes(np.array(whole, dtype=np.int64)):
                return whole
        return None

    def _by_one_row(self) -> list[int] | None:
        """Return one inequality that the node violates on its own, or None."""
        most = np.maximum(self.rows * self.low, self.rows * self.high).sum(axis=1) + self.constant
        unit = np.zeros(most.size + 1, dtype=np.int64)
        for k in [*np.argsort(most)[:3].tolist(), most.size]:
            unit[:], unit[k] = 0, 1
            if self.ranges.excludes(unit):
                return [int(v) for v in unit]
        return None

    def _solve(
        self, tangents: list[FloatArray], deadline: Deadline, *, elastic: bool
    ) -> tuple[float, FloatArray] | None:
        """Return the largest margin and its multipliers, those of the ball last, or None.

        If `elastic`, the inequalities of the region and the ball also have the margin.
        """
        n, count = self.low.size, self.rows.shape[0]
        length = np.abs(self.rows).sum(axis=1) * self.unit
        length = np.where(length > 0, length, 1.0)
        scaled = self.rows * self.unit / length[:, None]
        margin = -(self.is_sign | elastic).astype(np.float64)[:, None]
        rows: list[Any] = [[scaled, np.zeros((count, n)), margin]]
        lower = [-self.constant / length]
        price = self.budget if self.budget > 0 else 1.0
        if self.norm is not None:
            rows.append([np.zeros((1, n)), -np.ones((1, n)) / price, [[-float(elastic)]]])
            lower.append(np.array([-self.budget / price]))
            slopes, offsets = self._costs(tangents)
            eye = sp.identity(n, format="csr")
            for slope, offset in zip(slopes, offsets, strict=True):
                part = sp.diags_array(-slope * self.unit)
                rows.append([part, eye, sp.csr_array((n, 1))])
                lower.append(offset)
        matrix = sp.vstack([sp.hstack([sp.csr_array(p) for p in row]) for row in rows]).tocsr()
        big = 4.0 * n + 4.0 + float(np.abs(np.concatenate(lower[:2])).max(initial=0.0))
        least, most = self._cost_bounds()
        program = LinearProgram(
            cost=np.concatenate([np.zeros(2 * n), [-1.0]]),
            matrix=matrix,
            row_lower=np.concatenate(lower),
            row_upper=np.full(matrix.shape[0], np.inf),
            lower=np.concatenate([self.low / self.unit, least, [-big]]),
            upper=np.concatenate([self.high / self.unit, most, [big]]),
            integer=np.zeros(2 * n + 1, dtype=bool),
        )
        answer = HighsModel(program, {"threads": 1}).solve(deadline)
        if answer.point is None or answer.multipliers is None:
            return None
        self.point, self.cost = answer.point[:n] * self.unit, answer.point[n : 2 * n]
        y = np.maximum(answer.multipliers[: count + (self.norm is not None)], 0.0)
        mu = float(y[count]) / price if self.norm in COSTLY else 0.0
        # In the checker mu has the unit of the weights.
        multipliers = np.append(y[:count] / length, mu * 2.0**self.weight_shift)
        return float(answer.point[-1]), multipliers

    def _costs(self, tangents: list[FloatArray]) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return slopes and offsets with q >= slope z + offset."""
        zero = np.zeros(self.low.size)
        if self.norm == "l1":
            return [zero + 1.0, zero - 1.0], [zero, zero]
        if self.norm == "l2":
            return [2 * a for a in tangents], [-a * a for a in tangents]
        with np.errstate(divide="ignore"):
            up = np.where(self.high > 0, 1 / self.high, 0.0)
            down = np.where(self.low < 0, 1 / self.low, 0.0)
        return [np.minimum(up, 1e30), np.maximum(down, -1e30)], [zero, zero]

    def _cost_bounds(self) -> tuple[FloatArray, FloatArray]:
        least, most = np.zeros(self.low.size), np.full(self.low.size, np.inf)
        if self.norm == "l0":
            least[self.ranges.changed | (self.low > 0) | (self.high < 0)] = 1.0
            most[:] = 1.0
        return least, most

    # -- splitting ----------------------------------------------------------------------------

    def split(self) -> _Side | None:
        """Return the lower side of a branch, or None if every input has one value."""
        if self.point is None:
            return None
        if self.norm == "l0":
            share = np.minimum(self.cost, 1 - self.cost)
            share = np.where(self.ranges.changed | (self.low == self.high), 0.0, share)
            if share.max(initial=0.0) > OFF_GRID:
                return _Side(
                    Branch(int(self.ranges.inputs[np.argmax(share)]), on_change=True), False
                )
        if self.grid is None:
            return None
        return self._split_value(self.grid)

    def _split_value(self, grid: StatedGrid) -> _Side | None:
        assert self.point is not None
        inputs, x = self.ranges.inputs.tolist(), self.point + self.center
        step = np.array([grid.step[i] for i in inputs])
        off = np.zeros(x.size)
        beside = []
        for k, i in enumerate(inputs):
            exact = Fraction(float(x[k]))
            below, above = (grid.beyond(i, exact, way) for way in (-1, 1))
            off[k] = min(x[k] - below, above - x[k]) / step[k]
            beside.append(below)
        open_ = self.high - self.low > step / 2
        if not open_.any():
            return None
        k = int(np.argmax(np.where(open_, off, -1.0)))
        if off[k] <= OFF_GRID:
            # The point is on the grid, with a tie or outside the ball: the widest range is halved.
            k = int(np.argmax(np.where(open_, (self.high - self.low) / step, -1.0)))
        i = inputs[k]
        place = grid.place(i, Fraction(beside[k]))
        # Both sides contain a value of the range.
        first = grid.place(i, Fraction(float(self.low[k] + self.center[k])))
        last = grid.place(i, Fraction(float(self.high[k] + self.center[k])))
        place = min(max(place, first), last - 1)
        below = grid.value(i, place)
        above = grid.beyond(i, Fraction(below), 1, strict=True)
        return _Side(Branch(i, below, above), upper=False, place=place)


def _simple(multipliers: FloatArray) -> list[list[int]]:
    """Return integers in the proportion of simple fractions: only these prove ties."""
    largest = float(multipliers.max(initial=0.0))
    if largest <= 0:
        return []
    shares = [Fraction(float(v) / largest).limit_denominator(SIMPLE) for v in multipliers]
    common = lcm(*(share.denominator for share in shares))
    return [[int(share * common) for share in shares]] if common < 2**40 else []


def _floats(numbers: npt.NDArray[np.object_], unit: Fraction) -> FloatArray:
    flat = [float(int(v) * unit) for v in numbers.reshape(-1)]
    return np.array(flat, dtype=np.float64).reshape(numbers.shape)
