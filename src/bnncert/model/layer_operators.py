"""Fast application of a layer's weights, and of their transpose, to batches of points.

The weights of every layer are a sparse matrix; these operators apply the same map in the fastest
way: as a dense product, a sparse product, or a convolution by im2col.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bnncert.model.description import Convolution

#: Above this share of non-zeros a dense product is faster than a sparse one.
DENSE_FROM = 0.05


class Operator(Protocol):
    """The map x -> W x on rows of a batch, and its transpose."""

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W.T``."""

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W``."""


class DenseOperator:
    """W as a dense array."""

    def __init__(self, weights: Any, dtype: npt.DTypeLike) -> None:
        self._weights = np.ascontiguousarray(weights.toarray(), dtype=dtype)

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W.T``."""
        return np.asarray(batch @ self._weights.T)

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W``."""
        return np.asarray(batch @ self._weights)


class SparseOperator:
    """W and its transpose in compressed rows."""

    def __init__(self, weights: Any, dtype: npt.DTypeLike) -> None:
        self._weights = weights.astype(dtype)
        self._transposed = self._weights.T.tocsr()

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W.T``."""
        return np.ascontiguousarray((self._weights @ batch.T).T)

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W``."""
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
        """Return ``batch @ W.T``."""
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
        """Return ``batch @ W``."""
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


def convolution_ranges(
    convolution: Convolution,
    flip: npt.NDArray[Any] | None,
    lo: npt.NDArray[Any],
    hi: npt.NDArray[Any],
    dtype: npt.DTypeLike,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the least and largest W x over lo <= x <= hi for the map W of a convolution.

    They are W+ lo + W- hi and W+ hi + W- lo, with the positive and the negative weights apart.
    """
    ends = np.stack([lo, hi]).astype(dtype)
    sums = []
    for part in (np.maximum, np.minimum):
        kernel = part(convolution.kernel, 0.0)
        ones = np.ones(convolution.rows.size)
        operator = ConvolutionOperator(replace(convolution, kernel=kernel), ones, dtype)
        sums.append(operator.forward(ends))
    plus, minus = sums
    low, high = plus[0] + minus[1], plus[1] + minus[0]
    if flip is None:
        return low, high
    factor = flip.astype(dtype)
    one, other = low * factor, high * factor
    return np.minimum(one, other), np.maximum(one, other)


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
