r"""A ball as a budget: the least cost of changing the sign of a first-layer neuron.

Let neuron j have the sign s at the centre c, with s (w_j.c + b_j) >= g_j > 0.  At an input x with
the other sign, |w_j.(x - c)| >= g_j.  Over the inputs that neuron j reads,

    L1:  |x - c|_1 >= g_j / max_k |w_jk|,          L2:  |x - c|_2^2 >= g_j^2 / |w_j|_2^2,
    L0:  the number of inputs, those with the largest effect first, that reach g_j.

On a grid, a neuron with one input needs the first grid value beyond its threshold.

For neurons that read disjoint inputs these lengths add up to at most r, or r^2 for L2, and the
numbers of inputs to at most k for L0.  The cost of a flip is its share of that, in units of 2^-20
and rounded down: the costs of all flips of a pattern that occurs add up to at most 2^20.  Rounding
can only allow more patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray
from bnncert.arrays import SignArray as Signs
from bnncert.kernel.geometry import BITS, Geometry, dot
from bnncert.kernel.sparse import Integers

#: The whole budget in units of cost.
UNITS = 2**20

#: The largest number of classes of costs; each member has the least cost of its class.
MOST_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Flips:
    """The sign of each variable at the centre (`home`), and the cost of the other sign.

    Costs are integers of at most 2 UNITS, so that float64 sums of them are exact.  If the region is
    not such a budget, all costs are 0, for which the bounds below are also valid.
    """

    home: Signs
    cost: FloatArray

    @staticmethod
    def of(geometry: Geometry, neurons: Integers) -> Flips:
        """Return the costs of first-layer neurons."""
        home, cost = np.ones(neurons.size, dtype=np.int8), np.zeros(neurons.size)
        used = geometry.rows[0].take(neurons).columns
        if geometry.space.norm is None or np.unique(used).size != used.size:
            return Flips(home, cost)
        at_centre = dot(geometry.rows, geometry.center)
        for place, j in enumerate(neurons.tolist()):
            row = slice(*geometry.rows[0].start[j : j + 2].tolist())
            weights = list(map(abs, _weights(geometry, row)))
            low, high = at_centre[j] + geometry.low[j], at_centre[j] + geometry.high[j]
            # The bound of the enclosed bias that makes the flip easier.
            home[place] = 1 if low + high >= 0 else -1
            gap = max(low if low + high >= 0 else -high, 0)
            if geometry.space.norm == "l0":
                cost[place] = _cost_of_changes(geometry, j, int(home[place]), gap) if gap else 0
                continue
            gap_to_threshold = gap
            reach = max(weights, default=0) * geometry.radius
            if geometry.space.norm == "l2":
                gap, reach = gap**2, sum(w * w for w in weights) * geometry.radius**2
            if gap and geometry.space.grid is not None and len(weights) == 1:
                cost[place] = _cost_on_grid(geometry, j, int(home[place]), gap_to_threshold)
            elif gap:
                cost[place] = min(gap * UNITS // reach, 2 * UNITS) if reach else 2 * UNITS
        return Flips(home, cost)

    def left(self, nodes: Signs) -> FloatArray:
        """Return the rest of the budget of each node; a node with less than 0 cannot occur."""
        return np.asarray(UNITS - (nodes == -self.home) @ self.cost)

    def restricted(self, nodes: Signs) -> Signs:
        """Return the nodes, in which signs are fixed whose flip exceeds the budget."""
        beyond = (nodes == 0) & (self.cost > self.left(nodes)[:, None])
        return np.where(beyond, self.home, nodes)

    def implied(self) -> BoolArray:
        """Return the pairs of literals that the budget excludes by itself."""
        both = self.cost[:, None] + self.cost > UNITS
        np.fill_diagonal(both, False)
        size = self.home.size
        table = np.zeros((2 * size, 2 * size), dtype=bool)
        flip = 2 * np.arange(size) + (self.home > 0)
        table[np.ix_(flip, flip)] = both
        return table

    def most(self, nodes: Signs) -> Integers:
        """Return the largest number of further flips of each node: the cheapest ones."""
        costs = np.sort(np.where(nodes == 0, self.cost, np.inf), axis=1)
        return np.asarray((np.cumsum(costs, axis=1) <= self.left(nodes)[:, None]).sum(axis=1))


def _cost_of_changes(geometry: Geometry, j: int, home: int, gap: int) -> int:
    """Return the cost of the least number of inputs that have to change for neuron j to flip."""
    row = slice(*geometry.rows[0].start[j : j + 2].tolist())
    weights, columns = np.array(_weights(geometry, row), dtype=object), geometry.rows[0].columns
    # The side of the box in the direction of each input's change.
    side = (-home * weights > 0).astype(np.int64)
    gains = (np.abs(weights) * geometry.room[side, columns[row]]).tolist()
    strict, moved = bool(geometry.strict[-home][j]), 0
    for count, gain in enumerate(sorted(gains, reverse=True)[: geometry.space.radius], start=1):
        moved += gain
        if moved > gap or (moved == gap and not strict):
            return count * UNITS // geometry.space.radius
    return 2 * UNITS


def _weights(geometry: Geometry, row: slice) -> list[int]:
    """Return the weights of one row as integers."""
    parts = [part.values[row].astype(object) << (BITS * k) for k, part in enumerate(geometry.rows)]
    return list(np.sum(parts, axis=0).tolist())


def _cost_on_grid(geometry: Geometry, j: int, home: int, gap: int) -> int:
    """Return the cost of the first grid value of the only input with which neuron j may flip."""
    space, row = geometry.space, slice(*geometry.rows[0].start[j : j + 2].tolist())
    assert space.grid is not None
    (weight,) = _weights(geometry, row)
    i = int(geometry.rows[0].columns[row][0])
    center, radius = (Fraction(v, 1 << space.shift) for v in (int(space.center[i]), space.radius))
    if not weight or not radius:
        return 2 * UNITS
    # The input has to change in this direction, by at least this length.
    way = -home if weight > 0 else home
    length = Fraction(gap, abs(weight)) / (1 << geometry.point_shift)
    strict = bool(geometry.strict[-home][j])
    found = Fraction(space.grid.beyond(i, center + way * length, way, strict=strict))
    if (
        not Fraction(int(space.lower[i]), 1 << space.shift)
        <= found
        <= Fraction(int(space.upper[i]), 1 << space.shift)
    ):
        return 2 * UNITS
    share = abs(found - center) / radius
    share = share * share if space.norm == "l2" else share
    return min(int(share * UNITS), 2 * UNITS)


class FlipSums:
    """Bounds of sums of first-layer signs within the budget.

    A flip changes the sum at the centre's signs by 2 |w_j|.  The sum increases (or decreases) by at
    most the largest 2 |w_j| times the number of helpful flips within the budget, cheapest first,
    and by at most the total of all helpful open flips.
    """

    def __init__(self, flips: Flips, inputs: Integers, rows: Float32Array) -> None:
        self.flips, self.inputs = flips, inputs
        home, cost = flips.home[inputs].astype(np.float32), flips.cost[inputs]
        self.centre = rows @ home
        #: The change of each sum by a flip of each input.
        self.gains = (-2 * home[:, None] * rows.T).astype(np.float32)
        #: The parts of the gains that raise and that lower sums, side by side.
        self.parts = np.concatenate([np.maximum(self.gains, 0), np.maximum(-self.gains, 0)], axis=1)
        self.largest = self.parts.max(axis=0, initial=0)
        least = np.unique(cost)
        if least.size > MOST_CLASSES:
            least = least[np.linspace(0, least.size, MOST_CLASSES, endpoint=False).astype(int)]
        group = np.searchsorted(least, cost, side="right") - 1
        self.classes: list[tuple[float, Integers, Float32Array]] = []
        for k, one in enumerate(least.tolist()):
            members = np.flatnonzero(group == k)
            self.classes.append((one, members, (self.parts[members] > 0).astype(np.float32)))

    def bounds(self, nodes: Signs) -> tuple[Float32Array, Float32Array]:
        """Return the least and the largest value of every sum, for each node."""
        flipped = (nodes == -self.flips.home)[:, self.inputs].astype(np.float32)
        base = self.centre + flipped @ self.gains
        # Budgets and costs are below 2^24, and so are numbers of flips: exact in float32.
        rest = np.repeat(np.maximum(self.flips.left(nodes), 0)[:, None], 2 * base.shape[1], axis=1)
        rest = rest.astype(np.float32)
        open_ = (nodes[:, self.inputs] == 0).astype(np.float32)
        count = np.zeros_like(rest)
        for cost, members, helps in self.classes:
            fits = open_[:, members] @ helps
            if cost:
                # A quotient a/b with a <= 2^20 is rounded by less than 2^-4 / b, and the next whole
                # number is 1/b away: the floor is right.
                fits = np.minimum(fits, np.floor(rest / np.float32(cost)))
                rest -= fits * np.float32(cost)
            count += fits
        # Gains are even, and all together at most 2^25: exact.  A larger product is never less.
        moves = np.minimum(count * self.largest, open_ @ self.parts)
        up, down = np.split(moves, 2, axis=1)
        return base - down, base + up
