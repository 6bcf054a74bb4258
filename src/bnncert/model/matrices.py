"""Weight matrices in compressed sparse rows (CSR): construction, scaling and factors of rows.

SciPy is imported inside the functions that construct a matrix from arrays, because its import
takes longer than that of NumPy and not every command needs it: :class:`CsrArrays` holds the arrays
of a matrix until it is used in a computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CsrArrays:
    """The arrays of a CSR matrix, under the names that SciPy gives them."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    shape: tuple[int, int]

    @staticmethod
    def of_dense(matrix: npt.NDArray[Any]) -> CsrArrays:
        """Return the non-zero entries of a matrix."""
        row, column = np.nonzero(matrix)
        kind = np.int32 if matrix.size < 2**31 else np.int64
        indptr = np.searchsorted(row, np.arange(matrix.shape[0] + 1)).astype(kind)
        return CsrArrays(matrix[row, column], column.astype(kind), indptr, matrix.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return int(self.data.size)

    @cached_property
    def matrix(self) -> Any:
        """The matrix as SciPy has it; the arrays are not copied."""
        return csr_matrix(self.data, self.indices, self.indptr, self.shape)

    def astype(self, dtype: npt.DTypeLike) -> CsrArrays:
        """Return the matrix with entries of another type."""
        return CsrArrays(self.data.astype(dtype), self.indices, self.indptr, self.shape)

    def toarray(self) -> npt.NDArray[Any]:
        """Return the matrix with its zeros."""
        dense = np.zeros(self.shape, dtype=self.dtype)
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (row, self.indices), self.data)
        return dense


def as_sparse(rows: Any) -> Any:
    """Return a canonical CSR matrix of a dense or sparse one."""
    from scipy.sparse import csr_array

    matrix = csr_array(rows)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def csr_matrix(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    shape: tuple[int, int],
) -> Any:
    """Return the CSR matrix that consists of these arrays, which are not copied."""
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=shape)


def as_matrix(rows: Any) -> Any:
    """Return SciPy's matrix of CSR arrays, or a SciPy matrix itself."""
    return rows.matrix if isinstance(rows, CsrArrays) else rows


def is_sparse(matrix: Any) -> bool:
    """Return whether a matrix is sparse rather than a NumPy array."""
    return hasattr(matrix, "nnz")


def with_data(matrix: Any, data: npt.NDArray[Any]) -> Any:
    """Return a CSR matrix with the same positions and other entries."""
    if isinstance(matrix, CsrArrays):
        return CsrArrays(data, matrix.indices, matrix.indptr, matrix.shape)
    return csr_matrix(data, matrix.indices, matrix.indptr, matrix.shape)


def without_zeros(matrix: Any) -> Any:
    """Return a CSR matrix that stores no zeros; the matrix given is not changed."""
    kept = matrix.data != 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr].astype(matrix.indptr.dtype)
    make = CsrArrays if isinstance(matrix, CsrArrays) else csr_matrix
    return make(matrix.data[kept], matrix.indices[kept], indptr, matrix.shape)


def scale_rows(matrix: Any, factor: npt.NDArray[Any]) -> Any:
    """Multiply each row by its factor, in the type that the matrix has.

    Only the entries are multiplied: the index arrays are shared with `matrix`.
    """
    # Converted first: repeated floats of a large layer take eight times the memory of its weights.
    repeated = np.repeat(factor.astype(matrix.data.dtype), np.diff(matrix.indptr))
    return with_data(matrix, matrix.data * repeated)


def incidence_matrix(rows: IntArray, count: int) -> Any:
    """Return the 0/1 matrix with `count` rows whose column k has its one entry in row rows[k]."""
    from scipy.sparse import csr_array

    width = rows.size
    ones = np.ones(width, dtype=np.int8)
    return csr_array((ones, (rows, np.arange(width, dtype=np.int64))), shape=(count, width))


def row_norms(matrix: Any) -> FloatArray:
    """Return the 1-norm of every row of a CSR matrix, without a copy in a wider type."""
    lengths = np.diff(matrix.indptr)
    if np.all(np.abs(matrix.data) == 1):
        return np.asarray(lengths, dtype=np.float64)
    totals = np.zeros(matrix.shape[0])
    filled = np.flatnonzero(lengths)
    if filled.size:
        kind = np.int64 if np.issubdtype(matrix.dtype, np.integer) else np.float64
        totals[filled] = np.add.reduceat(np.abs(matrix.data), matrix.indptr[filled], dtype=kind)
    return totals


def row_blocks(indptr: npt.NDArray[Any], entries: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of a CSR matrix in blocks (start, stop) of about so many entries.

    A block has at least one row; together they are all rows, at least one block.
    """
    start, rows = 0, len(indptr) - 1
    while True:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        if stop >= rows:
            return
        start = stop


def factor_dense(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int8], FloatArray] | None:
    """Split a matrix into ternary rows and one positive factor each, ``rows = factor * ternary``.

    Returns None when some row has two different non-zero magnitudes.
    """
    magnitude = np.abs(rows)
    factor = magnitude.max(axis=1, initial=0.0).astype(np.float64)
    factor[factor == 0.0] = 1.0
    if not bool(np.all((magnitude == 0) | (magnitude == factor[:, None]))):
        return None
    return np.sign(rows).astype(np.int8), factor


def factor_sparse(matrix: Any) -> tuple[Any, FloatArray] | None:
    """Split a CSR matrix as :func:`factor_dense` splits a dense one."""
    magnitude = np.abs(matrix.data.astype(np.float64))
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    factor = np.ones(matrix.shape[0])
    if filled.size:
        factor[filled] = np.maximum.reduceat(magnitude, matrix.indptr[filled])
    if not bool(np.all(magnitude == np.repeat(factor, lengths))):
        return None
    return with_data(matrix, np.sign(matrix.data).astype(np.int8)), factor
