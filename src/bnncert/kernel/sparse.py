"""Integer matrices in compressed sparse rows, with the exact operations that the check needs.

Sums are 64-bit integers; the callers limit the numbers so that they do not overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

#: Entries that are worked on at once.
CHUNK = 2**19


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Row j has the entries start[j]:start[j+1] of `values`, each in the column of `columns`.

    Columns increase within a row, except in the weights of a layer.
    """

    start: Integers
    columns: Integers
    values: npt.NDArray[Any]
    width: int

    @staticmethod
    def of_weights(weights: Any) -> SparseRows:
        """Take the weights of a layer unchanged: floats stay floats, and places may repeat."""
        values = np.asarray(weights.data)
        return SparseRows(
            weights.indptr.astype(np.int64),
            weights.indices.astype(np.int64),
            values if values.dtype.kind == "f" else values.astype(np.int64),
            int(weights.shape[1]),
        )

    @staticmethod
    def of_entries(
        row: Integers, column: Integers, values: npt.NDArray[Any], shape: tuple[int, int]
    ) -> SparseRows:
        """Make the matrix with these entries; entries at one place are added up."""
        place = row * shape[1] + column
        order = np.argsort(place, kind="stable")
        place, values = place[order], values[order]
        new = np.flatnonzero(np.diff(place, prepend=-1))
        if new.size < place.size:
            place, values = place[new], np.add.reduceat(values, new)
        place, values = place[values != 0], values[values != 0]
        start = np.searchsorted(place, np.arange(shape[0] + 1) * shape[1])
        return SparseRows(start, place % max(shape[1], 1), values, int(shape[1]))

    @staticmethod
    def of_dense(matrix: npt.NDArray[Any]) -> SparseRows:
        """Take the entries of a matrix that are not 0."""
        row, column = np.nonzero(matrix)
        start = np.searchsorted(row, np.arange(matrix.shape[0] + 1))
        return SparseRows(start, column, matrix[row, column], matrix.shape[1])

    @staticmethod
    def stacked(parts: Sequence[SparseRows]) -> SparseRows:
        """Stack the rows of several matrices of one width, one below the other."""
        sizes = np.concatenate([part.sizes for part in parts])
        return SparseRows(
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.values for part in parts]),
            parts[0].width,
        )

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.start.size - 1)

    @property
    def sizes(self) -> Integers:
        """The number of entries of every row."""
        return np.diff(self.start)

    @property
    def row(self) -> Integers:
        """The row of every entry."""
        return np.repeat(np.arange(self.count), self.sizes)

    def with_values(self, values: npt.NDArray[Any]) -> SparseRows:
        """Put other entries at the same places."""
        return SparseRows(self.start, self.columns, values, self.width)

    def take(self, rows: Integers) -> SparseRows:
        """Take some of the rows, in any order."""
        sizes = self.sizes[rows]
        start = np.concatenate([[0], np.cumsum(sizes)])
        entry = np.arange(start[-1]) + np.repeat(self.start[:-1][rows] - start[:-1], sizes)
        return SparseRows(start, self.columns[entry], self.values[entry], self.width)

    def dense(self) -> Integers:
        """Write the matrix with all its zeros."""
        matrix = np.zeros((self.count, self.width), dtype=np.int64)
        matrix[self.row, self.columns] = self.values
        return matrix

    def times(self, vector: npt.NDArray[Any]) -> Integers:
        """Multiply with a vector of integers."""
        total = np.zeros(self.count, dtype=np.int64)
        filled = np.flatnonzero(self.sizes)
        if filled.size:
            terms = self.values * vector[self.columns]
            total[filled] = np.add.reduceat(terms, self.start[filled], dtype=np.int64)
        return total

    def product(self, other: SparseRows) -> Integers:
        """Multiply with another matrix; the product has all its zeros."""
        total, owner = np.zeros(self.count * other.width, dtype=np.int64), self.row * other.width
        step = 1 + CHUNK // (1 + int(other.sizes.max(initial=0)))
        for k in range(0, owner.size, step):
            part = slice(k, k + step)
            chosen = other.take(self.columns[part])
            place = np.repeat(owner[part], chosen.sizes) + chosen.columns
            np.add.at(total, place, np.repeat(self.values[part], chosen.sizes) * chosen.values)
        return total.reshape(self.count, other.width)
