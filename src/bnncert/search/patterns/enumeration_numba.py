"""Enumeration of sets of flips, compiled by numba (extra `fast`)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def _popcount(_context: Any, word: Any) -> Any:
    """Return the number of ones in a word, by the processor's own instruction."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def _lowest_one(_context: Any, word: Any) -> Any:
    """Return the place of the lowest one in a word that is not 0."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

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


@intrinsic
def _add_blocks(
    _context: Any, total: Any, first: Any, keep: Any, columns: Any, place: Any, up: Any,
    up_from: Any, up_end: Any, down: Any, down_from: Any, down_end: Any,
) -> Any:  # fmt: skip
    """Add to 64 totals, from place `first` on, the blocks that begin at `place` in some columns.

    The totals count from 0 unless `keep` is 1.
    The columns up[up_from], ..., up[up_end - 1] are added, and those of `down` subtracted; at most
    127 together, so that 8 bits suffice for their sum.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, bytes_ = signature.args, ir.VectorType(ir.IntType(8), 64)
        sum_ = cgutils.alloca_once_value(builder, ir.Constant(bytes_, None))
        for which, change in ((5, builder.add), (8, builder.sub)):
            names = context.make_array(kinds[which])(context, builder, arguments[which]).data
            first, end = arguments[which + 1], arguments[which + 2]
            with cgutils.for_range(builder, builder.sub(end, first)) as loop:
                column = builder.load(builder.gep(names, [builder.add(first, loop.index)]))
                start = builder.add(column, arguments[4])
                block = _block(context, builder, kinds[3], arguments[3], start, 8)
                changed = change(builder.load(sum_), builder.load(block, align=1))
                builder.store(changed, sum_)
        wide = ir.VectorType(ir.IntType(16), 64)
        totals = _block(context, builder, kinds[0], arguments[0], arguments[1], 16)
        kept = builder.select(
            builder.trunc(arguments[2], ir.IntType(1)),
            builder.load(totals, align=2),
            ir.Constant(wide, None),
        )
        added = builder.add(kept, builder.sext(builder.load(sum_), wide))
        builder.store(added, totals, align=2)
        return context.get_dummy_value()

    whole = types.int64
    given = (total, whole, whole, columns, whole, up, whole, whole, down, whole, whole)
    return types.void(*given), generate


def _block(context: Any, builder: Any, kind: Any, array: Any, first: Any, bits: int) -> Any:
    """Return a pointer to 64 numbers of an array."""
    data = context.make_array(kind)(context, builder, array).data
    block = ir.VectorType(ir.IntType(bits), 64).as_pointer()
    return builder.bitcast(builder.gep(data, [first]), block)


# Slices are avoided below: each of them counts references, which takes longer than adding a block.


@numba.njit(cache=True, nogil=True)
def _list_changes(bits, old, new, words, size, base, up, down):
    """List where the columns of the gates begin that have become +1 (`up`) and -1 (`down`).

    The bits before and after are `words` words from `old` and `new` on; columns have `size` rows
    and begin at `base`.
    """
    ups, downs = 0, 0
    for w in range(words):
        before, after = bits[old + w], bits[new + w]
        risen, fallen = after & ~before, before & ~after
        while risen:
            up[ups] = base + ((w << 6) + _lowest_one(risen)) * size
            ups += 1
            risen &= risen - np.uint64(1)
        while fallen:
            down[downs] = base + ((w << 6) + _lowest_one(fallen)) * size
            downs += 1
            fallen &= fallen - np.uint64(1)
    return ups, downs


@numba.njit(cache=True, nogil=True)
def _move(room, row, bits, new, moved, columns, first, end, up, ups, down, downs):
    """Fill the changes of the sums of the gates from `first` to `end`, and their new bits."""
    for place in range(first, end, 64):
        k, m, keep = 0, 0, 0
        while True:
            last_up, last_down = min(k + 63, ups), min(m + 63, downs)
            _add_blocks(
                moved, place, keep, columns, place - first, up, k, last_up, down, m, last_down
            )
            k, m, keep = last_up, last_down, 1
            if k == ups and m == downs:
                break
        bits[new + (place >> 6)] = _above_limits(moved, place, room, row + place)


@numba.njit(cache=True, nogil=True)
def _flip(room, bits, depth, moved, flips, flip, levels, up, down):
    """Fill the bits of depth + 1 after a flip, and by how much the sums move (by twice that)."""
    gate, sign = levels.gate, flips.signs[flip]
    total = gate[gate.size - 1]
    row, old = depth * total, depth * (total >> 6)
    new = old + (total >> 6)
    up[0] = flip * gate[1]
    ups, downs = int(sign > 0), int(sign < 0)
    _move(room, row, bits, new, moved, flips.gains, 0, gate[1], up, ups, up, downs)
    for level in range(1, gate.size - 1):
        below, first, end = gate[level - 1], gate[level], gate[level + 1]
        ups, downs = _list_changes(
            bits, old + (below >> 6), new + (below >> 6), (first - below) >> 6, end - first,
            levels.start[level], up, down,
        )  # fmt: skip
        _move(room, row, bits, new, moved, levels.columns, first, end, up, ups, down, downs)


@numba.njit(cache=True, nogil=True)
def _evaluate(bits, first, objectives, counts, lower):
    """Fill `lower` with the objectives' values, given the bits of the last level."""
    counts[:] = 0
    signs, masks, part = objectives.signs, objectives.masks, objectives.part
    scale, reach = objectives.scale, objectives.reach
    for w in range(signs.shape[0]):
        word = bits[first + w]
        for p in range(counts.size):
            counts[p] += _popcount((word ^ signs[w, p]) & masks[w, p])
    lower[:] = objectives.constant
    for p in range(part.size):
        lower[part[p]] += reach[p] - 2 * scale[p] * np.float64(counts[p])


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
    up, down = np.zeros(total, np.int64), np.zeros(total, np.int64)
    lower = np.zeros(objectives.constant.size)
    counts = np.zeros(objectives.part.size, np.uint64)
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
            _flip(room, bits, depth, moved, flips, following, levels, up, down)
            left -= cost[following]
            stack[depth] = following
            if clash.size > 0:
                _enter(words[depth], words[depth + 1], clash, following)
            depth += 1
            following += 1
            fresh = True
            if following < size and cost[following] <= left:
                # The sets that begin with this one are evaluated from here.
                row = depth * total
                for j in range(total):
                    room[row + j] = room[row - total + j] - moved[j]
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
