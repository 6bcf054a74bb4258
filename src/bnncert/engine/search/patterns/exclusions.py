"""Conflicting pairs as rules for sets of flips.

Relative to the pattern of the centre, a pattern is a set of flips.  A conflicting pair of two
flipped signs means that these flips exclude each other (they clash); a conflicting pair of a
flipped and an unflipped sign means that the first flip needs the second one.  At most 64 open signs
are handled, so that a set is one word of bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, IntArray, SignArray
from bnncert.engine.presolve.literals import literal
from bnncert.engine.search.patterns.packed_circuit import WORD, Words


@dataclass(frozen=True, eq=False)
class FlipRules:
    """The flips that each flip excludes and needs, as bits."""

    #: The open variables, each after those that it needs.
    order: IntArray
    #: For each of them, in this order, the flips that it excludes, and earlier ones that it needs.
    clash: Words
    need: Words

    @staticmethod
    def of(excluded: Float32Array, node: SignArray, home: SignArray) -> FlipRules | None:
        """Return the rules for the open signs of a node, or None if there are more than 64."""
        open_ = np.flatnonzero(node == 0)
        if open_.size > WORD:
            return None
        own, flip = literal(open_, home[open_]), literal(open_, -home[open_])
        clash = excluded[np.ix_(flip, flip)] > 0
        need = excluded[np.ix_(flip, own)] > 0
        np.fill_diagonal(need, True)
        while True:
            closed = need.astype(np.float32) @ need.astype(np.float32) > 0
            if np.array_equal(closed, need):
                break
            need = closed
        # After the closure, sorting by the number of needs puts every flip after those it needs.
        # Of flips that need each other only the later one keeps its need: this allows more sets,
        # and none of them twice.
        order = np.argsort(np.count_nonzero(need, axis=1), kind="stable")
        need = np.tril(need[np.ix_(order, order)], -1)
        return FlipRules(open_[order], _words(clash[np.ix_(order, order)]), _words(need))

    def sets(self, most: int) -> Words | None:
        """Return all sets that satisfy the rules, as bits; None if there are more than `most`."""
        members, blocked = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
        for k in range(self.order.size):
            bit = np.uint64(1) << np.uint64(k)
            fits = ((blocked & bit) == 0) & ((self.need[k] & ~members) == 0)
            members = np.concatenate([members, members[fits] | bit])
            if members.size > most:
                return None
            blocked = np.concatenate([blocked, blocked[fits] | self.clash[k]])
        return members

    def signs(self, sets: Words, home: SignArray) -> SignArray:
        """Return the signs of the open variables, in their own order, for every set of flips."""
        places = np.arange(self.order.size, dtype=np.uint64)
        flipped = (sets[:, None] >> places) & np.uint64(1) > 0
        own = home[self.order]
        mine = np.where(flipped, -own, own)
        return np.asarray(mine[:, np.argsort(self.order)], dtype=np.int8)


def _words(table: BoolArray) -> Words:
    """Return the rows of a table as words of bits."""
    bits = np.uint64(1) << np.arange(table.shape[1], dtype=np.uint64)
    return np.asarray(np.where(table, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64))
