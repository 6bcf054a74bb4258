"""Enumeration of the sign patterns that a box has, compiled by numba.

A tree decides one sign after the other.  A state of the feasibility check belongs to each of its
nodes: multipliers theta >= 0 of the decided literals, v = sum theta_j s_j a_j, and the point
d = v cut to [-1, 1]; this is the point of least length with the decided signs once theta is optimal
(the dual problem of least squares).  A child whose sign the point has already needs no work.  For
any other one, sweeps over the decided literals change one multiplier at a time (Hildreth's method)
until the point has all signs, or until F(theta) < 0 proves that there is none (see `cells`).
What a few sweeps leave undecided counts as feasible.

Arrays that belong together are passed as tuples:

* check: the rows (`CheckedRows`);
* states: theta, v and d of every state, and room for v and theta of one proof;
* proofs: rows of theta_j s_j for all neurons j, and `counts`, the numbers of patterns evaluated, of
  patterns found and of proofs;
* patterns: what the evaluation of patterns needs, one row for each number of flips;
* goals: the targets that are wanted, the goals, and for each target the least bound so far.
"""

from __future__ import annotations

import numba
import numpy as np

from bnncert.engine.search.patterns.enumeration_loop import (
    GROUP,
    LISTED,
    _above_limits,
    _descend,
    _evaluate,
    _flip,
    _note,
    _violates,
)

#: A literal is satisfied at a point if it misses zero by no more than this.
TOLERANCE = 1e-3

#: The least share of a row's length that counts as its curvature, where nearly all of it is cut.
LEAST_CURVATURE = 0.1


@numba.njit(cache=True, nogil=True, fastmath=True)
def _value(directions, row, point):
    """Return a_j.d."""
    total = np.float32(0)
    for i in range(point.size):
        total += directions[row, i] * point[i]
    return total


@numba.njit(cache=True, nogil=True, fastmath=True)
def _value_and_curvature(directions, row, point, sums):
    """Return a_j.d and the part of |a_j|^2 where d is not cut."""
    total, curvature = np.float32(0), np.float32(0)
    for i in range(point.size):
        a = directions[row, i]
        total += a * point[i]
        curvature += a * a if abs(sums[i]) < 1 else np.float32(0)
    return total, curvature


@numba.njit(cache=True, nogil=True, fastmath=True)
def _move(directions, row, step, sums, point):
    """Add a multiple of a row to v, and cut the result."""
    for i in range(point.size):
        moved = sums[i] + step * directions[row, i]
        sums[i] = moved
        point[i] = min(max(moved, np.float32(-1)), np.float32(1))


@numba.njit(cache=True, nogil=True, fastmath=True)
def _length(sums):
    """Return sum_i |v_i|."""
    total = np.float32(0)
    for i in range(sums.size):
        total += abs(sums[i])
    return total


@numba.njit(cache=True, nogil=True)
def _settle(check, chain, signs, count, states, state, sweeps):
    """Improve the multipliers of a state; True if F(theta) < 0, which is only float32 yet.

    The literals are those of the neurons chain[0], ..., chain[count - 1].
    """
    directions, distances = check.directions, check.distances
    theta, sums, point = states[0][state], states[1][state], states[2][state]
    for _ in range(sweeps):
        worst = 0.0
        for k in range(count - 1, -1, -1):
            row, sign = chain[k], signs[k]
            value, curvature = _value_and_curvature(directions, row, point, sums)
            miss = -sign * (value + distances[row])
            if miss > TOLERANCE or (theta[k] > 0 and miss < -TOLERANCE):
                worst = max(worst, miss)
                new = max(0.0, theta[k] + miss / max(curvature, LEAST_CURVATURE))
                if new != theta[k]:
                    _move(directions, row, np.float32(sign * (new - theta[k])), sums, point)
                    theta[k] = new
        if worst <= TOLERANCE:
            return False
        total = float(_length(sums))
        for k in range(count):
            total += theta[k] * signs[k] * distances[chain[k]]
        if total < 0:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _infeasibility(check, chain, signs, count, theta, sums):
    """Return F(theta) in float64, where a negative value is a proof, and fill v."""
    rows, need, lengths = check.rows, check.need, check.lengths
    sums[:] = 0
    total = 0.0
    for k in range(count):
        if theta[k] > 0:
            row, multiplier = chain[k], theta[k] / lengths[chain[k]]
            for i in range(sums.size):
                sums[i] += signs[k] * multiplier * rows[row, i]
            total += multiplier * need[0 if signs[k] > 0 else 1, row]
    for i in range(sums.size):
        total += abs(sums[i])
    return total


@numba.njit(cache=True, nogil=True)
def _shorten(check, chain, signs, count, theta, sums):
    """Set multipliers to zero, the smallest first, as long as F stays negative."""
    rows, need, lengths = check.rows, check.need, check.lengths
    total = _infeasibility(check, chain, signs, count, theta, sums)
    for k in np.argsort(theta[:count]):
        if theta[k] <= 0:
            continue
        row, multiplier = chain[k], theta[k] / lengths[chain[k]]
        rest = -multiplier * need[0 if signs[k] > 0 else 1, row]
        for i in range(sums.size):
            rest += abs(sums[i] - signs[k] * multiplier * rows[row, i]) - abs(sums[i])
        if total + rest < 0:
            total += rest
            theta[k] = 0.0
            for i in range(sums.size):
                sums[i] -= signs[k] * multiplier * rows[row, i]


@numba.njit(cache=True, nogil=True)
def _excludes(check, chain, signs, count, states, state, sweeps, proofs):
    """Whether literals are proved to exclude each other; the proof is kept while there is room."""
    if not _settle(check, chain, signs, count, states, state, sweeps):
        return False
    theta, exact, short = states[0][state], states[3], states[4]
    # Not ">= 0": what is not a number proves nothing.
    if not _infeasibility(check, chain, signs, count, theta, exact) < 0:
        return False
    signed, counts = proofs
    if counts[2] < signed.shape[0]:
        short[:count] = theta[:count]
        _shorten(check, chain, signs, count, short, exact)
        # The differences were rounded, so that F is computed once more.
        if not _infeasibility(check, chain, signs, count, short, exact) < 0:
            short[:count] = theta[:count]
        for k in range(count):
            signed[counts[2], chain[k]] = signs[k] * short[k] / check.lengths[chain[k]]
        counts[2] += 1
    return True


@numba.njit(cache=True, nogil=True)
def _new_states(count, size, width):
    """Return so many states of a check of `size` literals."""
    return (
        np.zeros((count, size)),
        np.zeros((count, width), np.float32),
        np.zeros((count, width), np.float32),
        np.zeros(width),
        np.zeros(size),
    )


@numba.njit(cache=True, nogil=True)
def _copy_state(states, state):
    """Copy a state to the next one."""
    theta, sums, point, _, _ = states
    theta[state + 1] = theta[state]
    sums[state + 1] = sums[state]
    point[state + 1] = point[state]


@numba.njit(cache=True, nogil=True)
def exclude_node(check, chain, signs, sweeps, proofs):
    """Whether the literals of a node are proved to exclude each other."""
    states = _new_states(1, chain.size, check.rows.shape[1])
    return _excludes(check, chain, signs, chain.size, states, 0, sweeps, proofs)


@numba.njit(cache=True, nogil=True)
def _decide(check, chain, signs, k, states, state, sweeps, proofs):
    """Decide the sign of chain[k]; return the state after it, or -1 if it is excluded."""
    row = chain[k]
    value = _value(check.directions, row, states[2][state]) + check.distances[row]
    if signs[k] * value >= 0:
        return state
    _copy_state(states, state)
    states[0][state + 1, k:] = 0.0
    if _excludes(check, chain, signs, k + 1, states, state + 1, sweeps, proofs):
        return -1
    return state + 1


@numba.njit(cache=True, nogil=True)
def _clashes(clash, literal, decided):
    """Whether a literal excludes one of the decided ones."""
    common = np.uint64(0)
    for w in range(decided.size):
        common |= clash[literal, w] & decided[w]
    return common != 0


@numba.njit(cache=True, nogil=True)
def _new_patterns(room, depth, objectives, goals):
    """Return what the evaluation of patterns needs, for so many flips at most."""
    total = room.size
    rooms, moved = np.zeros((depth + 1) * total, np.int16), np.zeros(total, np.int16)
    bits = np.zeros((depth + 1) * (total >> 6), np.uint64)
    rooms[:total] = room
    for w in range(total >> 6):
        bits[w] = _above_limits(moved, w << 6, rooms, w << 6)
    has_room = np.zeros(depth + 1, np.bool_)
    has_room[0] = True
    changed = np.zeros(total + LISTED + GROUP, np.int64)
    targets, lower = goals[0].size, np.zeros(objectives.constant.size)
    counts = np.zeros(objectives.scale.size, np.int64)
    excluded, largest = np.zeros(targets, np.bool_), np.zeros(targets)
    return rooms, has_room, moved, bits, changed, lower, counts, excluded, largest


@numba.njit(cache=True, nogil=True)
def _flip_one(patterns, depth, flips, flip, levels):
    """Evaluate one more flip after `depth` flips, as far as the last level's signs."""
    rooms, has_room, moved, bits, changed, _, _, _, _ = patterns
    if not has_room[depth]:
        # The flip made last is that of this depth, so that `moved` still belongs to it.
        _descend(rooms, depth - 1, moved)
        has_room[depth] = True
    _flip(rooms, bits, depth, moved, flips.gains, flip, levels, changed)
    has_room[depth + 1] = False


@numba.njit(cache=True, nogil=True)
def _reaches(patterns, depth, levels, objectives, goals):
    """Whether the pattern after `depth` flips reaches a wanted target."""
    _, _, moved, bits, _, lower, counts, excluded, largest = patterns
    wanted, goal, least = goals
    first = (depth * moved.size + levels.gate[levels.gate.size - 2]) >> 6
    _evaluate(bits, first, objectives, counts, lower)
    return _violates(lower, goal, objectives.target, wanted, excluded, largest, least)


@numba.njit(cache=True, nogil=True)
def enumerate_cells(
    check, clash, chain, signs, fixed, unchecked, sweeps, room, flips, levels, objectives, goals,
    found, proofs,
):  # fmt: skip
    """Evaluate the patterns of a node, except for most of those that the box does not have.

    The first `fixed` neurons of `chain` have the signs that the node gives them, the others those
    of the base, from which they are flipped in this order.  Signs of the last `unchecked` neurons
    are decided without a feasibility check.  A literal excludes those in its words of `clash`.  Row
    r of `found` gets the flips of the r-th violating pattern, counted from the first neuron that is
    not fixed and ended by -1.  Returns False if `found` is full, so that patterns are missing.
    """
    size, counts = chain.size, proofs[1]
    states = _new_states(size + 2, size, check.rows.shape[1])
    if _excludes(check, chain, signs, fixed, states, 0, 4 * sweeps, proofs):
        return True
    patterns = _new_patterns(room, size - fixed + 1, objectives, goals)
    decided, base = np.zeros(clash.shape[1], np.uint64), signs.copy()
    for k in range(fixed):
        _set(decided, chain[k], signs[k], True)
    # The state at each level, how many signs were tried there, and the flips made.
    state, tried = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    stack, depth, k = np.zeros(size + 1, np.int64), 0, fixed
    while True:
        if k == size:
            counts[0] += 1
            if _reaches(patterns, depth, levels, objectives, goals):
                _copy_state(states, state[k])
                own = state[k] + 1
                if not _excludes(check, chain, signs, size, states, own, 4 * sweeps, proofs):
                    _note(found, counts[1], stack, depth)
                    counts[1] += 1
                    if counts[1] == found.shape[0]:
                        return False
            k -= 1
        if k < fixed:
            return True
        if tried[k]:
            _set(decided, chain[k], signs[k], False)
        if tried[k] == 2:
            depth -= int(depth > 0 and stack[depth - 1] == k - fixed)
            tried[k], signs[k] = 0, base[k]
            k -= 1
            continue
        signs[k] = -base[k] if tried[k] else base[k]
        tried[k] += 1
        if _clashes(clash, 2 * chain[k] + (signs[k] < 0), decided):
            continue
        own = state[k]
        if size - 1 - k >= unchecked:
            own = _decide(check, chain, signs, k, states, own, sweeps, proofs)
            if own < 0:
                continue
        _set(decided, chain[k], signs[k], True)
        if tried[k] == 2:
            _flip_one(patterns, depth, flips, k - fixed, levels)
            stack[depth] = k - fixed
            depth += 1
        k += 1
        state[k] = own


@numba.njit(cache=True, nogil=True)
def _set(decided, neuron, sign, holds):
    """Enter whether the literal of a neuron and a sign is decided."""
    literal = 2 * neuron + (sign < 0)
    bit = np.uint64(1) << np.uint64(literal & 63)
    if holds:
        decided[literal >> 6] |= bit
    else:
        decided[literal >> 6] &= ~bit
