"""The loop over sets of flips, compiled by numba: each pattern is evaluated from the one before it.

An item is a first-layer variable or a gate.  For every level the table has two columns for each
item, with what the sums gain if it becomes -1 or +1: half of the change, which is the weight or its
opposite.  Row d of `room` is about the first d flips of the present set: a gate is +1 if its sum
gains more than its room, so that it is +1 without a gain if the room is negative.  Row d of `bits`
has these signs, 64 gates in a word.  A block is 64 numbers of an array that follow each other; its
comparisons are the bits of a word.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from bnncert.kernel.budget import CompiledFunction

#: Columns that are added in one go.
GROUP = 4

_WHOLE = ir.IntType(64)


def _blocks(context: Any, builder: Any, kind: Any, array: Any, first: Any) -> Any:
    """Point to the blocks of an array of 8 or 16 bit numbers that begin at `first`."""
    data = context.make_array(kind)(context, builder, array).data
    block = ir.VectorType(ir.IntType(kind.dtype.bitwidth), 64).as_pointer()
    return builder.bitcast(builder.gep(data, [first]), block)


@intrinsic
def lowest_one(_context: Any, word: Any) -> Any:
    """Find the place of the lowest one in a word, or 64 if there is none."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@intrinsic
def ones(_context: Any, word: Any) -> Any:
    """Count the ones in a word."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.ctpop(given[0])

    return types.int64(types.uint64), generate


@intrinsic
def above(_context: Any, values: Any, first: Any, limits: Any, place: Any) -> Any:
    """Compare the 64 values from `first` on with the limits from `place` on; above is 1."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        value, limit = (
            builder.load(_blocks(context, builder, signature.args[k], *given[k : k + 2]), align=2)
            for k in (0, 2)
        )
        return builder.bitcast(builder.icmp_signed(">", value, limit), _WHOLE)

    return types.uint64(values, types.int64, limits, types.int64), generate


def _adder(count: int) -> Any:
    """Make a function that adds columns of a table in so many blocks."""

    @intrinsic
    def add(
        _context: Any, sums: Any, first: Any, keep: Any, table: Any, place: Any, size: Any,
        columns: Any, begin: Any, end: Any,
    ) -> Any:  # fmt: skip
        """Add table[size c + place], ... to the sums from `first` on, for c in columns[begin:end].

        The sums count from 0 unless `keep` is 1.  The number of columns is a multiple of GROUP, and
        no sum of their entries may need more than 8 bits.
        """

        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            kinds, bytes_ = signature.args, ir.VectorType(ir.IntType(8), 64)
            zero, wide = ir.Constant(bytes_, None), ir.VectorType(ir.IntType(16), 64)
            totals = [cgutils.alloca_once_value(builder, zero) for _ in range(count)]
            names = context.make_array(kinds[6])(context, builder, given[6]).data
            groups = builder.sdiv(builder.sub(given[8], given[7]), _WHOLE(GROUP))
            with cgutils.for_range(builder, groups) as loop:
                group = builder.add(given[7], builder.mul(loop.index, _WHOLE(GROUP)))
                for member in range(GROUP):
                    name = builder.load(builder.gep(names, [builder.add(group, _WHOLE(member))]))
                    start = builder.add(builder.mul(name, given[5]), given[4])
                    column = _blocks(context, builder, kinds[3], given[3], start)
                    for k, total in enumerate(totals):
                        entries = builder.load(builder.gep(column, [_WHOLE(k)]), align=1)
                        builder.store(builder.add(builder.load(total), entries), total)
            target = _blocks(context, builder, kinds[0], *given[:2])
            keep = builder.trunc(given[2], ir.IntType(1))
            for k, total in enumerate(totals):
                place, extended = builder.gep(target, [_WHOLE(k)]), builder.load(total)
                extended, old = builder.sext(extended, wide), builder.load(place, align=2)
                kept = builder.select(keep, old, ir.Constant(wide, None))
                builder.store(builder.add(kept, extended), place, align=2)
            return context.get_dummy_value()

        whole = types.int64
        return types.void(sums, whole, whole, table, whole, whole, columns, whole, whole), generate

    return add


add_one, add_four = _adder(1), _adder(4)


#: Changes that are listed in one go, which is quicker than to ask after each; the list needs room
#: for so many more.
LISTED = 4


@numba.njit(cache=True, nogil=True)
def _fill_up(changed, count, zero):
    """Fill the list of columns up to a multiple of GROUP with the column of zeros."""
    for k in range(GROUP):
        changed[count + k] = zero
    return (count + GROUP - 1) // GROUP * GROUP


@numba.njit(cache=True, nogil=True)
def _list(bits, old, new, words, item, changed, count):
    """List the columns of the gates that have changed; `item` is the first of them."""
    for w in range(words):
        after = bits[new + w]
        moved = bits[old + w] ^ after
        end, first = count + ones(moved), item + (w << 6)
        while count < end:
            for k in range(LISTED):
                gate = lowest_one(moved)
                sign = np.int64((after >> np.uint64(gate & 63)) & np.uint64(1))
                changed[np.uint64(count + k)] = 2 * (first + gate) + sign
                moved &= moved - np.uint64(1)
            count += LISTED
        count = end
    return count


@numba.njit(cache=True, nogil=True)
def _gain(gains, first, end, table, start, changed, begin, count, together):
    """Fill the gains of the gates from `first` to `end` by the changes from `begin` on."""
    size, keep = end - first, 0
    while begin < count or not keep:
        last, place = min(count, begin + together), first
        while place + 256 <= end:
            entry = start + place - first
            add_four(gains, place, keep, table, entry, size, changed, begin, last)
            place += 256
        while place < end:
            entry = start + place - first
            add_one(gains, place, keep, table, entry, size, changed, begin, last)
            place += 64
        begin, keep = last, 1


@numba.njit(cache=True, nogil=True)
def _flip(
    column, row, room, bits, gains, level, lowest, table, entries, together, inputs, changed, begin
):
    """Fill row + 1 of the bits and the gains: what one more flip changes."""
    gates = level[level.size - 1]
    old, zero = row * (gates >> 6), 2 * (inputs + gates)
    new = old + (gates >> 6)
    changed[0], begin[0] = column, 0
    count = _fill_up(changed, 1, zero)
    for number in range(level.size - 1):
        first, end = level[number], level[number + 1]
        _gain(
            gains, first, end, table, entries[number], changed, begin[lowest[number]], count,
            together,
        )  # fmt: skip
        for place in range(first, end, 64):
            bits[new + (place >> 6)] = above(gains, place, room, row * gates + place)
        begin[number + 1] = count
        if number < level.size - 2:
            word, words = first >> 6, (end - first) >> 6
            count = _list(bits, old + word, new + word, words, inputs + first, changed, count)
            count = _fill_up(changed, count, zero)


@numba.njit(cache=True, nogil=True)
def _descend(row, room, gains):
    """Fill row + 1 of the room after the last flip."""
    gates = np.uint64(gains.size)
    own = np.uint64(row) * gates
    # Places without a sign need no check for negative ones, so that this becomes vector code.
    for gate in range(gates):
        room[own + gates + gate] = room[own + gate] - gains[gate]


@numba.njit(cache=True, nogil=True)
def _reaches(bits, last, targets):
    """Whether some target has no function that is large enough; they are the last gates."""
    for target in range(targets.shape[0]):
        excluded = False
        for w in range(targets.shape[1]):
            excluded |= (bits[last + w] & targets[target, w]) != 0
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
    """Find what follows a flip that is passed over; nothing if a clause needs it."""
    if _broken(members, start[2 * flip + 1], start[2 * flip + 2], flipped, kept):
        return size
    return flip + 1


@numba.njit(cache=True, nogil=True)
def advance(
    state, stack, found, most, columns, cost, clash, need, needs, start, flipped, kept, room, bits,
    gains, level, lowest, table, entries, together, inputs, targets, changed, begin,
):  # fmt: skip
    """Evaluate up to `most` more sets of flips, depth first; return how many of them were found.

    `state` has the depth, the next flip, the rest of the budget, and 1 if the current set is not
    evaluated yet; the depth is -1 at the end.  `cost` is ascending.  Row r of `found` gets ones for
    the flips of the r-th set at which a target is not excluded.  The loop pauses when `found` is
    full.
    """
    depth, following, left, fresh = state[0], state[1], state[2], state[3]
    count, size, pairs = 0, cost.size, clash.size > 0
    words, members = level[level.size - 1] >> 6, np.int64(0)
    for d in range(depth):
        members |= np.int64(1) << (stack[d] & 63)
    while depth >= 0 and most > 0 and count < found.shape[0]:
        if fresh:
            most -= 1
            fresh = 0
            if _reaches(bits, (depth + 1) * words - targets.shape[1], targets):
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
                columns[following], depth, room, bits, gains, level, lowest, table, entries,
                together, inputs, changed, begin,
            )  # fmt: skip
            stack[depth] = following
            members |= np.int64(1) << (following & 63)
            left -= cost[following]
            depth, following, fresh = depth + 1, following + 1, 1
            if following < size and cost[following] <= left:
                _descend(depth - 1, room, gains)
        else:
            depth -= 1
            if depth >= 0:
                left += cost[stack[depth]]
                members &= ~(np.int64(1) << (stack[depth] & 63))
                following = _after(stack[depth], members, size, start, flipped, kept)
    state[0], state[1], state[2], state[3] = depth, following, left, fresh
    return count


#: `advance`, whose first call keeps the time limit.
timely_advance = CompiledFunction(advance)
