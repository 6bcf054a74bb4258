"""Enumeration of all patterns of one node.

A loop compiled by numba enumerates the patterns, each from the one before.  Matrix products
(`enumeration_products`) evaluate those of circuits that the loop does not take, and of all circuits
until it is compiled.  Both give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.circuit import Circuit
from bnncert.engine.search.patterns.compilation import ENUMERATION
from bnncert.engine.search.patterns.exclusions import FlipRules
from bnncert.engine.search.patterns.flips import UNITS, FlipBudget
from bnncert.engine.search.patterns.packed_circuit import PackedCircuit, PackedFlips, pack

#: The largest number of violating patterns that one enumeration returns.
MOST_FOUND = 64

#: Patterns up to which the compiled loop enumerates a node.
MOST_COMPILED = 2**20

#: Weights that one call of the compiled loop may read (about 0.1 s), and a node (about 2 s).
CALL_WEIGHTS, NODE_WEIGHTS = 2**35, 2**40


@dataclass(frozen=True, eq=False)
class Enumerated:
    """The result of one part of an enumeration."""

    #: Patterns evaluated.
    count: int
    #: Those that reach a wanted target, at most MOST_FOUND.
    violating: SignArray
    #: For each target the least bound of F among the patterns at which it is excluded.
    least: FloatArray
    #: Whether all patterns of the part were evaluated.
    complete: bool
    #: Whether no part follows.
    last: bool


def pattern_counts(nodes: SignArray, most_flips: IntArray | None) -> FloatArray:
    """Return upper bounds of the numbers of patterns of nodes."""
    open_ = np.minimum(np.count_nonzero(nodes == 0, axis=1), 1000)
    if most_flips is None:
        return np.asarray(2.0**open_)
    return np.array(
        [
            float(sum(math.comb(n, k) for k in range(min(m, n) + 1))) if m < 8 else 2.0**n
            for n, m in zip(open_.tolist(), most_flips.tolist(), strict=True)
        ]
    )


class FlipEnumerator:
    """Enumerates the patterns of nodes of one circuit by the compiled loop."""

    def __init__(self, packed: PackedCircuit, budget: FlipBudget | None, home: SignArray) -> None:
        self._packed, self._budget = packed, budget
        self._home = home if budget is None else budget.home
        weights = max(1, packed.levels.columns.size // 2 + packed.gains.size)
        self._call = max(64, CALL_WEIGHTS // weights)
        #: Patterns up to which a node is enumerated.
        self.most = min(MOST_COMPILED, max(1024, NODE_WEIGHTS // weights))

    @staticmethod
    def of(circuit: Circuit, budget: FlipBudget | None, home: SignArray) -> FlipEnumerator | None:
        """Return the compiled enumerator, or None for a circuit without a packed form."""
        packed = pack(circuit)
        return None if packed is None else FlipEnumerator(packed, budget, home)

    def is_ready(self, limit: Deadline) -> bool:
        """Whether the loop is compiled; the first question begins to compile it."""
        return ENUMERATION.is_ready(self._enumerate_one, limit)

    def _enumerate_one(self) -> None:
        """Enumerate a node in which every sign is fixed."""
        objectives = self._packed.circuit.objectives
        goal = np.full(objectives.constant.size, -np.inf)
        list(self.run(self._home, np.zeros(objectives.targets, dtype=bool), goal))

    def run(
        self, node: SignArray, wanted: BoolArray, goal: FloatArray, rules: FlipRules | None = None
    ) -> Iterator[Enumerated]:
        """Enumerate the patterns of one node that keep the rules, in parts that take little time.

        A part that is not complete is the last one.
        """
        # Imported on use: numba takes a third of a second to import.
        from bnncert.engine.search.patterns.enumeration_numba import enumerate_flips

        packed, budget = self._packed, self._budget
        open_ = np.flatnonzero(node == 0)
        cost, left = np.zeros(open_.size, dtype=np.int64), 0
        clash = need = np.zeros(0, dtype=np.uint64)
        if budget is not None:
            open_ = open_[np.argsort(budget.cost[open_], kind="stable")]
            cost = budget.cost[open_].astype(np.int64)
            left = UNITS - int(budget.spent(node[None, :])[0])
        elif rules is not None:
            open_, clash, need = rules.order, rules.clash, rules.need
        base = node.copy()
        base[open_] = self._home[open_]
        found = np.full((MOST_FOUND, open_.size + 1), -1, dtype=np.int64)
        least = np.full(wanted.size, np.inf)
        room = packed.room(base)
        flips = PackedFlips(packed.flip_gains(open_, self._home), cost, clash, need)
        for first, last in self._calls(cost, left):
            count, violations = enumerate_flips(
                room, flips, left, first, last, packed.levels, packed.objectives, wanted, goal,
                found, least,
            )  # fmt: skip
            violating = flipped(base, open_, found[:violations])
            yield Enumerated(abs(count), violating, least, count >= 0, last == open_.size)
            if count < 0:
                return

    def _calls(self, cost: IntArray, left: int) -> list[tuple[int, int]]:
        """Divide the first flips of sets into calls that each take little time."""
        size = cost.size
        # Estimates of the numbers of sets that begin with each flip.
        if cost.any():
            most = min(size, 8, int(left // max(1, int(cost.min()))))
            counts = [sum(math.comb(size - k - 1, m) for m in range(most)) for k in range(size)]
        else:
            counts = [2 ** (size - k - 1) for k in range(size)]
        calls, first, total = [], 0, 0
        for k, count in enumerate(counts):
            if total and total + count > self._call:
                calls.append((first, k))
                first, total = k, 0
            total += count
        return [*calls, (first, size)]


def flipped(base: SignArray, open_: IntArray, found: IntArray) -> SignArray:
    """Return the patterns of sets of flips; each set ends with -1."""
    patterns = np.repeat(base[None, :], found.shape[0], axis=0)
    for row, flips in zip(patterns, found, strict=True):
        row[open_[flips[: int(np.argmin(flips))]]] *= -1
    return patterns
