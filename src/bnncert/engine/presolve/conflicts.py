r"""Pairs of signs that cannot occur together, and their consequences.

A *conflicting pair* (a, s), (b, t) means that no input has x_a = s and x_b = t.  It is the
implication  x_a = s  =>  x_b = -t.

Pairs bound u = sum_i w_i x_i.  Call the literal x_i = sign(w_i) *up*.  Of a set C of up literals
that exclude each other pairwise at most one holds, so its part of u is at most
max_C 2 |w_i| - sum_C |w_i|.  Every partition of a row into such sets gives a bound of u; a greedy
partition by decreasing weight is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.presolve.literals import literal, negation, sign_of, variable_of
from bnncert.model.matrices import row_norms

#: The largest number of neurons for which the closure is computed: its tables have 4 n^2 entries.
MOST_CLOSED = 3000


@dataclass(frozen=True, eq=False)
class ConflictingPairs:
    """Literals `first` and `second` that exclude each other.

    `theta` is the Farkas multiplier that proves the pair, NaN if other pairs imply it.
    """

    first: IntArray
    second: IntArray
    theta: FloatArray

    @staticmethod
    def none() -> ConflictingPairs:
        """Return the empty set."""
        empty = np.zeros(0, dtype=np.int64)
        return ConflictingPairs(empty, empty, np.zeros(0))

    @classmethod
    def joined(cls, parts: Sequence[ConflictingPairs]) -> ConflictingPairs:
        """Return the pairs of all parts, one part after the other."""
        parts = [cls.none(), *parts]
        return cls(
            np.concatenate([p.first for p in parts]),
            np.concatenate([p.second for p in parts]),
            np.concatenate([p.theta for p in parts]),
        )

    def part(self, kept: npt.NDArray[Any]) -> ConflictingPairs:
        """Return some of the pairs, by a mask or by their places."""
        return ConflictingPairs(self.first[kept], self.second[kept], self.theta[kept])

    @property
    def size(self) -> int:
        """The number of pairs."""
        return int(self.first.size)

    def matrix(self, neurons: int) -> BoolArray:
        """Return the symmetric table of the pairs over 2 * neurons literals."""
        table = np.zeros((2 * neurons, 2 * neurons), dtype=bool)
        table[self.first, self.second] = True
        table[self.second, self.first] = True
        return table


@dataclass(frozen=True, eq=False)
class Closure:
    """All consequences of a set of pairs.

    `state` holds the fixed signs (0 where unstable); an unstable neuron is sign * (its
    representative).  `pairs` are all conflicting pairs of unstable representatives.
    """

    state: SignArray
    representative: IntArray
    sign: SignArray
    pairs: ConflictingPairs
    contradiction: bool


def close(pairs: ConflictingPairs, neurons: int, deadline: Deadline | None = None) -> Closure:
    """Close a set of conflicting pairs under implication.

    With R the reachability of the implication graph: l with R[l, -l] is false; l and k with R[l, k]
    and R[k, l] are equal; every other R[l, k] is a pair of l and -k.  With more than MOST_CLOSED
    neurons, or if the deadline passes before R is known, the pairs are returned as they are.
    """
    representative = np.arange(neurons, dtype=np.int64)
    sign = np.ones(neurons, dtype=np.int8)
    state = np.zeros(neurons, dtype=np.int8)
    if not pairs.size or neurons > MOST_CLOSED:
        return Closure(state, representative, sign, pairs, False)
    every = np.arange(2 * neurons)
    negated = negation(every)
    try:
        implies = _transitive(pairs.matrix(neurons)[:, negated], deadline or Deadline(None))
    except OutOfTimeError:
        return Closure(state, representative, sign, pairs, False)
    false = implies[every, negated]
    if np.any(false & false[negated]):
        return Closure(state, representative, sign, ConflictingPairs.none(), True)
    state[false[1::2]] = 1
    state[false[0::2]] = -1
    open_ = np.repeat(state == 0, 2)
    implies &= open_[:, None] & open_[None, :]
    same = implies & implies.T
    np.fill_diagonal(same, True)
    # The smallest literal of each class; literal 2a leads neuron a's class or follows another.
    leader = np.argmax(same, axis=1)
    representative = np.where(state == 0, variable_of(leader[0::2]), np.arange(neurons))
    sign = np.where(state == 0, sign_of(leader[0::2]), 1).astype(np.int8)
    leading = np.repeat((state == 0) & (representative == np.arange(neurons)), 2)
    excluded = implies[:, negated] & leading[:, None] & leading[None, :]
    excluded &= np.triu(np.ones(excluded.shape, dtype=bool), 1)
    first, second = np.nonzero(excluded)
    keep = variable_of(first) != variable_of(second)
    first, second = first[keep].astype(np.int64), second[keep].astype(np.int64)
    found = ConflictingPairs(first, second, _known_theta(pairs, first, second, 2 * neurons))
    return Closure(state, representative, sign, found, False)


def _known_theta(
    pairs: ConflictingPairs, first: IntArray, second: IntArray, literals: int
) -> FloatArray:
    """Return the multipliers of pairs that are known, in either order, and NaN for the others."""
    known = np.concatenate(
        [pairs.second * literals + pairs.first, pairs.first * literals + pairs.second]
    )
    theta = np.concatenate([1.0 - pairs.theta, pairs.theta])
    order, wanted = np.argsort(known, kind="stable"), first * literals + second
    place = np.minimum(np.searchsorted(known, wanted, sorter=order), known.size - 1)
    found = order[place]
    return np.where(known[found] == wanted, theta[found], np.nan)


def _transitive(relation: BoolArray, deadline: Deadline) -> BoolArray:
    """Return the transitive closure by Warshall's algorithm, eight columns to a byte.

    Raises OutOfTimeError if the deadline passes before all is known.
    """
    # Rows are joined, so each has to be in one piece of memory.
    reach = np.ascontiguousarray(np.packbits(relation, axis=1))
    for k in range(relation.shape[0]):
        deadline.check()
        before = np.flatnonzero(reach[:, k >> 3] & (128 >> (k & 7)))
        if before.size:
            reach[before] |= reach[k]
    return np.unpackbits(reach, axis=1, count=relation.shape[0]).astype(bool)


#: Entries of the padded table of the rows that are partitioned between two looks at the clock.
CELLS_AT_ONCE = 2_000_000


def sum_ranges(
    weights: Any, excluded: BoolArray, deadline: Deadline | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return (Lo, U) of every row of a CSR matrix of integers, given the table of pairs.

    After the deadline, the remaining literals are bounded without the pairs.
    """
    limit = deadline or Deadline(None)
    upper = row_norms(weights)
    lower = -upper
    in_conflict = np.any(excluded, axis=1)
    if not in_conflict.any():
        return lower, upper
    height = max(1, CELLS_AT_ONCE // max(1, int(np.diff(weights.indptr).max(initial=0))))
    for start in range(0, weights.shape[0], height):
        if limit.passed():
            break
        rows = slice(start, start + height)
        columns, values = _padded(weights[rows])
        upper[rows] = _upper(columns, values, excluded, in_conflict, limit)
        lower[rows] = -_upper(columns, -values, excluded, in_conflict, limit)
    return lower, upper


def _padded(weights: Any) -> tuple[IntArray, FloatArray]:
    """Return the columns and values of each row, padded with weight 0, heaviest first."""
    lengths = np.diff(weights.indptr)
    widest = int(lengths.max(initial=0))
    columns = np.zeros((weights.shape[0], widest), dtype=np.int64)
    values = np.zeros((weights.shape[0], widest))
    place = np.arange(weights.indices.size) - np.repeat(weights.indptr[:-1], lengths)
    rows = np.repeat(np.arange(weights.shape[0]), lengths)
    columns[rows, place] = weights.indices
    values[rows, place] = weights.data
    order = np.argsort(-np.abs(values), axis=1, kind="stable")
    return np.take_along_axis(columns, order, 1), np.take_along_axis(values, order, 1)


def _upper(
    columns: IntArray,
    values: FloatArray,
    excluded: BoolArray,
    in_conflict: BoolArray,
    deadline: Deadline,
) -> FloatArray:
    size = np.abs(values)
    up = literal(columns, values)
    # A literal without conflicts is a set of its own.
    left = (size > 0) & in_conflict[up]
    everyone = np.arange(columns.shape[0])
    bound: FloatArray = np.where(left, 0.0, size).sum(axis=1)
    while left.any():
        if deadline.passed():
            return np.asarray(bound + (size * left).sum(axis=1))
        active = everyone[left.any(axis=1)]
        member = np.argmax(left[active], axis=1)
        left[active, member] = False
        heaviest = size[active, member]
        weight = heaviest.copy()
        candidates = left[active] & excluded[up[active, member][:, None], up[active]]
        while True:
            more = candidates.any(axis=1)
            if not more.any() or deadline.passed():
                break
            rows = np.flatnonzero(more)
            member = np.argmax(candidates[rows], axis=1)
            who = active[rows]
            left[who, member] = False
            weight[rows] += size[who, member]
            candidates[rows, member] = False
            candidates[rows] &= excluded[up[who, member][:, None], up[who]]
        bound[active] += 2 * heaviest - weight
    return bound
