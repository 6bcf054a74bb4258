"""Enumeration of sets of flips, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

#: Columns that are added in one go; lists of columns are filled up to a multiple of it.
GROUP = 4

#: Columns whose sum fits into 8 bits: each entry is -1, 0 or 1.
MOST_ADDED = 124

#: Changed gates that are listed at once.
LISTED = 4


@intrinsic
def _popcount(_context: Any, word: Any) -> Any:
    """Return the number of ones in a word, by the processor's own instruction."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _lowest_one(_context: Any, word: Any) -> Any:
    """Return the place of the lowest one in a word, or 64 if there is none."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@intrinsic
def _above_limits(_context: Any, values: Any, place: Any, limits: Any, limit_place: Any) -> Any:
    """Return which of 64 values are above their limits, as bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, limits = (
            builder.load(
                _block(context, builder, signature.args[k], arguments[k], arguments[k + 1], 16),
                align=2,
            )
            for k in (0, 2)
        )
        return builder.bitcast(builder.icmp_signed(">", values, limits), ir.IntType(64))

    return types.uint64(values, types.int64, limits, types.int64), generate


def _adder_of(blocks: int) -> Any:
    """Return a function that adds columns, so many blocks of 64 bytes at a time.

    The sums stay in registers, and every column is looked up once for all of its blocks.
    """

    @intrinsic
    def add_columns(
        _context: Any, total: Any, first: Any, keep: Any, columns: Any, place: Any, names: Any,
        begin: Any, end: Any,
    ) -> Any:  # fmt: skip
        """Add to totals, from place `first` on, what begins at `place` in some columns.

        The totals count from 0 unless `keep` is 1.  The columns names[begin], ..., names[end - 1]
        are added: a multiple of GROUP, and at most MOST_ADDED, so that 8 bits suffice.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds, bytes_ = signature.args, ir.VectorType(ir.IntType(8), 64)
            zero = ir.Constant(bytes_, None)
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(blocks)]
            names = context.make_array(kinds[5])(context, builder, arguments[5]).data
            count = builder.sub(arguments[7], arguments[6])
            whole = ir.IntType(64)
            with cgutils.for_range(builder, builder.sdiv(count, whole(GROUP))) as loop:
                group = builder.add(arguments[6], builder.mul(loop.index, whole(GROUP)))
                for k in range(GROUP):
                    name = builder.load(builder.gep(names, [builder.add(group, whole(k))]))
                    start = builder.add(name, arguments[4])
                    block = _block(context, builder, kinds[3], arguments[3], start, 8)
                    for number, sum_ in enumerate(sums):
                        entry = builder.load(builder.gep(block, [whole(number)]), align=1)
                        builder.store(builder.add(builder.load(sum_), entry), sum_)
            wide = ir.VectorType(ir.IntType(16), 64)
            keep = builder.trunc(arguments[2], ir.IntType(1))
            totals = _block(context, builder, kinds[0], arguments[0], arguments[1], 16)
            for number, sum_ in enumerate(sums):
                place = builder.gep(totals, [whole(number)])
                old = builder.load(place, align=2)
                kept = builder.select(keep, old, ir.Constant(wide, None))
                builder.store(
                    builder.add(kept, builder.sext(builder.load(sum_), wide)), place, align=2
                )
            return context.get_dummy_value()

        whole = types.int64
        return types.void(total, whole, whole, columns, whole, names, whole, whole), generate

    return add_columns


_add_four, _add_two, _add_one = _adder_of(4), _adder_of(2), _adder_of(1)


def _block(context: Any, builder: Any, kind: Any, array: Any, first: Any, bits: int) -> Any:
    """Return a pointer to 64 numbers of an array."""
    data = context.make_array(kind)(context, builder, array).data
    block = ir.VectorType(ir.IntType(bits), 64).as_pointer()
    return builder.bitcast(builder.gep(data, [first]), block)


# Slices are avoided below: each of them counts references, which takes longer than adding a block.


@numba.njit(cache=True, nogil=True)
def _list_changes(bits, old, new, words, size, base, zero, changed):
    """List where the columns begin of the gates that have changed; return their number.

    The bits before and after are `words` words from `old` and `new` on.  Gate g has two columns of
    `size` rows from base + 2 g size on, for becoming -1 and +1.  The list is filled up to a
    multiple of GROUP with the column of zeros.
    """
    count = 0
    for w in range(words):
        after = bits[new + w]
        moved = bits[old + w] ^ after
        end = count + np.int64(_popcount(moved))
        first = base + (w << 7) * size
        while count < end:
            # Several at once, also beyond the last one: that is quicker than to ask after each.
            for k in range(LISTED):
                gate = _lowest_one(moved)
                plus = np.int64((after >> np.uint64(gate & 63)) & np.uint64(1))
                changed[np.uint64(count + k)] = first + (2 * gate + plus) * size
                moved &= moved - np.uint64(1)
            count += LISTED
        count = end
    for k in range(GROUP):
        changed[count + k] = zero
    return (count + GROUP - 1) // GROUP * GROUP


@numba.njit(cache=True, nogil=True)
def _add(moved, place, keep, columns, base, end, changed, first, last):
    """Add some columns to the gates from `place` to `end`; column entry 0 is about gate `base`."""
    while place + 256 <= end:
        _add_four(moved, place, keep, columns, place - base, changed, first, last)
        place += 256
    while place + 128 <= end:
        _add_two(moved, place, keep, columns, place - base, changed, first, last)
        place += 128
    if place < end:
        _add_one(moved, place, keep, columns, place - base, changed, first, last)


@numba.njit(cache=True, nogil=True)
def _flip(room, bits, depth, moved, gains, flip, levels, changed):
    """Fill the bits of depth + 1 after a flip, and by how much the sums move (by twice that).

    The sums of the first level move by the flip's own row of `gains`.
    """
    gate, columns, start = levels.gate, levels.columns, levels.start
    total = gate[gate.size - 1]
    row, old = depth * total, depth * (total >> 6)
    new, zero = old + (total >> 6), start[start.size - 1]
    size = np.uint64(gate[1])
    # Unsigned places need no check for negative ones, so that the loop can be vectorised.
    for j in range(size):
        moved[j] = gains[np.uint64(flip) * size + j]
    for place in range(0, gate[1], 64):
        bits[new + (place >> 6)] = _above_limits(moved, place, room, row + place)
    for level in range(1, gate.size - 1):
        below, first, end = gate[level - 1], gate[level], gate[level + 1]
        count = _list_changes(
            bits, old + (below >> 6), new + (below >> 6), (first - below) >> 6, end - first,
            start[level], zero, changed,
        )  # fmt: skip
        _add(moved, first, 0, columns, first, end, changed, 0, min(count, MOST_ADDED))
        for more in range(MOST_ADDED, count, MOST_ADDED):
            last = min(count, more + MOST_ADDED)
            _add(moved, first, 1, columns, first, end, changed, more, last)
        for place in range(first, end, 64):
            bits[new + (place >> 6)] = _above_limits(moved, place, room, row + place)


@numba.njit(cache=True, nogil=True)
def _descend(room, depth, moved):
    """Fill the room of depth + 1 after a flip, from which further ones are evaluated."""
    total = np.uint64(moved.size)
    old = np.uint64(depth) * total
    for j in range(total):
        room[old + total + j] = room[old + j] - moved[j]


@numba.njit(cache=True, nogil=True)
def _evaluate(bits, first, objectives, counts, lower):
    """Fill `lower` with the objectives' values, given the bits of the last level.

    Part p of objective k is number p * lower.size + k.
    """
    signs, masks, scale = objectives.signs, objectives.masks, objectives.scale
    for p in range(counts.size):
        counts[p] = 0
    for w in range(signs.shape[0]):
        word = bits[first + w]
        for p in range(counts.size):
            counts[p] += np.int64(_popcount((word ^ signs[w, p]) & masks[w, p]))
    for k in range(lower.size):
        lower[k] = objectives.constant[k]
    for part in range(0, counts.size, lower.size):
        for k in range(lower.size):
            lower[k] -= scale[part + k] * counts[part + k]


@numba.njit(cache=True, nogil=True)
def _violates(lower, goal, target, wanted, excluded, largest, least):
    """Whether some wanted target is not excluded; note the least bounds of those that are."""
    for t in range(wanted.size):
        excluded[t] = not wanted[t]
        largest[t] = -np.inf
    for k in range(lower.size):
        t = target[k]
        excluded[t] |= lower[k] > goal[k]
        largest[t] = max(largest[t], lower[k])
    violates = False
    for t in range(wanted.size):
        violates |= not excluded[t]
        if wanted[t] and excluded[t]:
            least[t] = min(least[t], largest[t])
    return violates


@numba.njit(cache=True, nogil=True)
def enumerate_flips(
    room_at_base, flips, left, first_flip, last_flip, levels, objectives, wanted, goal, found, least
):
    """Evaluate the sets of flips whose costs fit `left`, depth first, each from the one before it.

    The first flip of a set is from `first_flip` on and before `last_flip`; the empty set is
    evaluated where `first_flip` is 0.  Row r of `found` gets the flips of the r-th violating set,
    ended by -1.
    Returns the number of sets that were evaluated and of those that violate; the enumeration ends
    early when `found` is full, and then the first number is negative.
    """
    cost, clash, size, gate = flips.cost, flips.clash, flips.cost.size, levels.gate
    deepest = _most_flips(cost, left) + 1
    total = room_at_base.size
    room = np.zeros((deepest + 1) * total, np.int16)
    moved = np.zeros(total, np.int16)
    bits = np.zeros((deepest + 1) * (total >> 6), np.uint64)
    words = np.zeros((deepest + 1, 2), np.uint64)
    stack = np.zeros(deepest + 1, np.int64)
    changed = np.zeros(total + LISTED + GROUP, np.int64)
    lower = np.zeros(objectives.constant.size)
    counts = np.zeros(objectives.scale.size, np.int64)
    excluded, largest = np.zeros(wanted.size, np.bool_), np.zeros(wanted.size)
    room[:total] = room_at_base
    for w in range(total >> 6):
        bits[w] = _above_limits(moved, w << 6, room, w << 6)
    depth, count, violations, following = 0, 0, 0, first_flip
    fresh = first_flip == 0
    while True:
        if fresh:
            count += 1
            _evaluate(bits, (depth * total + gate[gate.size - 2]) >> 6, objectives, counts, lower)
            if _violates(lower, goal, objectives.target, wanted, excluded, largest, least):
                _note(found, violations, stack, depth)
                violations += 1
                if violations == found.shape[0]:
                    return -count, violations
            fresh = False
        end = last_flip if depth == 0 else size
        if clash.size > 0:
            following = _next_flip(words[depth], flips.need, following, end)
        if following < end and cost[following] <= left:
            _flip(room, bits, depth, moved, flips.gains, following, levels, changed)
            left -= cost[following]
            stack[depth] = following
            if clash.size > 0:
                _enter(words[depth], words[depth + 1], clash, following)
            depth += 1
            following += 1
            fresh = True
            if following < size and cost[following] <= left:
                _descend(room, depth - 1, moved)
        else:
            if depth == 0:
                return count, violations
            depth -= 1
            left += cost[stack[depth]]
            following = stack[depth] + 1


@numba.njit(cache=True, nogil=True)
def _note(found, row, stack, depth):
    """Note the flips of a violating set."""
    for d in range(depth):
        found[row, d] = stack[d]
    found[row, depth] = -1


@numba.njit(cache=True, nogil=True)
def _most_flips(cost, left):
    """Return how many flips fit; `cost` is ascending."""
    for k in range(cost.size):
        if cost[k] > left:
            return k
        left -= cost[k]
    return cost.size


@numba.njit(cache=True, nogil=True)
def _next_flip(words, need, following, end):
    """Return the next flip that clashes with no member and needs nothing but members."""
    while following < end:
        bit = np.uint64(1) << np.uint64(following)
        if not (words[1] & bit) and not (need[following] & ~words[0]):
            return following
        following += 1
    return end


@numba.njit(cache=True, nogil=True)
def _enter(words, new_words, clash, flip):
    """Fill the words of members and of what clashes with them, after one more flip."""
    new_words[0] = words[0] | np.uint64(1) << np.uint64(flip)
    new_words[1] = words[1] | clash[flip]
