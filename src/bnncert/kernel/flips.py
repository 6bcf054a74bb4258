r"""Flips of first-layer signs: their costs within a ball, and all patterns as sets of flips.

A ball is a budget: there is a least cost of changing the sign of a first-layer neuron.

Let neuron j have the sign s at the centre c, with s (w_j.c + b_j) >= g_j > 0.  At an input x with
the other sign, |w_j.(x - c)| >= g_j.  Over the inputs that neuron j reads,

    L1:  |x - c|_1 >= g_j / max_k |w_jk|,          L2:  |x - c|_2^2 >= g_j^2 / |w_j|_2^2,
    L0:  the number of inputs, those with the largest effect first, that reach g_j.

On a grid, a neuron with one input needs the first grid value beyond its threshold.

For neurons that read disjoint inputs these lengths add up to at most r, or r^2 for L2, and the
numbers of inputs to at most k for L0.  The cost of a flip is its share of that, in units of 2^-20
and rounded down: the costs of all flips of a pattern that occurs add up to at most 2^20.  Rounding
can only allow more patterns.

For the compiled loop, a pattern is a set of flips of a base pattern.  Sets are extended by later
flips only, so that each occurs once.  Two kinds of sets are left out: those whose flips exceed the
budget of a ball, and those with a pair of signs that exclude each other (two flips that clash, or a
flip that excludes the base's sign of an earlier variable that is not flipped).  No input has such a
pattern, nor the pattern of a set that extends it in this way.  Longer clauses are checked likewise,
when their last member is decided: it is a flip, or the base's sign of a variable that is not
flipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, Float32Array, FloatArray
from bnncert.arrays import SignArray as Signs
from bnncert.kernel.geometry import BITS, Geometry, dot
from bnncert.kernel.levels import LayerLevel, Scores
from bnncert.kernel.sparse import Integers, SparseRows

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
        """Compute the costs of first-layer neurons."""
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
        """Compute the rest of the budget of each node; a node with less than 0 cannot occur."""
        return np.asarray(UNITS - (nodes == -self.home) @ self.cost)

    def restricted(self, nodes: Signs) -> Signs:
        """Fix the signs of nodes whose flip exceeds the budget."""
        beyond = (nodes == 0) & (self.cost > self.left(nodes)[:, None])
        return np.where(beyond, self.home, nodes)

    def implied(self) -> BoolArray:
        """Find the pairs of literals that the budget excludes by itself."""
        both = self.cost[:, None] + self.cost > UNITS
        np.fill_diagonal(both, False)
        size = self.home.size
        table = np.zeros((2 * size, 2 * size), dtype=bool)
        flip = 2 * np.arange(size) + (self.home > 0)
        table[np.ix_(flip, flip)] = both
        return table

    def most(self, nodes: Signs) -> Integers:
        """Count the further flips that each node has room for: the cheapest ones."""
        costs = np.sort(np.where(nodes == 0, self.cost, np.inf), axis=1)
        return np.asarray((np.cumsum(costs, axis=1) <= self.left(nodes)[:, None]).sum(axis=1))


def _cost_of_changes(geometry: Geometry, j: int, home: int, gap: int) -> int:
    """Find the cost of the least number of inputs that have to change for neuron j to flip."""
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
    parts = [part.values[row].astype(object) << (BITS * k) for k, part in enumerate(geometry.rows)]
    return list(np.sum(parts, axis=0).tolist())


def _cost_on_grid(geometry: Geometry, j: int, home: int, gap: int) -> int:
    """Find the cost of the first grid value of the only input with which neuron j may flip."""
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
        """Bound every sum from below and above, for each node."""
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


# -- sets of flips ----------------------------------------------------------------------------

#: The largest numbers of sets that one call of the loop evaluates, and that it returns.
CALL, FOUND = 2**16, 256

#: The gates of a level are filled up to whole words of bits.
WORD = 64

#: Sums are smaller than this, so that 16 bits have room for their distance to a limit, too; a gate
#: that only fills up a word is never +1.
LARGEST, NEVER = 2**14, 2**15 - 1

#: The largest weight: four of them can be added in 8 bits.  Weights of functions are divided.
LARGEST_WEIGHT = 31

#: The largest number of flips of a node for which longer clauses are checked.
MOST_BITS = 52

#: The largest number of weights of all items in all sums.
MOST_TABLE = 2**26


def is_compiled() -> bool:
    """Whether numba is installed; without it, a check does not rest on its compiler."""
    return importlib.util.find_spec("numba") is not None


@dataclass(frozen=True, eq=False)
class FlipOrder:
    """The open variables in the order of their flips, with costs, exclusions and needs."""

    variables: Integers
    cost: Integers
    left: int
    clash: BoolArray
    need: BoolArray

    @staticmethod
    def of(
        node: Signs, base: Signs, cost: FloatArray, left: float, excluded: Float32Array
    ) -> FlipOrder:
        """Make the rules for the open signs of a node; row 2v of `excluded` is about x_v = +1."""
        open_ = np.flatnonzero(node == 0)
        if not excluded.any():
            flips = open_[np.argsort(cost[open_], kind="stable")]
            none = np.zeros((0, 0), dtype=bool)
            return FlipOrder(flips, cost[flips].astype(np.int64), int(left), none, none)
        home, flip = (2 * open_ + (sign[open_] < 0) for sign in (base, -base))
        clash, need = (excluded[np.ix_(flip, other)] > 0 for other in (flip, home))
        # The needs of a flip come before it, if the order of costs allows that.
        order = np.lexsort((need.sum(axis=1), cost[open_]))
        clash, need = clash[np.ix_(order, order)], np.tril(need[np.ix_(order, order)], -1)
        flips = open_[order]
        return FlipOrder(flips, cost[flips].astype(np.int64), int(left), clash, need)

    @property
    def depth(self) -> int:
        """The largest number of flips of a set."""
        return int(np.count_nonzero(np.cumsum(self.cost) <= self.left))


@dataclass(frozen=True, eq=False)
class FlipClauses:
    """Flips, and signs of the base, that do not occur together, by the place of the last of them.

    Clause c has the flips in the bits of flipped[c] and the base's signs in those of kept[c].  The
    clauses start[2p]:start[2p + 1] end with flip p, and those up to start[2p + 2] with the base's
    sign of its variable.
    """

    start: Integers
    flipped: Integers
    kept: Integers

    @staticmethod
    def of(clauses: SparseRows, node: Signs, base: Signs, rules: FlipOrder) -> FlipClauses:
        """Take the clauses that may still be violated in a node; none where there are budgets."""
        size, nothing = rules.variables.size, np.zeros(0, dtype=np.int64)
        if not clauses.count or size > MOST_BITS or rules.cost.any():
            return FlipClauses(np.zeros(2 * size + 1, dtype=np.int64), nothing, nothing)
        # For every literal: whether it is false in the node, and its bit as a flip and as kept.
        false, flip, keep = np.zeros((3, clauses.width), dtype=np.int64)
        fixed, bit = np.flatnonzero(node), np.int64(1) << np.arange(size)
        false[2 * fixed + (node[fixed] > 0)] = 1
        is_minus = base[rules.variables] < 0
        keep[2 * rules.variables + is_minus] = flip[2 * rules.variables + ~is_minus] = bit
        # Members are distinct, so that sums of bits are their unions.
        flipped, kept = clauses.times(flip), clauses.times(keep)
        chosen = np.flatnonzero((clauses.times(false) == 0) & (flipped + kept > 0))
        # Of numbers below 2^53 the exponent is exact.
        last = np.frexp((flipped + kept)[chosen].astype(np.float64))[1] - 1
        key = 2 * last + (kept[chosen] >> last & 1)
        order = np.argsort(key, kind="stable")
        start = np.searchsorted(key[order], np.arange(2 * size + 1))
        return FlipClauses(start, flipped[chosen[order]], kept[chosen[order]])


def consistent(node: Signs, home: Signs, excluded: Float32Array) -> Signs:
    """Choose a pattern of a node, greedily so that it avoids excluded pairs where possible."""
    base = node.copy()
    known = np.flatnonzero(node)
    false: BoolArray = np.any(excluded[2 * known + (node[known] < 0)] > 0, axis=0)
    for v in np.flatnonzero(node == 0).tolist():
        base[v] = -home[v] if false[2 * v + int(home[v] < 0)] else home[v]
        false |= excluded[2 * v + int(base[v] < 0)] > 0
    return np.asarray(base)


@dataclass(frozen=True, eq=False)
class Gates:
    """Sums over items, each of which is compared with a limit: it is +1 above, and -1 else."""

    rows: FloatArray | Float32Array
    below: Integers
    limits: FloatArray | Float32Array

    @property
    def size(self) -> int:
        """The number of gates, filled up to whole words."""
        return max(1, -(-self.limits.size // WORD)) * WORD

    @property
    def fits(self) -> bool:
        """Whether no weight and no sum is too large."""
        sizes = np.abs(self.rows)
        return bool(np.all(sizes <= LARGEST_WEIGHT) and np.all(sizes.sum(axis=1) < LARGEST))

    @staticmethod
    def of_functions(scores: Scores, members: Integers) -> Gates:
        """Write functions as gates: one that is +1 is at least `enough`.

        Large weights are divided by a step.  What rounding changes, over all signs, is added to
        the limit, so that a function may be large enough although its gate is -1.
        """
        step = np.ceil(np.abs(scores.weights).max(axis=1, initial=1) / LARGEST_WEIGHT)
        rows = np.rint(scores.weights / step[:, None])
        # All numbers are whole and at most 2^53.
        lost = np.abs(scores.weights - rows * step[:, None]).sum(axis=1)
        known = zip(scores.enough.tolist(), lost.tolist(), step.tolist(), strict=True)
        limits = [-(-(int(e) + int(more)) // int(one)) - 1.0 for e, more, one in known]
        return Gates(rows, members, np.array(limits))


class FlipSets:
    """The gates of all levels and the functions over the last one, with one table of weights."""

    def __init__(self, inputs: int, levels: Sequence[Gates], target: Integers) -> None:
        self.inputs, self.levels = inputs, levels
        self.level = np.cumsum([0, *(gates.size for gates in levels)])
        total = int(self.level[-1])
        #: For each level, and each item, what sums gain if that becomes -1, and if it becomes +1;
        #: the last item is none.
        tables = [np.zeros((inputs + total + 1, 2, gates.size), np.int8) for gates in levels]
        #: The first place among inputs and levels that each level reads.
        self.lowest = np.zeros(len(levels), dtype=np.int64)
        for number, (gates, table) in enumerate(zip(levels, tables, strict=True)):
            table[gates.below, 1, : gates.limits.size] = gates.rows.T
            table[:, 0] = -table[:, 1]
            least = int(gates.below.min(initial=inputs + total)) - inputs
            # A level that reads nothing may begin anywhere.
            place = int(np.searchsorted(self.level, least, side="right"))
            self.lowest[number] = min(number, place)
        self.start = np.cumsum([0, *(table.size for table in tables)])
        self.table = np.concatenate([table.reshape(-1) for table in tables])
        self.largest = max(1, int(np.abs(self.table).max()))
        #: The words of the functions of each target.
        owner = np.arange(target.max(initial=-1) + 1)[:, None] == target
        filled = np.zeros((owner.shape[0], levels[-1].size), dtype=bool)
        filled[:, : target.size] = owner
        self.targets = _words(filled)

    @staticmethod
    def of(inputs: int, size: int, levels: Sequence[LayerLevel], scores: Scores) -> FlipSets | None:
        """Make the tables; None where numba is absent, ties exist or sums are too large."""
        known = all(np.all(level.minus < level.plus) for level in levels)
        if not is_compiled() or not known:
            return None
        #: The item of each variable of the skeleton, and of each entry of a function.
        item, members, made, first = np.arange(size), np.arange(inputs), [], inputs
        for level in levels:
            made.append(Gates(level.rows, item[level.inputs], level.minus))
            members = first + np.arange(level.rows.shape[0])
            item[level.outputs] = members[: level.outputs.size]
            first += made[-1].size
        made.append(Gates.of_functions(scores, members))
        total = sum(gates.size for gates in made)
        fits = 2 * (inputs + total) * total <= MOST_TABLE and all(gates.fits for gates in made)
        return FlipSets(inputs, made, scores.target) if fits else None

    def reaching(
        self, base: Signs, rules: FlipOrder, clauses: FlipClauses, targets: BoolArray
    ) -> Iterator[Signs]:
        """Yield the patterns at which one of the targets may not be excluded, a few at a time."""
        # Imported on use: numba takes a third of a second to import.
        from bnncert.kernel.flip_loop import GROUP, LISTED, timely_advance

        gates = int(self.level[-1])
        # So many columns may be added in 8 bits.
        together = 127 // self.largest // GROUP * GROUP
        room, bits = self._start(base, rules.depth + 2)
        state, stack = np.array([0, 0, rules.left, 1]), np.zeros(rules.depth + 2, dtype=np.int64)
        found = np.zeros((FOUND, rules.cost.size), dtype=np.int8)
        most = 1 + gates + LISTED + GROUP * self.level.size
        gains, changed = np.zeros(gates, np.int16), np.zeros(most, dtype=np.int64)
        columns = 2 * rules.variables + (base[rules.variables] < 0)
        begin, needs = np.zeros(self.level.size, dtype=np.int64), rules.need.sum(axis=1)
        while state[0] >= 0:
            count = timely_advance(
                state, stack, found, CALL, columns, rules.cost, rules.clash, rules.need, needs,
                clauses.start, clauses.flipped, clauses.kept, room, bits, gains, self.level,
                self.lowest, self.table, self.start, together, self.inputs, self.targets[targets],
                changed, begin,
            )  # fmt: skip
            patterns = np.repeat(base[None, :], count, axis=0)
            patterns[:, rules.variables] *= 1 - 2 * found[:count]
            yield patterns

    def _start(
        self, base: Signs, depth: int
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint64]]:
        """Find the room and the signs of all gates, one row after the other; the base's first."""
        total = int(self.level[-1])
        room = np.full((depth, total), NEVER, dtype=np.int16)
        values = np.concatenate([base, np.full(total, -1)]).astype(np.float32)
        for gates, first in zip(self.levels, self.level.tolist(), strict=False):
            mine = slice(first, first + gates.limits.size)
            # No sum reaches LARGEST, so limits beyond it may be moved.
            limits = np.clip(gates.limits, -LARGEST, LARGEST).astype(np.float64)
            room[0, mine] = (limits - gates.rows @ values[gates.below]) // 2
            values[self.inputs :][mine] = np.where(room[0, mine] < 0, 1, -1)
        return room.reshape(-1), _words(room < 0).reshape(-1)


def _words(table: BoolArray) -> npt.NDArray[np.uint64]:
    """Pack rows of bits into words."""
    return np.packbits(table, axis=1, bitorder="little").view("<u8").astype(np.uint64)
