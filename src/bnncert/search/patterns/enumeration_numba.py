"""Enumeration of flips within a budget, compiled by numba (extra `fast`)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def _popcount(_context: Any, word: Any) -> Any:
    """Return the number of ones in a word, by the processor's own instruction."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.ctpop", [kind])
        return builder.call(function, [arguments[0]])

    return types.uint64(types.uint64), generate


@numba.njit(cache=True, nogil=True)
def _pack_above(values, limits, words):
    """Set the bits of the values above their limits; there is a multiple of 64 of them."""
    for block in range(values.size >> 6):
        part, least = values[block << 6 : (block + 1) << 6], limits[block << 6 : (block + 1) << 6]
        word = np.uint64(0)
        for bit in range(64):
            word |= np.uint64(part[bit] > least[bit]) << np.uint64(bit)
        words[block] = word


@numba.njit(cache=True, nogil=True)
def _add_disagreements(word, signs, masks, counts):
    """Add, for each gate, the number of signs in one word that disagree with its weights."""
    for j in range(counts.size):
        counts[j] += np.int64(_popcount((word ^ signs[j]) & masks[j]))


@numba.njit(cache=True, nogil=True)
def _lower_bounds(
    sums, first_above, signs, masks, start, width, limit, gate,
    part_signs, part_masks, part, scale, reach, constant, below, counts, lower,
):  # fmt: skip
    """Fill `lower` with the objectives' values at the pattern whose first-level sums are given."""
    _pack_above(sums, first_above, below)
    for level in range(width.size):
        place = start[level]
        first, end = gate[level], gate[level + 1]
        size = end - first
        mine = counts[:size]
        mine[:] = 0
        for w in range(width[level]):
            _add_disagreements(
                below[w], signs[place : place + size], masks[place : place + size], mine
            )
            place += size
        _pack_above(limit[first:end], mine, below)
    lower[:] = constant
    for p in range(part.size):
        count = np.uint64(0)
        for w in range(part_signs.shape[1]):
            count += _popcount((below[w] ^ part_signs[p, w]) & part_masks[p, w])
        lower[part[p]] += reach[p] - 2 * scale[p] * np.float64(count)


@numba.njit(cache=True, nogil=True)
def _violates(lower, goal, target, wanted, excluded, largest, least):
    """Whether some wanted target is not excluded; note the least bounds of those that are."""
    excluded[:] = False
    largest[:] = -np.inf
    for k in range(lower.size):
        t = target[k]
        excluded[t] |= lower[k] > goal[k]
        largest[t] = max(largest[t], lower[k])
    violates = False
    for t in range(wanted.size):
        if wanted[t]:
            if not excluded[t]:
                violates = True
            elif largest[t] < least[t]:
                least[t] = largest[t]
    return violates


@numba.njit(cache=True, nogil=True)
def enumerate_flips(
    base, gains, cost, left, wanted, first_above, signs, masks, start, width, limit, gate,
    part_signs, part_masks, part, scale, reach, constant, goal, target, most, found, least,
):  # fmt: skip
    """Evaluate every set of flips whose costs fit `left`, depth first.

    `cost` is ascending.  Row r of `found` gets the flips of the r-th violating set, ended by -1.
    Returns the number of sets that were evaluated and of those that violate; the enumeration ends
    early when `found` is full, and then the first number is negative.
    """
    words = 1 + (first_above.size >> 6)
    for level in range(width.size):
        words = max(words, 1 + ((gate[level + 1] - gate[level]) >> 6))
    below = np.zeros(words, np.uint64)
    lower = np.zeros(constant.size)
    counts = np.zeros(64 * words, np.int64)
    excluded = np.zeros(wanted.size, np.bool_)
    largest = np.zeros(wanted.size)
    sums = base.copy()
    stack = np.zeros(cost.size + 1, np.int64)
    depth, count, violations, following = 0, 0, 0, 0
    fresh = True
    while True:
        if fresh:
            count += 1
            _lower_bounds(
                sums, first_above, signs, masks, start, width, limit, gate,
                part_signs, part_masks, part, scale, reach, constant, below, counts, lower,
            )  # fmt: skip
            if _violates(lower, goal, target, wanted, excluded, largest, least):
                for d in range(depth):
                    found[violations, d] = stack[d]
                found[violations, depth] = -1
                violations += 1
                if violations == most:
                    return -count, violations
            fresh = False
        if following < cost.size and cost[following] <= left:
            for j in range(sums.size):
                sums[j] += gains[following, j]
            left -= cost[following]
            stack[depth] = following
            depth += 1
            following += 1
            fresh = True
        else:
            if depth == 0:
                return count, violations
            depth -= 1
            following = stack[depth]
            for j in range(sums.size):
                sums[j] -= gains[following, j]
            left += cost[following]
            following += 1
