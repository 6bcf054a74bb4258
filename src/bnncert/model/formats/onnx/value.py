"""The tensor that depends on the network's input, at one point of the graph.

Position k of the tensor, flattened in C order, is

    steps_k( max over the window of  factor_r * <row_r, y>  )      r = index[k]

where y is the network's input or the signs of the last stage.  Without a matrix, r is an entry
of y itself (and `index` a permutation of them); without a window, there is no maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray
from bnncert.model.description import (
    Convolution,
    Divide,
    ElementwiseStep,
    OutputTransform,
    Scale,
    Shift,
    Stage,
    WeightBits,
    take_step,
)
from bnncert.model.formats.onnx.constants import Tensor
from bnncert.model.formats.onnx.graph import OnnxNode

#: Integer types of values; unsigned types are excluded because they do not contain -1.
INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))

#: Integers up to this size, after this number of steps, are exact in float32 and do not overflow.
LARGEST_INTEGER, MOST_INTEGER_STEPS = 8, 6


@dataclass(frozen=True)
class Clip:
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
    #: The number of signs in each row of `matrix`, if the value has levels (module `levels`).
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
        """Return the value with another shape of the same size."""
        return replace(self, shape=shape)

    def transposed(self, axes: tuple[int, ...]) -> Value:
        """Return the value with its axes in another order."""
        order = np.arange(self.size, dtype=np.int64).reshape(self.shape).transpose(axes)
        flat = order.reshape(-1)
        return replace(
            self,
            shape=order.shape,
            index=self.index[flat],
            steps=tuple(take_step(step, flat) for step in self.steps),
        )

    def then(self, step: ElementwiseStep) -> Value:
        """Return the value after one more step, which is left out if it has no effect."""
        if isinstance(step, Scale) and bool(np.all(step.factor == 1.0)):
            return self
        if isinstance(step, Divide) and bool(np.all(step.divisor == 1.0)):
            return self
        if isinstance(step, Shift) and not bool(np.any(step.offset)):
            return self
        return replace(self, steps=(*self.steps, step))

    def uniformly(self, number: float) -> FloatArray:
        """Return one number for each position."""
        return np.full(self.size, number)


Operand: TypeAlias = Value | Tensor | None


@dataclass(eq=False)
class GraphWalk:
    """The state of reading a graph: the stages so far.

    `as_written` is set for files whose weights are in normal form; no factors are then taken out
    of their rows.
    """

    opset: int
    stages: list[Stage] = field(default_factory=list)
    as_written: bool = False


def positions(count: int) -> npt.NDArray[np.int64]:
    """Return 0, 1, .., count - 1."""
    return np.arange(count, dtype=np.int64)
