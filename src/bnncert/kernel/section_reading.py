"""Clauses and the numbers of leaves, read from sections.

This module, `container` and `statement` define the format; the other modules check the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bnncert.kernel.container import LEAF_ARRAYS, RejectedError, Section, UnreadableError
from bnncert.kernel.sparse import Integers

#: The finest unit of a leaf's numbers is 2^-FINEST.
FINEST = 48

#: Sums of products of these numbers stay below four times this, and so within 64-bit integers.
MOST = 2**61


@dataclass(frozen=True, eq=False)
class Clauses:
    """Clause k states that the entries start[k]:start[k+1] cannot all hold.

    An entry is a neuron and a sign with a multiplier theta; the neuron -1 - i is inequality i of
    the region, which always holds.
    """

    start: Integers
    neuron: Integers
    sign: Integers
    theta: Integers

    @property
    def count(self) -> int:
        """The number of clauses."""
        return int(self.start.size - 1)

    @property
    def owner(self) -> Integers:
        """The clause of every entry."""
        return np.repeat(np.arange(self.count), np.diff(self.start))

    def part(self, first: int, last: int) -> Clauses:
        """Take the clauses first, .., last - 1."""
        a, b = int(self.start[first]), int(self.start[last])
        start = self.start[first : last + 1] - a
        return Clauses(start, self.neuron[a:b], self.sign[a:b], self.theta[a:b])

    def parts(self, size: int = 1000) -> Iterator[Clauses]:
        """Yield all clauses, `size` at a time."""
        for first in range(0, self.count, size):
            yield self.part(first, min(first + size, self.count))


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The numbers of one leaf, in units of 2^-shift."""

    shift: int
    tables: Integers
    table_values: Integers
    gates: Integers
    gate_values: Integers
    diagonal: Integers
    clash_first: Integers
    clash_second: Integers
    clash_values: Integers
    split_tables: Integers
    split_variables: Integers
    split_values: Integers
    #: Multipliers of the target's inequalities.
    cut_values: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @staticmethod
    def none() -> Multipliers:
        """Make the multipliers of a bound by ranges alone."""
        z, two, four = np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 4), np.int64)
        return Multipliers(FINEST, z, two, z, four, z, z, z, z, z, z, two)


def read_clauses(
    section: Section, neurons: int, inequalities: int, *, has_theta: bool = True
) -> Clauses:
    """Read clauses over neurons of one layer and the region's inequalities.

    Without `has_theta` their multipliers are 0, and the array of this name is about something else.
    """
    sizes, neuron = section.integers("sizes_of_clauses"), section.integers("neurons")
    sign = section.integers("signs")
    theta = section.integers("theta") if has_theta else np.zeros_like(neuron)
    if np.any((sizes < 1) | (sizes > neuron.size)) or int(sizes.sum()) != neuron.size:
        raise UnreadableError(f"section {section.name}: sizes do not add up")
    section.budget.keep(neuron.size)
    if sign.size != neuron.size or theta.size != neuron.size:
        raise UnreadableError(f"section {section.name}: lists of different lengths")
    if np.any((neuron >= neurons) | (neuron < -inequalities)):
        raise RejectedError("a clause names a neuron that does not exist")
    return Clauses(np.concatenate([[0], np.cumsum(sizes)]), neuron, sign, theta)


def joined(parts: list[Clauses]) -> Clauses:
    """Join several lists of clauses."""
    nothing = np.zeros(0, dtype=np.int64)
    sizes = np.concatenate([nothing, *(np.diff(p.start) for p in parts)])
    return Clauses(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([nothing, *(p.neuron for p in parts)]),
        np.concatenate([nothing, *(p.sign for p in parts)]),
        np.concatenate([nothing, *(p.theta for p in parts)]),
    )


def read_leaves(section: Section, cuts: int) -> Iterator[Multipliers]:
    """Yield the numbers of the leaves of a section; each has a number for every inequality."""
    unit, sizes = section.integers("unit"), section.integers("sizes")
    arrays = {name: section.integers(name) for name, _, _ in LEAF_ARRAYS}
    most = max(array.size for array in arrays.values())
    if sizes.size != 5 * unit.size or np.any((sizes < 0) | (sizes > most)):
        raise UnreadableError("section nodes: sizes do not add up")
    counts = sizes.reshape(-1, 5)
    total = counts.sum(axis=0)
    if any(arrays[name].size != width * total[k] for name, k, width in LEAF_ARRAYS):
        raise UnreadableError("section nodes: lists of the wrong length")
    given = np.zeros(0, dtype=np.int64)
    if "cut_values" in section.arrays:
        given = section.integers("cut_values")
    if given.size != cuts * unit.size:
        raise UnreadableError("section nodes: lists of the wrong length")
    start = np.zeros(5, dtype=np.int64)
    rows = given.reshape(unit.size, cuts)
    for shift, count, row in zip(unit.tolist(), counts, rows, strict=True):
        part: dict[str, Integers] = {}
        for name, k, width in LEAF_ARRAYS:
            values = arrays[name][width * start[k] : width * (start[k] + count[k])]
            part[name] = values.reshape(-1, width) if width > 1 else values
        start += count
        yield Multipliers(shift, **part, cut_values=row)
