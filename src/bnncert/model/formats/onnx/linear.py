"""Linear operators (matrix products, convolutions, averages, sums, padding), and maxima.

Maxima over windows are those of signs, and of real numbers that a sign follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import (
    Convolution,
    Divide,
    ElementwiseStep,
    Scale,
    Shift,
    Stage,
    WeightBits,
    step_arrays,
    take_step,
)
from bnncert.model.formats.onnx.exact import (
    InexactError,
    compose,
    multiply,
    push,
    relabelled,
    row_values,
    tidy,
)
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.model.formats.onnx.quantisers import expanded, pooled_levels, sum_of_signs
from bnncert.model.formats.onnx.shapes import (
    MOST_CONNECTIONS,
    axes_of,
    convolution_matrix,
    image_of,
    incidence,
    reduction_axes,
    windows_of,
)
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Tensor,
    Value,
    add_stage,
    constant,
    constant_floats,
    exact_floats,
    integer_list,
    plain,
    positions,
    rows_of,
    scalar,
    spread,
)
from bnncert.model.matrices import as_sparse, csr_matrix, factor_dense, incidence_matrix, scale_rows


def apply(
    value: Value,
    node: OnnxNode,
    shape: tuple[int, ...],
    build: Callable[[IntArray, int], Any],
    *,
    factor: FloatArray | None = None,
    structural: bool = False,
    convolution: Convolution | None = None,
    shared: bool = True,
) -> Value:
    """Apply a linear map to a value; `shape` is that of the result.

    `build` returns the matrix, given the column of each position of `value` and the number of
    columns; `factor` multiplies its rows, and `convolution` describes it where its columns are the
    entries of the source.  `shared` is whether entries of the matrix share the numbers of the
    file, or have none.
    """
    value = plain(value, node)
    if value.pool is not None:
        raise node.unsupported("a linear map of max-pooled real numbers (the sign must come first)")
    size = math.prod(shape)
    if size > LARGEST_VALUE:
        raise node.unsupported(f"a result with {size} entries is too large")
    try:
        matrix, steps, is_built = _composed(value, node, build)
    except InexactError as error:
        raise node.unsupported(
            f"cannot be combined exactly with the operations before it: {error}"
        ) from error
    if factor is not None and bool(np.all(factor == 1.0)):
        factor = None
    is_scaled = factor is not None
    if factor is not None and steps:
        steps, factor = (*steps, Scale(factor)), None
    return replace(
        value,
        shape=shape,
        index=positions(size),
        matrix=matrix,
        factor=factor,
        steps=steps,
        # The product with sums of signs of its own has the weights of the file.
        structural=structural
        or value.structural
        or (value.matrix is not None and not value.levels),
        convolution=convolution if is_built else None,
        bits=_bits(value, shared),
        other_terms=value.matrix is not None or bool(value.steps) or is_scaled,
        name=node.name,
        levels=0,
        open_stages=(),
    )


def _bits(value: Value, shared: bool) -> WeightBits:
    """Tell what a flipped weight of a linear map of `value` changes."""
    if shared or value.matrix is not None:
        return "shared"
    only_scaled = all(isinstance(step, Scale | Divide) for step in value.steps)
    return "own" if only_scaled else "shifted"


def _composed(
    value: Value, node: OnnxNode, build: Callable[[IntArray, int], Any]
) -> tuple[Any, tuple[ElementwiseStep, ...], bool]:
    """Compose a linear map with `value`: the matrix over the source, and the steps.

    The third entry is whether the matrix is the one that `build` returned, unchanged.
    """
    if value.matrix is None:
        built = build(value.index, value.width)
        entry = np.argsort(value.index)
        matrix, steps = push(built, [take_step(step, entry) for step in value.steps])
        return matrix, steps, matrix is built
    before: list[ElementwiseStep] = [*value.steps]
    if value.factor is not None:
        before.insert(0, Scale(value.factor[value.index]))
    matrix, steps = push(build(positions(value.size), value.size), before)
    if value.levels:
        return expanded(matrix, value, node), steps, False
    rows = value.matrix
    if not np.array_equal(value.index, positions(rows.shape[0])):
        rows = rows[value.index]
    matrix, scale = compose(matrix, rows)
    if scale != 1.0:
        steps = (Scale(np.full(matrix.shape[0], scale)), *steps)
    return matrix, steps, False


def _weights(tensor: Tensor, node: OnnxNode, what: str) -> Tensor:
    """Check weights without converting float32 to float64, which would double a large kernel."""
    if tensor.dtype.kind == "f":
        if not np.all(np.isfinite(tensor)):
            raise node.unsupported(f"NaN or infinity in {what}")
        return tensor
    return exact_floats(tensor, node, what)


def _factored(rows: Tensor, walk: GraphWalk) -> tuple[Tensor, FloatArray | None]:
    split = None if walk.as_written else factor_dense(rows)
    if split is None:
        return rows.astype(np.float64), None
    return split


def _product(
    value: Value,
    rows: Tensor,
    repeat: tuple[int, int],
    shape: tuple[int, ...],
    rank: int,
    node: OnnxNode,
    walk: GraphWalk,
) -> Value:
    """Apply ``kron(kron(I_a, rows), I_b)`` with (a, b) = `repeat`.

    A weight tensor with more axes, `rank`, than the value adds its leading axes, which are all 1.
    """
    before, after = repeat
    if rows.size * before * after > MOST_CONNECTIONS:
        raise node.unsupported(f"{rows.size * before * after} weights are too many")
    core, factor = _factored(rows, walk)

    def build(columns: IntArray, width: int) -> Any:
        matrix = as_sparse(core)
        if before > 1:
            matrix = sp.csr_array(sp.kron(sp.identity(before, core.dtype), matrix, "csr"))
        if after > 1:
            matrix = sp.csr_array(sp.kron(matrix, sp.identity(after, core.dtype), "csr"))
        return relabelled(tidy(matrix), columns, width)

    if factor is not None:
        factor = np.repeat(np.tile(factor, before), after)
    result = apply(value, node, shape, build, factor=factor, shared=before * after > 1)
    return result.reshaped((1,) * (rank - max(2, len(value.shape))) + shape)


def _times(value: Value, tensor: Tensor, node: OnnxNode, walk: GraphWalk) -> Value:
    matrix = tensor.reshape(-1, 1) if tensor.ndim == 1 else _matrix(tensor, node)
    if not value.shape or value.shape[-1] != matrix.shape[0]:
        raise node.unsupported(f"shapes {value.shape} and {tensor.shape} do not fit")
    outer = value.shape[:-1]
    shape = outer if tensor.ndim == 1 else (*outer, matrix.shape[1])
    return _product(value, matrix.T, (math.prod(outer), 1), shape, tensor.ndim, node, walk)


def _times_left(tensor: Tensor, value: Value, node: OnnxNode, walk: GraphWalk) -> Value:
    matrix = tensor.reshape(1, -1) if tensor.ndim == 1 else _matrix(tensor, node)
    vector = len(value.shape) == 1
    inner, after = (value.size, 1) if vector else value.shape[-2:]
    if inner != matrix.shape[1]:
        raise node.unsupported(f"shapes {tensor.shape} and {value.shape} do not fit")
    outer = value.shape[:-2]
    shape = (
        *outer,
        *(() if tensor.ndim == 1 else (matrix.shape[0],)),
        *(() if vector else (after,)),
    )
    return _product(value, matrix, (math.prod(outer), after), shape, tensor.ndim, node, walk)


def _matrix(tensor: Tensor, node: OnnxNode) -> Tensor:
    if tensor.ndim < 2 or any(n != 1 for n in tensor.shape[:-2]):
        raise node.unsupported(f"a weight tensor of shape {tensor.shape}; expected a matrix")
    return tensor.reshape(tensor.shape[-2:])


def matmul(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """MatMul of a value and a constant, in either order."""
    left, right = operands[0], operands[1]
    if isinstance(left, Value):
        tensor = _weights(constant(right, node, "its second input"), node, "its weights")
        return _times(plain(left, node), tensor, node, walk)
    tensor = _weights(constant(left, node, "its first input"), node, "its weights")
    return _times_left(tensor, plain(right, node), node, walk)


def _flat_matrix(tensor: Tensor, node: OnnxNode) -> Tensor:
    if tensor.ndim != 2:
        raise node.unsupported(f"a weight tensor of shape {tensor.shape}; expected two axes")
    return _weights(tensor, node, "its weights")


def gemm(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Gemm: alpha A' B' + beta C, with one of A and B constant."""
    left, right = operands[0], operands[1]
    flips = [node.integer(key, 0) != 0 for key in ("transA", "transB")]
    value = plain(left if isinstance(left, Value) else right, node)
    if len(value.shape) != 2:
        raise node.unsupported(f"its input has shape {value.shape}; expected two axes")
    if isinstance(left, Value):
        tensor = _flat_matrix(constant(right, node, "its second input"), node)
        value = value.transposed((1, 0)) if flips[0] else value
        result = _times(value, tensor.T if flips[1] else tensor, node, walk)
    else:
        tensor = _flat_matrix(constant(left, node, "its first input"), node)
        value = value.transposed((1, 0)) if flips[1] else value
        result = _times_left(tensor.T if flips[0] else tensor, value, node, walk)
    result = result.times(node.number("alpha", 1.0))
    if len(operands) > 2 and operands[2] is not None:
        bias = constant(operands[2], node, "its bias")
        shape, offset = spread(result, bias, node, "its bias")
        if shape != result.shape:
            raise node.unsupported(f"its bias of shape {bias.shape} does not fit {result.shape}")
        beta = node.number("beta", 1.0)
        try:
            offset = multiply(offset, np.full(offset.size, beta))
        except InexactError as error:
            raise node.unsupported(f"its bias times beta = {beta} is not exact") from error
        result = result.then(Shift(offset))
    return result


def convolution(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Conv in one or two dimensions."""
    value = plain(operands[0], node)
    kernel = _weights(constant(operands[1], node, "its kernel"), node, "its kernel")
    channels, spatial = image_of(value.shape, node)
    groups = node.integer("group", 1)
    if kernel.ndim != len(value.shape) or groups < 1:
        raise node.broken(f"kernel of shape {kernel.shape} on shape {value.shape}")
    outputs, inner = kernel.shape[:2]
    if inner * groups != channels or outputs % groups or kernel.size == 0:
        raise node.broken(
            f"kernel of shape {kernel.shape} in {groups} groups on {channels} channels"
        )
    if node.integers("kernel_shape") not in (None, kernel.shape[2:]):
        raise node.broken(f"kernel_shape does not fit shape {kernel.shape}")
    windows = windows_of(node, spatial, kernel.shape[2:])
    places = windows.out[0] * windows.out[1]
    if places * kernel.size > MOST_CONNECTIONS:
        raise node.unsupported(f"{places * kernel.size} connections are too many")
    flat, factor = _factored(kernel.reshape(outputs, -1), walk)
    core = flat.reshape(outputs, inner, *windows.kernel)
    result = apply(
        value,
        node,
        (1, outputs, *windows.out_shape(len(spatial))),
        lambda columns, width: convolution_matrix(core, groups, windows, columns, width),
        factor=None if factor is None else np.repeat(factor, places),
        convolution=None
        if len(spatial) != 2
        else Convolution(
            kernel=core.astype(np.float64),
            shape=(channels, *windows.image),
            strides=windows.strides,
            pads=windows.pads,
            dilations=windows.dilations,
            groups=groups,
            source=value.index,
            rows=positions(outputs * places),
        ),
    )
    if len(operands) > 2 and operands[2] is not None:
        bias = constant_floats(operands[2], node, "its bias")
        if bias.shape != (outputs,):
            raise node.broken(f"bias of shape {bias.shape} for {outputs} channels")
        result = result.then(Shift(np.repeat(bias, places)))
    return result


def average_pool(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """AveragePool: a sum over each window, divided by its size."""
    value = plain(operands[0], node)
    channels, spatial = image_of(value.shape, node)
    kernel = node.integers("kernel_shape") or ()
    windows = windows_of(node, spatial, kernel)
    matrix = incidence(windows, channels, node)
    if node.integer("count_include_pad", 0):
        count: npt.NDArray[Any] = np.full(matrix.shape[0], windows.kernel[0] * windows.kernel[1])
    else:
        count = np.diff(matrix.indptr)
    return _summed(value, node, (1, channels, *windows.out_shape(len(spatial))), matrix, count)


def reduction(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """ReduceMean, ReduceSum and GlobalAveragePool."""
    value = plain(operands[0], node)
    rank = len(value.shape)
    if node.op == "GlobalAveragePool":
        if rank < 3:
            raise node.unsupported(f"its input has shape {value.shape}; expected (1, C, ...)")
        axes: tuple[int, ...] = tuple(range(2, rank))
    else:
        if len(operands) > 1:
            constant(operands[1], node, "its list of axes")
        axes = reduction_axes(node, operands, rank)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(value.shape))
    group = np.broadcast_to(positions(math.prod(shape)).reshape(shape), value.shape).reshape(-1)
    matrix = incidence_matrix(group, math.prod(shape))
    if node.op != "GlobalAveragePool" and node.integer("keepdims", 1) == 0:
        shape = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    count = np.diff(matrix.indptr) if node.op != "ReduceSum" else np.ones(matrix.shape[0])
    return _summed(value, node, shape, matrix, count)


def _summed(
    value: Value, node: OnnxNode, shape: tuple[int, ...], matrix: Any, count: npt.NDArray[Any]
) -> Value:
    result = apply(
        value,
        node,
        shape,
        lambda columns, width: relabelled(matrix, columns, width),
        structural=True,
    )
    return result.then(Divide(count.astype(np.float64)))


def pad(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """Pad with a constant: a map with empty rows, and a shift of these rows."""
    value = plain(operands[0], node)
    mode = node.text("mode", "constant")
    if mode != "constant":
        raise node.unsupported(f"padding mode {mode} is not supported")
    rank = len(value.shape)
    fill = 0.0
    axes = tuple(range(rank))
    if node.opset < 11:
        pads = node.integers("pads")
        fill = node.number("value", 0.0)
    else:
        extra = [*operands[1:4], None, None, None]
        pads = integer_list(constant(extra[0], node, "pads"), node, "pads")
        if extra[1] is not None:
            number = constant_floats(extra[1], node, "its value")
            fill = float(scalar(number, node, "its value", 1))
        if extra[2] is not None:
            listed = integer_list(constant(extra[2], node, "axes"), node, "axes") or ()
            axes = axes_of(node, listed, rank)
    if not np.isfinite(fill):
        raise node.unsupported("NaN or infinity in its value")
    if not pads or len(pads) != 2 * len(axes):
        raise node.broken(f"{pads} are not pads for {len(axes)} axes")
    width = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    if min(pads) < 0 or (rank > 1 and width[0] != (0, 0)):
        raise node.unsupported("negative padding, or padding of the batch axis")
    grown = [n + a + b for n, (a, b) in zip(value.shape, width, strict=True)]
    if math.prod(grown) > LARGEST_VALUE:
        raise node.unsupported(f"a result of shape {tuple(grown)} is too large")
    origin = np.pad(positions(value.size).reshape(value.shape), width, constant_values=-1)
    flat = origin.reshape(-1)
    inside = flat >= 0
    matrix = csr_matrix(
        np.ones(value.size, dtype=np.int8),
        flat[inside].astype(np.int32),
        np.concatenate(([0], np.cumsum(inside))).astype(np.int32),
        (flat.size, value.size),
    )
    result = apply(
        value,
        node,
        tuple(origin.shape),
        lambda columns, count: relabelled(matrix, columns, count),
        structural=value.structural,
    )
    return result.then(Shift(np.where(inside, 0.0, fill)))


@dataclass(frozen=True, eq=False)
class _Pooling:
    """The windows of one pooling node."""

    node: OnnxNode
    #: The shape of the result.
    shape: tuple[int, ...]
    #: Sparse 0/1 incidence of windows and positions of the value.
    windows: Any
    #: The steps of the value, with one entry for each window.
    steps: tuple[ElementwiseStep, ...]
    #: For each position whether the steps increase (1), decrease (-1) or are constant (0).
    direction: FloatArray


def max_pool(walk: GraphWalk, node: OnnxNode, operands: Sequence[Operand]) -> Value:
    """MaxPool and GlobalMaxPool, before a sign or after it."""
    value = plain(operands[0], node)
    channels, spatial = image_of(value.shape, node)
    if node.op == "GlobalMaxPool":
        windows = incidence_matrix(np.repeat(positions(channels), math.prod(spatial)), channels)
        out: tuple[int, ...] = (1,) * len(spatial)
    else:
        geometry = windows_of(node, spatial, node.integers("kernel_shape") or ())
        windows = incidence(geometry, channels, node)
        out = geometry.out_shape(len(spatial))
    if value.factor is not None:
        value = replace(value, factor=None, steps=(Scale(value.factor[value.index]), *value.steps))
    pooling = _Pooling(
        node,
        (1, channels, *out),
        windows,
        tuple(_shared_step(step, windows, node) for step in value.steps),
        _direction(value.steps, value.size),
    )
    if not (value.levels or value.is_signs):
        return _pooled_reals(value, pooling)
    pooled = (_pooled_levels if value.levels else _pooled_signs)(walk, value, pooling)
    for step in pooling.steps:
        pooled = pooled.then(step)
    return pooled


def _direction(steps: Sequence[ElementwiseStep], count: int) -> FloatArray:
    """Tell whether the steps increase (+1), decrease (-1) or are constant (0)."""
    direction = np.ones(count)
    for step in steps:
        if not isinstance(step, Shift):
            # The factor comes first among the parameters of all other steps.
            direction = direction * np.sign(step_arrays(step)[0])
    return direction


def _shared_step(step: ElementwiseStep, pool: Any, node: OnnxNode) -> ElementwiseStep:
    """Take one entry per window of a step, which all cells of the window must share."""
    shared = []
    for array in step_arrays(step):
        values = row_values(pool, array)
        if values is None:
            raise node.unsupported("cells of one window are scaled or shifted differently")
        shared.append(values)
    return type(step)(*shared)


def _any_stage(pooling: _Pooling, weights: Any, count: int) -> Stage:
    """Make the stage of `count` ORs over each window (or ANDs of decreasing functions)."""
    rising = row_values(pooling.windows, pooling.direction)
    assert rising is not None
    spare = np.diff(pooling.windows.indptr).astype(np.float64) - 1
    return Stage(
        weights=weights,
        steps=(Shift(np.repeat(np.where(rising >= 0, spare, -spare), count)),),
        name=pooling.node.name,
        sign_zero="plus",
        structural=True,
        bits="shared",
    )


def _pooled_signs(walk: GraphWalk, value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of signs, one more stage, without the steps after it."""
    stage = _any_stage(pooling, relabelled(pooling.windows, value.index, value.width), 1)
    pooled = replace(value, shape=pooling.shape, index=positions(pooling.windows.shape[0]))
    return add_stage(walk, pooled, stage, value.open_stages)


def _pooled_levels(walk: GraphWalk, value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of levels, the maximum of each of their signs, without the steps."""
    count, windows = value.levels, pooling.windows.shape[0]
    stage = _any_stage(pooling, pooled_levels(pooling.windows, value), count)
    signs = replace(value, shape=(windows * count,), index=positions(windows * count))
    turn = np.ones((windows, count), dtype=np.int8)
    return sum_of_signs(add_stage(walk, signs, stage, ()), pooling.shape, turn)


def _pooled_reals(value: Value, pooling: _Pooling) -> Value:
    """Take the maximum of real numbers, with the steps moved behind the maximum."""
    falling = pooling.direction < 0
    steps = pooling.steps
    if value.matrix is None:
        rows = rows_of(replace(value, index=positions(value.width)))
        value = replace(value, matrix=rows, name=pooling.node.name)
    if value.pool is not None:
        if np.any(falling):
            raise pooling.node.unsupported(
                "the maximum of a decreasing function of another maximum"
            )
        inner = relabelled(pooling.windows, value.index, value.pool.shape[0])
        windows = inner.astype(np.int64) @ value.pool
        windows.data = np.minimum(windows.data, 1)
    else:
        windows = relabelled(pooling.windows, value.index, value.matrix.shape[0])
        if np.any(falling):
            # max F(u) with F decreasing is F(-max(-u)): negate the rows, then the maximum.
            flip = np.ones(value.matrix.shape[0])
            flip[value.index[falling]] = -1.0
            value = _flipped(value, flip)
            back = row_values(pooling.windows, np.where(falling, -1.0, 1.0))
            assert back is not None
            steps = (Scale(back), *steps)
    return replace(
        value,
        shape=pooling.shape,
        index=positions(pooling.windows.shape[0]),
        pool=tidy(windows.tocsr()),
        steps=steps,
    )


def _flipped(value: Value, flip: FloatArray) -> Value:
    described: Convolution | None = value.convolution
    if described is not None:
        channel = flip.reshape(described.kernel.shape[0], -1)
        if bool(np.all(channel == channel[:, :1])):
            kernel = described.kernel * channel[:, 0].reshape(-1, 1, 1, 1)
            described = replace(described, kernel=kernel)
        else:
            described = None
    return replace(value, matrix=scale_rows(value.matrix, flip), convolution=described)
