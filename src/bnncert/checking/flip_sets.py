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
from bnncert.checking.levels import LayerLevel
from bnncert.checking.sparse import Integers, SparseRows

#: The largest numbers of sets that one call of the loop evaluates, and that it returns.
CALL, FOUND = 2**16, 256

#: The gates of a level are padded to a multiple of this.
PADDED = 32

#: Sums are kept in 16 bits.
LARGEST = 2**15 - 1

#: The largest number of flips of a node for which longer clauses are checked.
MOST_BITS = 52

#: The largest number of weights of all items in all sums.
MOST_TABLE = 2**26


def is_compiled() -> bool:
    """Whether numba is installed."""
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
        home, flip = (2 * open_ + (sign[open_] < 0) for sign in (base, -base))
        clash, need = (excluded[np.ix_(flip, other)] > 0 for other in (flip, home))
        # The needs of a flip come before it, if the order of costs allows that.
        order = np.lexsort((need.sum(axis=1), cost[open_]))
        clash, need = clash[np.ix_(order, order)], np.tril(need[np.ix_(order, order)], -1)
        if not clash.any() and not need.any():
            clash = need = clash[:0, :0]
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


class FlipSets:
    """The levels of a network and the functions over its last level, in one table each."""

    def __init__(
        self, inputs: int, size: int, levels: Sequence[LayerLevel], weights: FloatArray
    ) -> None:
        padded = [-(-level.rows.shape[0] // PADDED) * PADDED for level in levels]
        self.level = np.cumsum([0, *padded])
        gates = int(self.level[-1])
        self.inputs = inputs
        #: The weights of each level, and the items that they are for.
        self.rows: list[tuple[Float32Array, Integers]] = []
        #: The item of each variable of the skeleton, and of each entry of a function.
        item = np.arange(size)
        self.table = np.zeros((inputs + gates, gates), dtype=np.int16)
        #: The limits of gates; that of padding is never exceeded.
        self.limits = np.full(gates, LARGEST, dtype=np.int16)
        #: The last level that reads an item; functions come after all levels.
        self.until = np.full(inputs + gates, -1)
        members = item[:inputs]
        for number, level in enumerate(levels):
            mine = slice(self.level[number], self.level[number] + level.rows.shape[0])
            members = inputs + np.arange(mine.start, mine.stop)
            below = item[level.inputs]
            self.rows.append((level.rows, below))
            self.table[below, mine] = level.rows.T
            self.limits[mine] = np.clip(level.minus, -LARGEST - 1, LARGEST)
            self.until[below] = number
            item[level.outputs] = members[: level.outputs.size]
        self.weights = np.zeros((inputs + gates, weights.shape[0]))
        self.weights[members] = weights.T
        self.until[members] = len(levels)

    @staticmethod
    def of(
        inputs: int, size: int, levels: Sequence[LayerLevel], weights: FloatArray
    ) -> FlipSets | None:
        """Return the tables; None without numba, with ties, or if sums are too large."""
        gates = sum(level.rows.shape[0] + PADDED for level in levels)
        known = all(np.all(level.minus < level.plus) for level in levels)
        small = all(np.all(level.sizes.sum(axis=1) < LARGEST) for level in levels)
        fits = (inputs + gates) * max(gates, weights.shape[0]) <= MOST_TABLE
        if is_compiled() and known and small and fits:
            return FlipSets(inputs, size, levels, weights)
        return None

    def reaching(
        self,
        base: Signs,
        rules: FlipOrder,
        clauses: FlipClauses,
        functions: Integers,
        enough: FloatArray,
        first: Integers,
    ) -> Iterator[Signs]:
        """Yield the patterns at which some target is not excluded, a few at a time.

        Target t has the `functions` with places first[t] to first[t + 1], and is excluded if one of
        them is at least `enough`.
        """
        # Imported on use: numba takes a third of a second to import.
        from bnncert.checking.flip_loop import advance

        weights = np.ascontiguousarray(self.weights[:, functions])
        sums, signs, scores = self._start(base, weights, rules.depth + 2)
        state, stack = np.array([0, 0, rules.left, 1]), np.zeros(rules.depth + 2, dtype=np.int64)
        found = np.zeros((FOUND, rules.cost.size), dtype=np.int8)
        moved = np.zeros(self.limits.size, dtype=np.uint8)
        changed, factors = (np.zeros(self.until.size, dtype=t) for t in (np.int64, np.int16))
        factor = np.where(base[rules.variables] > 0, -2, 2).astype(np.int16)
        needs = rules.need.sum(axis=1)
        while state[0] >= 0:
            count = advance(
                state, stack, found, CALL, rules.variables, factor, rules.cost, rules.clash,
                rules.need, needs, clauses.start, clauses.flipped, clauses.kept, sums, signs,
                scores, self.level, self.limits, self.until, self.table.reshape(-1), weights,
                enough, first, moved, changed, factors,
            )  # fmt: skip
            patterns = np.repeat(base[None, :], count, axis=0)
            patterns[:, rules.variables] *= 1 - 2 * found[:count]
            yield patterns

    def _start(
        self, base: Signs, weights: FloatArray, depth: int
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint8], FloatArray]:
        """Return sums, signs and values of functions, one row after the other; the base's first."""
        gates = self.limits.size
        sums, signs = np.zeros((depth, gates), np.int16), np.zeros((depth, gates), np.uint8)
        values = np.concatenate([base, np.full(gates, -1)]).astype(np.float32)
        for (rows, below), first in zip(self.rows, self.level.tolist(), strict=False):
            mine = slice(first, first + rows.shape[0])
            # Sums of at most 2^24 are exact.
            sums[0, mine] = rows @ values[below]
            signs[0, mine] = sums[0, mine] > self.limits[mine]
            values[self.inputs :][mine] = np.where(signs[0, mine], 1, -1)
        scores = np.zeros((depth, weights.shape[1]))
        scores[0] = values.astype(np.float64) @ weights
        return sums.reshape(-1), signs.reshape(-1), scores.reshape(-1)
