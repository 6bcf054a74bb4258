"""The operands of a node: constants, and the tensor that depends on the network's input.

Position k of that tensor, flattened in C order, is

    steps_k( max over the window of  factor_r * <row_r, y>  )      r = index[k]

where y is the network's input or the signs of the last stage.  Without a matrix, r is an entry
of y itself (and `index` a permutation of them); without a window, there is no maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import (
    Convolution,
    Divide,
    ElementwiseStep,
    OutputTransform,
    Scale,
    Shift,
    SignZero,
    Stage,
    WeightBits,
    take_step,
)
from bnncert.model.formats.onnx.exact import row_values, tidy
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, PLAIN_TYPES, OnnxNode, type_name
from bnncert.model.matrices import csr_matrix, factor_sparse, scale_rows

# -- constants ----------------------------------------------------------------------------

Tensor: TypeAlias = npt.NDArray[Any]


def exact_floats(array: Tensor, node: OnnxNode, what: str) -> FloatArray:
    """Convert a tensor to float64; raise unless all numbers are finite and fit."""
    try:
        with np.errstate(invalid="ignore"):
            floats: FloatArray = array.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise node.unsupported(f"{what} has type {array.dtype}; expected numbers") from error
    if not np.all(np.isfinite(floats)):
        raise node.unsupported(f"NaN or infinity in {what}")
    if array.dtype.kind in "iu" and np.any(np.abs(floats) >= 2.0**53):
        raise node.unsupported(f"integers larger than 2^53 in {what}")
    return floats


def integer_list(array: Tensor | None, node: OnnxNode, what: str) -> tuple[int, ...] | None:
    """Read a constant list of integers (axes, pads, a shape)."""
    if array is None:
        return None
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise node.broken(
            f"{what} has type {array.dtype} and shape {array.shape}; expected a list of integers"
        )
    return tuple(int(n) for n in array.reshape(-1))


def scalar(tensor: Tensor, node: OnnxNode, what: str, axes: int = 0) -> Any:
    """Take the only entry of a tensor with at most `axes` axes."""
    if tensor.size != 1 or tensor.ndim > axes:
        raise node.unsupported(f"{what} has shape {tensor.shape}; expected a single number")
    return tensor.reshape(-1)[0]


def target_type(node: OnnxNode) -> np.dtype[Any]:
    """Find the NumPy type to which a Cast converts."""
    code = node.integer("to", 0)
    if code not in PLAIN_TYPES:
        raise node.unsupported(f"a conversion to element type {type_name(code)}")
    target: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(code)
    return target


def clip_range(node: OnnxNode, operands: Sequence[Any]) -> tuple[Any, Any]:
    """Read the bounds of a Clip, None where there is no bound."""
    if node.opset < 11:
        largest = float(np.finfo(np.float32).max)
        return node.number("min", -largest), node.number("max", largest)
    low, high = (
        None if bound is None else scalar(bound, node, "a bound")
        for bound in [*operands[1:3], None, None][:2]
    )
    if any(bound is not None and np.isnan(bound) for bound in (low, high)):
        raise node.unsupported("a bound is not a number")
    return low, high


# -- values -------------------------------------------------------------------------------

#: Integer types of values; unsigned types are excluded because they do not contain -1.
INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))

#: Integers up to this size, after this number of steps, are exact in float32 and do not overflow.
LARGEST_INTEGER, MOST_INTEGER_STEPS = 8, 6


class Clip(NamedTuple):
    """The range of a Clip or Relu, and the node for messages."""

    low: float
    high: float
    node: str
    #: The number of steps of the value before it.
    after: int = 0


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, as an affine (or windowed) function of the last signs or of the input."""

    #: Its shape, with a batch axis of 1.
    shape: tuple[int, ...]
    #: Flat position -> row of `pool`, else row of `matrix`, else entry of the source.
    index: IntArray
    #: The number of entries of the source.
    width: int
    #: Whether the source is a stage's signs (rather than the network's input).
    signs: bool = False
    #: Sparse rows over the source, and a positive factor for each of them.
    matrix: Any = None
    factor: FloatArray | None = None
    #: Sparse 0/1 incidence of windows and rows of `matrix`.
    pool: Any = None
    #: Applied to each position, in order.
    steps: tuple[ElementwiseStep, ...] = ()
    convolution: Convolution | None = None
    structural: bool = False
    bits: WeightBits = "own"
    #: As in :class:`Stage`.
    other_terms: bool = False
    #: The element type of the tensor in the file.
    dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009
    #: The range to which the value was clipped, after which only arithmetic with constants and
    #: then a sign or levels may follow.
    clip: Clip | None = None
    #: The Round, Floor or Ceil of this value, which has infinitely many levels until it is clipped.
    rounding: OnnxNode | None = None
    #: The number of signs in each row of `matrix`, if the value has levels (module `quantisers`).
    levels: int = 0
    transform: OutputTransform = "scores"
    name: str = ""
    #: Stages that this value depends on and whose sign(0) is not defined so far.
    open_stages: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self.index.shape[0])

    @property
    def kind(self) -> Literal["real", "bool", "integer"]:
        """The kind of its entries; false is represented by -1 and true by +1."""
        if self.dtype.kind == "b":
            return "bool"
        return "integer" if self.dtype.kind in "iu" else "real"

    @property
    def is_signs(self) -> bool:
        """Whether every entry is a function of one sign."""
        return self.signs and self.matrix is None

    def reshaped(self, shape: tuple[int, ...]) -> Value:
        """Give the value another shape of the same size."""
        return replace(self, shape=shape)

    def transposed(self, axes: tuple[int, ...]) -> Value:
        """Bring the axes of the value to another order."""
        order = np.arange(self.size, dtype=np.int64).reshape(self.shape).transpose(axes)
        flat = order.reshape(-1)
        return replace(
            self,
            shape=order.shape,
            index=self.index[flat],
            steps=tuple(take_step(step, flat) for step in self.steps),
        )

    def then(self, step: ElementwiseStep) -> Value:
        """Add one more step, which is left out if it has no effect."""
        if isinstance(step, Scale) and bool(np.all(step.factor == 1.0)):
            return self
        if isinstance(step, Divide) and bool(np.all(step.divisor == 1.0)):
            return self
        if isinstance(step, Shift) and not bool(np.any(step.offset)):
            return self
        return replace(self, steps=(*self.steps, step))

    def times(self, number: float) -> Value:
        """Multiply all entries by a number."""
        return self.then(Scale(np.full(self.size, number)))

    def plus(self, number: float) -> Value:
        """Add a number to all entries."""
        return self.then(Shift(np.full(self.size, number)))

    def along(self, numbers: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Spread one number for each index of an axis to one for each position."""
        lengths = [1] * len(self.shape)
        lengths[axis] = self.shape[axis]
        return np.array(np.broadcast_to(numbers.reshape(lengths), self.shape)).reshape(-1)


Operand: TypeAlias = Value | Tensor | None


@dataclass(eq=False)
class GraphWalk:
    """The state of reading a graph: the stages so far.

    `as_written` is set for files whose weights are in normal form; no factors are then taken out
    of their rows.
    """

    stages: list[Stage] = field(default_factory=list)
    as_written: bool = False


def positions(count: int) -> npt.NDArray[np.int64]:
    """Count 0, 1, .., count - 1."""
    return np.arange(count, dtype=np.int64)


# -- stages -------------------------------------------------------------------------------


def rows_of(value: Value) -> Any:
    """Take the rows that `index` selects, for a value without windows."""
    if value.matrix is None:
        one = np.ones(value.size, dtype=np.int8)
        shape = (value.size, value.width)
        return csr_matrix(one, value.index, positions(value.size + 1), shape)
    if np.array_equal(value.index, positions(value.matrix.shape[0])):
        return value.matrix
    return value.matrix[value.index]


def stage_of(value: Value, name: str, sign_zero: SignZero | None, as_written: bool) -> Stage:
    """Make the stage that a sign of this value ends."""
    steps, pool, convolution = value.steps, None, value.convolution
    other_terms = value.other_terms
    if value.pool is None:
        weights = rows_of(value)
        if value.factor is not None:
            steps = (Scale(value.factor[value.index]), *steps)
        used = value.index
    else:
        windows = value.pool[value.index]
        # Positions that are in no window are not computed.
        used, column = np.unique(windows.indices, return_inverse=True)
        pool = tidy(
            csr_matrix(
                windows.data, column.astype(np.int32), windows.indptr, (windows.shape[0], used.size)
            )
        )
        weights = value.matrix
        if used.size != weights.shape[0]:
            weights = weights[used]
    if not as_written and not np.all(np.abs(weights.data) == 1):
        split = factor_sparse(weights)
        if split is not None:
            factor: FloatArray | None = split[1]
            if pool is not None:
                factor = row_values(pool, split[1])
            if factor is not None:
                # A kernel that is described beside its matrix was factored with it.
                weights, convolution, other_terms = split[0], None, True
                steps = (Scale(factor), *steps)
    if convolution is not None:
        convolution = replace(convolution, rows=used.astype(np.int64))
    return Stage(
        weights=weights,
        steps=steps,
        name=name,
        sign_zero=sign_zero,
        pool=pool,
        structural=value.structural or as_written,
        convolution=convolution,
        bits=value.bits,
        other_terms=other_terms,
    )


def output_stage(value: Value) -> Stage:
    """Make the stage of the scores: no sign, and factors multiplied back into the rows."""
    weights = rows_of(value).astype(np.float64)
    if value.factor is not None:
        # A row was split into a factor and -1, 0, 1: multiplying them again is exact.
        weights = scale_rows(weights, value.factor[value.index])
    return Stage(
        weights=weights,
        steps=value.steps,
        name=value.name or "output",
        structural=True,
        bits=value.bits,
        other_terms=value.other_terms,
    )


def add_stage(walk: GraphWalk, value: Value, stage: Stage, open_stages: tuple[int, ...]) -> Value:
    """Add a stage and return its signs in the shape of `value`."""
    walk.stages.append(stage)
    return Value(
        shape=value.shape,
        index=positions(value.size),
        width=value.size,
        signs=True,
        dtype=value.dtype,
        open_stages=open_stages,
    )


# -- the operands of a node ---------------------------------------------------------------


def depending(operand: Operand, node: OnnxNode) -> Value:
    """Expect an operand that depends on the network's input."""
    if not isinstance(operand, Value):
        raise node.unsupported("expected its first input to depend on the network's input")
    return operand


def refuse_unbounded(value: Value) -> None:
    """Raise for a rounded value with infinitely many levels."""
    if value.rounding is not None:
        raise value.rounding.unsupported(
            "it rounds values without bounds, which are not always integers; clip them before "
            "or after it (torch.clamp), or, if they are the network's inputs, with bnncert convert "
            "MODEL.onnx CLIPPED.onnx --clip LOW HIGH"
        )


def plain(operand: Operand, node: OnnxNode, kinds: tuple[str, ...] = ("real",)) -> Value:
    """Expect a value that arithmetic is defined for; raise if it is not one."""
    value = depending(operand, node)
    refuse_unbounded(value)
    if value.transform != "scores":
        raise node.unsupported(f"{value.transform} must be the last operation of the network")
    if value.clip is not None:
        raise node.unsupported(
            f"after {value.clip.node} only a sign or a quantiser is supported (a binary network "
            "has no other activations)"
        )
    if value.kind not in kinds:
        raise node.unsupported(f"its input has type {value.kind}; expected {' or '.join(kinds)}")
    if value.dtype == np.float16:
        raise node.unsupported("float16 rounds even sums of signs; convert the model to float32")
    return value


def arithmetic_value(operand: Operand, node: OnnxNode, kinds: tuple[str, ...] = ("real",)) -> Value:
    """Expect what `plain` expects, but it may be clipped."""
    value = depending(operand, node)
    plain(replace(value, clip=None), node, kinds)
    return value


def constant(operand: Operand, node: OnnxNode, what: str) -> Tensor:
    """Expect an operand that is constant."""
    if isinstance(operand, Value):
        raise node.unsupported(
            f"{what} depends on the network's input; two such inputs of one node (a residual "
            "connection or a branch) are not supported"
        )
    if operand is None:
        raise node.unsupported(f"{what} is missing")
    return operand


def constant_floats(operand: Operand, node: OnnxNode, what: str) -> FloatArray:
    """Expect a constant whose numbers are finite and fit float64."""
    return exact_floats(constant(operand, node, what), node, what)


def spread(
    value: Value, tensor: Tensor, node: OnnxNode, what: str = "its constant"
) -> tuple[tuple[int, ...], FloatArray]:
    """Broadcast a constant against a value; return the shape and one number per position."""
    floats = exact_floats(tensor, node, what)
    try:
        shape = np.broadcast_shapes(value.shape, floats.shape)
    except ValueError as error:
        raise node.unsupported(
            f"{what} of shape {floats.shape} does not fit shape {value.shape}"
        ) from error
    if math.prod(shape) != value.size or value.size > LARGEST_VALUE:
        raise node.unsupported(
            f"{what} of shape {floats.shape} would repeat a tensor of shape {value.shape}"
        )
    return shape, np.broadcast_to(floats, shape).reshape(-1).copy()
