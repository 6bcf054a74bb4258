"""Weight matrices in compressed sparse rows (CSR), and their fast application to batches of points.

SciPy is imported inside the functions that construct a matrix from arrays, because its import
takes longer than that of NumPy and not every command needs it: :class:`CsrArrays` holds the arrays
of a matrix until it is used in a computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import Convolution


@dataclass(frozen=True, eq=False)
class CsrArrays:
    """The arrays of a CSR matrix, under the names that SciPy gives them."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    shape: tuple[int, int]

    @staticmethod
    def of_dense(matrix: npt.NDArray[Any]) -> CsrArrays:
        """Collect the non-zero entries of a matrix."""
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
        """Convert the entries to another type."""
        return CsrArrays(self.data.astype(dtype), self.indices, self.indptr, self.shape)

    def toarray(self) -> npt.NDArray[Any]:
        """Write the matrix with its zeros."""
        dense = np.zeros(self.shape, dtype=self.dtype)
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (row, self.indices), self.data)
        return dense


def as_sparse(rows: Any) -> Any:
    """Make a canonical CSR matrix of a dense or sparse one."""
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
    """Make the CSR matrix that consists of these arrays, which are not copied."""
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=shape)


def as_matrix(rows: Any) -> Any:
    """Take SciPy's matrix of CSR arrays, or a SciPy matrix itself."""
    return rows.matrix if isinstance(rows, CsrArrays) else rows


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is sparse rather than a NumPy array."""
    return hasattr(matrix, "nnz")


def with_data(matrix: Any, data: npt.NDArray[Any]) -> Any:
    """Put other entries at the places of a CSR matrix."""
    if isinstance(matrix, CsrArrays):
        return CsrArrays(data, matrix.indices, matrix.indptr, matrix.shape)
    return csr_matrix(data, matrix.indices, matrix.indptr, matrix.shape)


def without_zeros(matrix: Any) -> Any:
    """Leave out stored zeros of a CSR matrix, in a new matrix."""
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
    """Make the 0/1 matrix with `count` rows whose column k has its one entry in row rows[k]."""
    from scipy.sparse import csr_array

    width = rows.size
    ones = np.ones(width, dtype=np.int8)
    return csr_array((ones, (rows, np.arange(width, dtype=np.int64))), shape=(count, width))


def row_norms(matrix: Any) -> FloatArray:
    """Compute the 1-norm of every row of a CSR matrix, without a copy in a wider type."""
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


# -- operators: a dense product, a sparse product, or a convolution by im2col -------------

#: Above this share of non-zeros a dense product is faster than a sparse one.
DENSE_FROM = 0.05


class Operator(Protocol):
    """The map x -> W x on rows of a batch, and its transpose."""

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W.T``."""

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W``."""


class DenseOperator:
    """W as a dense array."""

    def __init__(self, weights: Any, dtype: npt.DTypeLike) -> None:
        self._weights = np.ascontiguousarray(weights.toarray(), dtype=dtype)

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W.T``."""
        return np.asarray(batch @ self._weights.T)

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W``."""
        return np.asarray(batch @ self._weights)


class SparseOperator:
    """W and its transpose in compressed rows."""

    def __init__(self, weights: Any, dtype: npt.DTypeLike) -> None:
        self._weights = as_matrix(weights).astype(dtype)

    @cached_property
    def _transposed(self) -> Any:
        return self._weights.T.tocsr()

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W.T``."""
        return np.ascontiguousarray((self._weights @ batch.T).T)

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W``."""
        return np.ascontiguousarray((self._transposed @ batch.T).T)


class ConvolutionOperator:
    """W as a 2-D convolution: windows are gathered into a matrix, one dense product per group."""

    def __init__(
        self, convolution: Convolution, flip: npt.NDArray[Any], dtype: npt.DTypeLike
    ) -> None:
        self._flip = flip.astype(dtype)
        self._dtype = dtype
        self._source, self._rows = convolution.source, convolution.rows
        out, inner, kh, kw = convolution.kernel.shape
        groups = convolution.groups
        self._kernel = np.ascontiguousarray(
            convolution.kernel.reshape(groups, out // groups, inner * kh * kw), dtype=dtype
        )
        channels, height, width = convolution.shape
        top, left, bottom, right = convolution.pads
        self._image = (channels, height, width)
        self._padded = (channels, height + top + bottom, width + left + right)
        #: The place of the images in a batch of padded ones.
        rows, columns = slice(top, top + height), slice(left, left + width)
        self._inside = (slice(None), slice(None), rows, columns)
        (sh, sw), (dh, dw) = convolution.strides, convolution.dilations
        oh = (self._padded[1] - (dh * (kh - 1) + 1)) // sh + 1
        ow = (self._padded[2] - (dw * (kw - 1) + 1)) // sw + 1
        self._columns = (groups, inner, kh, kw, oh, ow)
        #: The cells of the padded image that each kernel offset is multiplied with.
        self._windows = [
            (
                (y, x),
                slice(y * dh, y * dh + sh * (oh - 1) + 1, sh),
                slice(x * dw, x * dw + sw * (ow - 1) + 1, sw),
            )
            for y in range(kh)
            for x in range(kw)
        ]
        self._outputs = out * oh * ow
        # Whether the rows are all outputs of the convolution, in order.
        self._all_rows = bool(np.array_equal(self._rows, np.arange(self._outputs)))

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W.T``."""
        count = batch.shape[0]
        groups, inner, kh, kw, oh, ow = self._columns
        image = batch[:, self._source].reshape(count, *self._image)
        if self._padded != self._image:
            padded = np.zeros((count, *self._padded), dtype=self._dtype)
            padded[self._inside] = image
            image = padded
        columns = np.empty((count, *self._columns), dtype=self._dtype)
        grouped = image.reshape(count, groups, inner, *self._padded[1:])
        for (y, x), rows, cols in self._windows:
            columns[:, :, :, y, x] = grouped[:, :, :, rows, cols]
        product = self._kernel[None] @ columns.reshape(count, groups, inner * kh * kw, oh * ow)
        flat = product.reshape(count, self._outputs)
        if not self._all_rows:
            flat = flat[:, self._rows]
        return np.asarray(flat * self._flip)

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Multiply ``batch @ W``."""
        count = batch.shape[0]
        groups, inner, _, _, oh, ow = self._columns
        full = batch.astype(self._dtype, copy=False) * self._flip
        if not self._all_rows:
            flipped, full = full, np.zeros((count, self._outputs), dtype=self._dtype)
            full[:, self._rows] = flipped
        product = self._kernel.transpose(0, 2, 1)[None] @ full.reshape(
            count, groups, self._kernel.shape[1], oh * ow
        )
        columns = product.reshape(count, *self._columns)
        padded = np.zeros((count, groups, inner, *self._padded[1:]), dtype=self._dtype)
        for (y, x), rows, cols in self._windows:
            padded[:, :, :, rows, cols] += columns[:, :, :, y, x]
        image = padded.reshape(count, *self._padded)[self._inside]
        result = np.zeros((count, self._source.shape[0]), dtype=self._dtype)
        result[:, self._source] = image.reshape(result.shape)
        return result


def make_operator(
    weights: Any,
    convolution: Convolution | None,
    flip: npt.NDArray[Any] | None,
    dtype: npt.DTypeLike,
) -> Operator:
    """Choose the fastest form of the map for these weights."""
    if convolution is not None:
        signs = np.ones(weights.shape[0]) if flip is None else flip
        return ConvolutionOperator(convolution, signs, dtype)
    cells = max(1, weights.shape[0] * weights.shape[1])
    if weights.nnz >= DENSE_FROM * cells:
        return DenseOperator(weights, dtype)
    return SparseOperator(weights, dtype)
