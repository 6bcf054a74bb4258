"""Axes, shapes and windows: Reshape, Squeeze, Transpose, Flatten, reductions, convolution, pooling.

A convolution or pooling in one dimension is one in two dimensions with height 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.model.formats.onnx.value import Tensor, integer_list
from bnncert.model.matrices import csr_matrix

# -- axes and shapes ----------------------------------------------------------------------


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """Count an axis, which may count from the end, from 0 to rank - 1."""
    if not -rank <= axis < rank:
        raise node.broken(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank


def axes_of(node: OnnxNode, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Count axes, which must differ, from 0 to rank - 1."""
    numbers = tuple(axis_of(node, axis, rank) for axis in axes)
    if len(set(numbers)) != len(numbers):
        raise node.broken(f"an axis occurs twice in {tuple(axes)}")
    return numbers


def _axes(node: OnnxNode, operands: Sequence[Any], since: int) -> tuple[int, ...] | None:
    """Read axes given as an attribute, or from opset `since` on as the second input."""
    if node.opset < since:
        return node.integers("axes")
    return integer_list(operands[1] if len(operands) > 1 else None, node, "axes")


def new_shape(node: OnnxNode, operands: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Find the shape after Reshape, Flatten, Squeeze or Unsqueeze."""
    if node.op == "Reshape":
        target = integer_list(operands[1], node, "the new shape")
        return _reshaped(node, target or (), shape)
    if node.op == "Flatten":
        return _flattened(node, shape)
    return _squeezed(node, operands, shape)


def _refuse_negative(node: OnnxNode, axis: int) -> None:
    """Raise for an axis from the end in operator sets that do not define it."""
    if axis < 0 and node.opset < 11:
        raise node.unsupported(f"axis {axis}; operator set {node.opset} has no negative axes here")


def _squeezed(node: OnnxNode, operands: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    axes = _axes(node, operands, 13)
    if axes is not None and not axes:
        # Runtimes take an empty list for no axes or for all of them.
        raise node.unsupported("its list of axes is empty")
    if axes is not None:
        _refuse_negative(node, min(axes))
    if node.op == "Squeeze":
        drop = (
            [axis for axis, n in enumerate(shape) if n == 1]
            if axes is None
            else axes_of(node, axes, len(shape))
        )
        if any(shape[axis] != 1 for axis in drop):
            raise node.broken(f"axes {axes} of shape {shape} are not all 1")
        return tuple(n for axis, n in enumerate(shape) if axis not in drop)
    if axes is None:
        raise node.broken("its list of axes is missing")
    new = axes_of(node, axes, len(shape) + len(axes))
    rest = iter(shape)
    return tuple(1 if axis in new else next(rest) for axis in range(len(shape) + len(axes)))


def _reshaped(node: OnnxNode, target: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Find the shape after Reshape to `target` (0 copies an axis, -1 is computed)."""
    size = math.prod(shape)
    keeps_zero = node.integer("allowzero", 0) != 0
    result = [
        shape[axis] if n == 0 and not keeps_zero and axis < len(shape) else n
        for axis, n in enumerate(target)
    ]
    if result.count(-1) == 1:
        rest = math.prod([n for n in result if n != -1])
        if rest > 0 and size % rest == 0:
            result[result.index(-1)] = size // rest
    if any(n < 0 for n in result) or math.prod(result) != size:
        raise node.broken(f"cannot reshape {shape} to {target}")
    return tuple(result)


def reduction_axes(node: OnnxNode, operands: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Find the axes that a reduction runs over, from 0 to rank - 1."""
    axes = _axes(node, operands, 13 if node.op == "ReduceSum" else 18)
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axes_of(node, axes, rank)))


def permutation(node: OnnxNode, rank: int) -> tuple[int, ...]:
    """Find the order of the axes after Transpose."""
    order = node.integers("perm")
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise node.broken(f"{order} is not an order of {rank} axes")
    return order


def _flattened(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, int]:
    axis = node.integer("axis", 1)
    _refuse_negative(node, axis)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):  # The rank itself is allowed here.
        raise node.broken(f"axis {axis} of a tensor with shape {shape}")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def shape_of(node: OnnxNode, shape: tuple[int, ...]) -> Tensor:
    """Fold Shape of a tensor of this shape."""
    rank = len(shape)
    start, end = node.integer("start", 0), node.integer("end", rank)
    return np.array(shape[slice(start, end)], dtype=np.int64)


# -- windows ------------------------------------------------------------------------------

#: The largest number of connections of a layer, which is stored as a sparse matrix.
MOST_CONNECTIONS = 2**28


@dataclass(frozen=True)
class Windows:
    """The positions of a kernel on an image; pads are (top, left, bottom, right)."""

    image: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    out: tuple[int, int]

    def out_shape(self, rank: int) -> tuple[int, ...]:
        """Find the spatial shape of the result for an image with `rank` spatial axes."""
        return self.out[2 - rank :]

    def cells(self) -> IntArray:
        """Find the image cell of each (window, kernel offset), or -1 in the padding."""
        axes = []
        for axis in range(2):
            start = np.arange(self.out[axis]) * self.strides[axis] - self.pads[axis]
            place = start[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            axes.append(np.where((place >= 0) & (place < self.image[axis]), place, -1))
        rows = axes[0][:, None, :, None]
        columns = axes[1][None, :, None, :]
        cell = np.where((rows >= 0) & (columns >= 0), rows * self.image[1] + columns, -1)
        return cell.reshape(self.out[0] * self.out[1], -1).astype(np.int64)


def image_of(shape: tuple[int, ...], node: OnnxNode) -> tuple[int, tuple[int, ...]]:
    """Read channels and spatial axes of a tensor (1, C, L) or (1, C, H, W)."""
    if len(shape) not in (3, 4) or shape[0] != 1:
        raise node.unsupported(
            f"its input has shape {shape}; expected (1, C, L) or (1, C, H, W): a batch axis, "
            "channels, and one or two spatial axes"
        )
    return shape[1], shape[2:]


def windows_of(node: OnnxNode, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """Read the windows that the attributes of a convolution or pooling node define."""
    rank = len(spatial)
    if len(kernel) != rank:
        raise node.broken(f"kernel {kernel} for spatial axes {spatial}")
    strides = node.integers("strides") or (1,) * rank
    dilations = node.integers("dilations") or (1,) * rank
    pads = node.integers("pads") or (0,) * (2 * rank)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise node.broken("strides, dilations or pads of the wrong length")
    if min(strides) < 1 or min(dilations) < 1 or min(kernel) < 1 or min(pads) < 0:
        raise node.unsupported("kernel, strides and dilations must be positive, pads at least 0")
    automatic = node.text("auto_pad", "NOTSET")
    if automatic not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported(f"auto_pad {automatic} is not known")
    if automatic not in ("NOTSET", "") and (any(pads) or node.integer("ceil_mode", 0)):
        raise node.unsupported(f"auto_pad {automatic} together with pads or ceil_mode")
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    begin, end, out = list(pads[:rank]), list(pads[rank:]), []
    for axis, size in enumerate(spatial):
        if automatic.startswith("SAME"):
            count = -(-size // strides[axis])
            total = max(0, (count - 1) * strides[axis] + reach[axis] - size)
            small, large = total // 2, total - total // 2
            begin[axis], end[axis] = (small, large) if automatic == "SAME_UPPER" else (large, small)
        elif automatic == "VALID":
            begin[axis] = end[axis] = 0
        room = size + begin[axis] + end[axis] - reach[axis]
        count = room // strides[axis] + 1
        if node.integer("ceil_mode", 0) and room % strides[axis] and room >= 0:
            count = _rounded_up(node, axis, count, strides[axis], size, begin[axis] + end[axis])
        if count < 1:
            raise node.unsupported(f"kernel {kernel} is larger than the image {spatial}")
        out.append(count)
    if math.prod(out) > LARGEST_VALUE or math.prod(out) * math.prod(kernel) > MOST_CONNECTIONS:
        raise node.unsupported(f"{math.prod(out)} windows are too many")
    lift = (1,) * (2 - rank)
    zero = (0,) * (2 - rank)
    return Windows(
        image=_pair(lift + spatial),
        kernel=_pair(lift + kernel),
        strides=_pair(lift + strides),
        pads=(*_pair(zero + tuple(begin)), *_pair(zero + tuple(end))),
        dilations=_pair(lift + dilations),
        out=_pair(lift + tuple(out)),
    )


def _rounded_up(node: OnnxNode, axis: int, count: int, stride: int, size: int, pads: int) -> int:
    # Runtimes differ for windows that start in the padding and for the divisor of an average.
    if node.op != "MaxPool" or pads or count * stride >= size:
        raise node.unsupported(
            f"ceil_mode adds a partial window on axis {axis}; that is supported for MaxPool "
            "without padding only"
        )
    return count + 1


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    first, second = values
    return int(first), int(second)


def incidence(windows: Windows, channels: int, node: OnnxNode) -> Any:
    """Make the 0/1 matrix of (channel, window) rows and (channel, cell) columns."""
    cells = windows.cells()
    valid = cells >= 0
    lengths = valid.sum(axis=1)
    if np.any(lengths == 0):
        raise node.unsupported("a window lies in the padding altogether")
    if channels * int(lengths.sum()) > MOST_CONNECTIONS:
        raise node.unsupported("pooling has too many connections")
    area = windows.image[0] * windows.image[1]
    one = cells[valid]
    columns = (np.arange(channels)[:, None] * area + one[None, :]).reshape(-1)
    indptr = np.concatenate(([0], np.cumsum(np.tile(lengths, channels))))
    return csr_matrix(
        np.ones(columns.size, dtype=np.int8),
        columns.astype(np.int32),
        indptr.astype(np.int32),
        (channels * cells.shape[0], channels * area),
    )


def convolution_matrix(
    kernel: npt.NDArray[Any], groups: int, windows: Windows, columns: IntArray, width: int
) -> Any:
    """Write a convolution as a canonical sparse matrix with `width` columns.

    The kernel has shape (outputs, inputs per group, kh, kw), and its type is that of the matrix;
    `columns` are those of the flattened (channel, y, x) positions of the image.
    """
    outputs, inner = kernel.shape[:2]
    taps = kernel.reshape(outputs, -1)
    cells = windows.cells()
    places = cells.shape[0]
    area = windows.image[0] * windows.image[1]
    share = outputs // groups
    index_parts, data_parts, lengths = [], [], []
    for group in range(groups):
        channel = (group * inner + np.arange(inner)) * area
        inside = np.broadcast_to(cells[:, None, :] >= 0, (places, inner, cells.shape[1]))
        inside = inside.reshape(places, -1)
        position = (channel[None, :, None] + cells[:, None, :]).reshape(places, -1)
        # Padding is sorted after all columns.  The order of the columns in a row is the same for
        # all output channels, so that they are sorted only once.
        column = np.where(inside, columns[np.where(inside, position, 0)], width)
        order = np.argsort(column, axis=1, kind="stable")
        column = np.take_along_axis(column, order, axis=1).astype(np.int32)
        inside = column < width
        mine = taps[group * share : (group + 1) * share]
        if inside.all() and np.all(mine != 0):
            lengths.append(np.full(share * places, column.shape[1]))
            index_parts.append(np.tile(column.reshape(-1), share))
            data_parts.append(mine[:, order].reshape(-1))
            continue
        for weights in mine:
            data = weights[order]
            kept = inside & (data != 0)
            lengths.append(kept.sum(axis=1))
            index_parts.append(column[kept])
            data_parts.append(data[kept])
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    return csr_matrix(
        _joined(data_parts),
        _joined(index_parts),
        # One type for both index arrays, or SciPy copies the longer one.
        indptr.astype(np.int32),
        (outputs * places, width),
    )


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
