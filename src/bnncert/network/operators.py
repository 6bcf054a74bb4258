"""Fast application of a layer's weights, and of their transpose, to batches of points.

The weights of every layer exist as a sparse matrix; these operators are the same map in the form
that runs fastest: dense BLAS, sparse products, or a convolution by im2col.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bnncert.description.model import Convolution

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
        result: npt.NDArray[Any] = batch @ self._weights.T
        return result

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W``."""
        result: npt.NDArray[Any] = batch @ self._weights
        return result


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
    """W as a 2-D convolution: windows gathered into a matrix, then one dense product a group."""

    def __init__(
        self, convolution: Convolution, flip: npt.NDArray[Any], dtype: npt.DTypeLike
    ) -> None:
        self._c = convolution
        self._flip = flip.astype(dtype)
        self._dtype = dtype
        out, inner, kh, kw = convolution.kernel.shape
        groups = convolution.groups
        self._kernel = np.ascontiguousarray(
            convolution.kernel.reshape(groups, out // groups, inner * kh * kw), dtype=dtype
        )
        channels, height, width = convolution.shape
        top, left, bottom, right = convolution.pads
        self._padded = (channels, height + top + bottom, width + left + right)
        (sh, sw), (dh, dw) = convolution.strides, convolution.dilations
        self._out_hw = (
            (self._padded[1] - (dh * (kh - 1) + 1)) // sh + 1,
            (self._padded[2] - (dw * (kw - 1) + 1)) // sw + 1,
        )
        self._inputs = convolution.source.shape[0]
        # The gather below must reach every row of the convolution's output or only some of them.
        self._all_rows = convolution.rows.shape[0] == out * self._out_hw[0] * self._out_hw[
            1
        ] and bool(np.all(convolution.rows == np.arange(convolution.rows.shape[0])))

    def _window(self, y: int, x: int) -> tuple[slice, slice]:
        """Return the slices of the padded image that kernel offset (y, x) meets."""
        (sh, sw), (dh, dw) = self._c.strides, self._c.dilations
        oh, ow = self._out_hw
        return (
            slice(y * dh, y * dh + sh * (oh - 1) + 1, sh),
            slice(x * dw, x * dw + sw * (ow - 1) + 1, sw),
        )

    def forward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W.T``."""
        count = batch.shape[0]
        channels, height, width = self._c.shape
        top, left, _, _ = self._c.pads
        groups, per_group, _ = self._kernel.shape
        inner = channels // groups
        kh, kw = self._c.kernel.shape[2:]
        oh, ow = self._out_hw
        image = batch[:, self._c.source].reshape(count, channels, height, width)
        if any(self._c.pads):
            padded = np.zeros((count, *self._padded), dtype=self._dtype)
            padded[:, :, top : top + height, left : left + width] = image
            image = padded
        columns = np.empty((count, groups, inner, kh, kw, oh, ow), dtype=self._dtype)
        grouped = image.reshape(count, groups, inner, *self._padded[1:])
        for y in range(kh):
            for x in range(kw):
                rows, cols = self._window(y, x)
                columns[:, :, :, y, x] = grouped[:, :, :, rows, cols]
        product = self._kernel[None] @ columns.reshape(count, groups, inner * kh * kw, oh * ow)
        flat = product.reshape(count, groups * per_group * oh * ow)
        if not self._all_rows:
            flat = flat[:, self._c.rows]
        result: npt.NDArray[Any] = flat * self._flip
        return result

    def backward(self, batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``batch @ W``."""
        count = batch.shape[0]
        channels, height, width = self._c.shape
        top, left, _, _ = self._c.pads
        groups, per_group, _ = self._kernel.shape
        inner = channels // groups
        kh, kw = self._c.kernel.shape[2:]
        oh, ow = self._out_hw
        flipped = batch.astype(self._dtype, copy=False) * self._flip
        if self._all_rows:
            full = flipped
        else:
            full = np.zeros((count, groups * per_group * oh * ow), dtype=self._dtype)
            full[:, self._c.rows] = flipped
        full = full.reshape(count, groups, per_group, oh * ow)
        columns = self._kernel.transpose(0, 2, 1)[None] @ full
        columns = columns.reshape(count, groups, inner, kh, kw, oh, ow)
        padded = np.zeros((count, groups, inner, *self._padded[1:]), dtype=self._dtype)
        for y in range(kh):
            for x in range(kw):
                rows, cols = self._window(y, x)
                padded[:, :, :, rows, cols] += columns[:, :, :, y, x]
        image = padded.reshape(count, channels, *self._padded[1:])
        image = image[:, :, top : top + height, left : left + width]
        result = np.zeros((count, self._inputs), dtype=self._dtype)
        result[:, self._c.source] = image.reshape(count, channels * height * width)
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
