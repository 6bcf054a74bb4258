r"""Tables of integers over sign patterns, for several objectives at once.

The table of a scope (v_1, .., v_k) is an array of shape (2, .., 2, R): axis i is the sign of v_i
(place 0 for +1 and place 1 for -1), and the last axis has one entry for each of R objectives, whose
tables have the same scopes.  Entries are integers, or +infinity for patterns that cannot occur,
stored in a floating-point type in which all sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray, SignArray
from bnncert.engine.presolve.literals import variable_of

#: Integers below these sizes, and sums that stay below them, are exact in float32 and float64.
EXACT32, EXACT64 = 2**24, 2**53

TableArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Table:
    """A function of the signs of the variables in `scope`; |finite values| are at most `reach`."""

    scope: tuple[int, ...]
    values: TableArray
    reach: int


@dataclass(frozen=True, eq=False)
class Model:
    """Minimise the sum of the tables over the patterns that violate no clause.

    A clause is an array of literals that cannot all hold.
    """

    tables: tuple[Table, ...]
    clauses: tuple[IntArray, ...]
    objectives: int

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the variables of every table, then those of every clause."""
        clauses = [tuple(variable_of(clause).tolist()) for clause in self.clauses]
        return [table.scope for table in self.tables] + clauses


class InexactTableError(ArithmeticError):
    """A sum of table entries may be too large to be exact in floating point."""


def sign_patterns(count: int) -> SignArray:
    """Return all patterns of some signs, one for each row, in the order of a table's entries."""
    numbers = np.arange(2**count)[:, None] >> np.arange(count - 1, -1, -1)[None, :]
    return np.asarray(1 - 2 * (numbers & 1), dtype=np.int8)


def float_type(reach: int) -> type[np.floating[Any]]:
    """Return the smaller type in which integers up to `reach` are exact."""
    if reach < EXACT32:
        return np.float32
    if reach < EXACT64:
        return np.float64
    raise InexactTableError(f"sums of {reach} are not exact in floating point")


def spread(values: TableArray, own: tuple[int, ...], scope: tuple[int, ...]) -> TableArray:
    """Return values over `own` as an array that broadcasts over a larger scope."""
    inside = set(own)
    shape = [2 if v in inside else 1 for v in scope]
    # This is a view also if the values are transposed: only axes of length 1 are inserted.
    return values.reshape((*shape, values.shape[-1]))


def ordered(table: Table, rank: dict[int, int]) -> Table:
    """Return the table with its variables in the order of elimination."""
    places = sorted(range(len(table.scope)), key=lambda i: rank[table.scope[i]])
    if places == list(range(len(places))):
        return table
    values = np.transpose(table.values, (*places, len(places)))
    return Table(tuple(table.scope[i] for i in places), values, table.reach)


def forbid(total: TableArray, scope: tuple[int, ...], clause: IntArray) -> None:
    """Make the patterns infinite in which all literals of a clause hold."""
    places: list[Any] = [slice(None)] * (len(scope) + 1)
    for literal in clause.tolist():
        places[scope.index(literal >> 1)] = literal & 1
    total[tuple(places)] = np.inf
