"""The steps of the loop over sets of flips that go through 64 gates at once, compiled by numba.

A block is 64 numbers of an array that follow each other; its comparisons are the bits of a word.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

#: Columns that are added in one go.
GROUP = 4

_WHOLE = ir.IntType(64)


def _blocks(context: Any, builder: Any, kind: Any, array: Any, first: Any) -> Any:
    """Return a pointer to the blocks of an array of 8 or 16 bit numbers that begin at `first`."""
    data = context.make_array(kind)(context, builder, array).data
    block = ir.VectorType(ir.IntType(kind.dtype.bitwidth), 64).as_pointer()
    return builder.bitcast(builder.gep(data, [first]), block)


@intrinsic
def lowest_one(_context: Any, word: Any) -> Any:
    """Return the place of the lowest one in a word, or 64 if there is none."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@intrinsic
def ones(_context: Any, word: Any) -> Any:
    """Return the number of ones in a word."""

    def generate(_: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.ctpop(given[0])

    return types.int64(types.uint64), generate


@intrinsic
def above(_context: Any, values: Any, first: Any, limits: Any, place: Any) -> Any:
    """Return which of the 64 values from `first` on are above the limits from `place` on."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        value, limit = (
            builder.load(_blocks(context, builder, signature.args[k], *given[k : k + 2]), align=2)
            for k in (0, 2)
        )
        return builder.bitcast(builder.icmp_signed(">", value, limit), _WHOLE)

    return types.uint64(values, types.int64, limits, types.int64), generate


def _adder(count: int) -> Any:
    """Return a function that adds columns of a table in so many blocks."""

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
