"""The loop over sets of flips, compiled by numba: each pattern is evaluated from the one before it.

An item is a first-layer variable or a gate, in this order.  Row d of `sums` and `signs` (of gates)
and of `scores` (values of functions) belongs to the first d flips of the current set.  One more
flip changes the sums that read its item by twice the weight; this changes the signs of some gates,
which change sums of later levels.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _copy(array, source, place, count):
    """Copy `count` entries within an array."""
    # Unsigned places need no check for negative ones, so that the loop can be vectorised.
    p, q = np.uint64(source), np.uint64(place)
    for k in range(np.uint64(count)):
        array[q + k] = array[p + k]


@numba.njit(cache=True, nogil=True)
def _add(sums, place, table, first, factor, count):
    """Add `factor` times `count` weights to sums."""
    p, q = np.uint64(place), np.uint64(first)
    for k in range(np.uint64(count)):
        sums[p + k] += factor * table[q + k]


@numba.njit(cache=True, nogil=True)
def _compare(sums, signs, place, limits, moved, first, count):
    """Record which gates change: a gate is +1 if its sum is above its limit, otherwise -1."""
    p, q = np.uint64(place), np.uint64(first)
    for k in range(np.uint64(count)):
        moved[q + k] = signs[p + k] ^ np.uint8(sums[p + k] > limits[q + k])


@numba.njit(cache=True, nogil=True)
def _flip(
    item, factor, row, sums, signs, scores, level, limits, until, table, weights, moved, changed,
    factors,
):  # fmt: skip
    """Fill row + 1 of sums, signs and scores: those of `row` after the flip of an input."""
    gates, functions = limits.size, weights.shape[1]
    inputs, words = until.size - gates, moved.view(np.uint64)
    own, own_scores = (row + 1) * gates, (row + 1) * functions
    _copy(sums, own - gates, own, gates)
    _copy(signs, own - gates, own, gates)
    _copy(scores, own_scores - functions, own_scores, functions)
    changed[0], factors[0], count = item, factor, 1
    for number in range(level.size - 1):
        first, end = level[number], level[number + 1]
        for c in range(count):
            if until[changed[c]] >= number:
                start = changed[c] * gates + first
                _add(sums, own + first, table, start, factors[c], end - first)
        _compare(sums, signs, own + first, limits, moved, first, end - first)
        for w in range(first >> 3, end >> 3):
            if words[w]:
                for g in range(w << 3, (w + 1) << 3):
                    if moved[g]:
                        signs[own + g] ^= 1
                        changed[count] = inputs + g
                        factors[count] = 2 if signs[own + g] else -2
                        count += 1
    for c in range(count):
        if until[changed[c]] == level.size - 1:
            for k in range(functions):
                scores[own_scores + k] += factors[c] * weights[changed[c], k]


@numba.njit(cache=True, nogil=True)
def _reaches(scores, row, enough, first):
    """Whether some target has no function that is large enough."""
    for target in range(first.size - 1):
        excluded = False
        for k in range(first[target], first[target + 1]):
            excluded |= scores[row * enough.size + k] >= enough[k]
        if not excluded:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _fits(flip, stack, depth, clash, need, needs):
    """Whether a flip excludes no member of the set and has all members that it needs."""
    present = 0
    for d in range(depth):
        if clash[flip, stack[d]]:
            return False
        present += need[flip, stack[d]]
    return present == needs[flip]


@numba.njit(cache=True, nogil=True)
def _broken(members, start, end, flipped, kept):
    """Whether a set of flips, as bits, has all members of some clause."""
    for c in range(start, end):
        if flipped[c] & members == flipped[c] and not kept[c] & members:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _after(flip, members, size, start, flipped, kept):
    """Return what follows a flip that is passed over; nothing if a clause needs it."""
    if _broken(members, start[2 * flip + 1], start[2 * flip + 2], flipped, kept):
        return size
    return flip + 1


@numba.njit(cache=True, nogil=True)
def advance(
    state, stack, found, most, variable, factor, cost, clash, need, needs, start, flipped, kept,
    sums, signs, scores, level, limits, until, table, weights, enough, first, moved, changed,
    factors,
):  # fmt: skip
    """Evaluate up to `most` more sets of flips, depth first; return how many of them were found.

    `state` has the depth, the next flip, the rest of the budget, and 1 if the current set is not
    evaluated yet; the depth is -1 at the end.  `cost` is ascending.  Row r of `found` gets ones for
    the flips of the r-th set at which a target is not excluded.  The loop pauses when `found` is
    full.
    """
    depth, following, left, fresh = state[0], state[1], state[2], state[3]
    count, size, pairs = 0, cost.size, clash.size > 0
    members = np.int64(0)
    for d in range(depth):
        members |= np.int64(1) << (stack[d] & 63)
    while depth >= 0 and most > 0 and count < found.shape[0]:
        if fresh:
            most -= 1
            fresh = 0
            if _reaches(scores, depth, enough, first):
                found[count] = 0
                for d in range(depth):
                    found[count, stack[d]] = 1
                count += 1
        while following < size:
            more = members | np.int64(1) << (following & 63)
            broken = _broken(more, start[2 * following], start[2 * following + 1], flipped, kept)
            if not broken and (not pairs or _fits(following, stack, depth, clash, need, needs)):
                break
            following = _after(following, members, size, start, flipped, kept)
        if following < size and cost[following] <= left:
            _flip(
                variable[following], factor[following], depth, sums, signs, scores, level, limits,
                until, table, weights, moved, changed, factors,
            )  # fmt: skip
            stack[depth] = following
            members |= np.int64(1) << (following & 63)
            left -= cost[following]
            depth, following, fresh = depth + 1, following + 1, 1
        else:
            depth -= 1
            if depth >= 0:
                left += cost[stack[depth]]
                members &= ~(np.int64(1) << (stack[depth] & 63))
                following = _after(stack[depth], members, size, start, flipped, kept)
    state[0], state[1], state[2], state[3] = depth, following, left, fresh
    return count
