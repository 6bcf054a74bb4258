"""All patterns of a leaf as sets of flips, for the compiled loop over them.

A pattern is a set of flips of a base pattern.  Sets are extended by later flips only, so that each
occurs once.  Two kinds of sets are left out: those whose flips exceed the budget of a ball, and
those with a pair of signs that exclude each other (two flips that clash, or a flip that excludes
the base's sign of an earlier variable that is not flipped).  No input has such a pattern, nor the
pattern of a set that extends it in this way.  Longer clauses are checked likewise, when their last
member is decided: it is a flip, or the base's sign of a variable that is not flipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, Float32Array, FloatArray
from bnncert.arrays import SignArray as Signs
from bnncert.kernel.levels import LayerLevel, Scores
from bnncert.kernel.sparse import Integers, SparseRows

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
        """Return the rules for the open signs of a node; row 2v of `excluded` is about x_v = +1."""
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
        """Return the clauses that may still be violated in a node; none where there are budgets."""
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
    """Return a pattern of a node; a greedy choice avoids excluded pairs where possible."""
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
        """Return functions as gates: one that is +1 is at least `enough`.

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
        """Return the tables, or None where numba is absent, ties exist or sums are too large."""
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
        from bnncert.kernel.flip_loop import GROUP, LISTED, advance

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
            count = advance(
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
        """Return the room and the signs of all gates, one row after the other; the base's first."""
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
    """Return rows of bits as words."""
    return np.packbits(table, axis=1, bitorder="little").view("<u8").astype(np.uint64)
