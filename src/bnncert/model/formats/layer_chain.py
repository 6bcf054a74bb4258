"""Networks that are a sequence of layers, as Keras and PyTorch describe them.

Each layer is applied with the exact operators of the ONNX reader, so that only one place decides
what a binary network is and what can be represented without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import helper

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import ModelDescription, Normalise, Scale, Shift, SignZero
from bnncert.model.formats.onnx.exact import InexactError, multiply
from bnncert.model.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.model.formats.onnx.linear import convolution, max_pool
from bnncert.model.formats.onnx.operators import HANDLERS, binarise, clip
from bnncert.model.formats.onnx.quantisers import count_steps
from bnncert.model.formats.onnx.shapes import convolution_matrix, image_of, windows_of
from bnncert.model.formats.onnx.value import (
    GraphWalk,
    Operand,
    Value,
    exact_floats,
    output_stage,
    plain,
    positions,
)

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

#: The operator set that defines the operators below.
OPSET = 17


class FileLayer(OnnxNode):
    """A layer with the name and kind that the file has, or one operator that implements it.

    A layer has the options and the arrays of the file, under the names that these have there.
    """

    def __init__(self, source: str, name: str, kind: str, op: str = "", **attributes: Any) -> None:
        made = {key: helper.make_attribute(key, value) for key, value in attributes.items()}
        super().__init__(source, op, "", name, (), (), made, OPSET)
        vars(self).update(kind=kind, options={}, arrays={})

    kind: str
    options: Mapping[str, Any]
    arrays: Arrays

    def having(self, options: Mapping[str, Any], arrays: Arrays) -> FileLayer:
        """Make the layer with these options and arrays."""
        made = FileLayer(self.source, self.name, self.kind)
        vars(made).update(options=options, arrays=arrays)
        return made

    @property
    def place(self) -> str:
        """The place of the layer in the file, for messages."""
        return f"{self.source}: layer {self.name} ({self.kind})"

    def node(self, op: str, **attributes: Any) -> FileLayer:
        """Make an operator for this layer; attributes that are None are left out."""
        given = {key: value for key, value in attributes.items() if value is not None}
        return FileLayer(self.source, self.name, self.kind, op, **given)


@dataclass(frozen=True, eq=False)
class WaitingPool:
    """Max-pooling of sums that the padding shifts by different amounts, applied after the sign.

    sign(F(max u)) is max sign(F(u)) for an increasing F and min sign(F(u)) for a decreasing one,
    so the pooling can be delayed while only batch normalisation by channel comes before the sign.
    """

    layer: FileLayer
    #: The operator, on (1, C, H, W).
    node: FileLayer
    #: The current axis of the channels.
    axis: int
    #: For each channel whether F increases (1.0) or decreases (-1.0).
    rising: FloatArray
    #: The shapes that later layers give to the pooled tensor, with these layers.
    shapes: tuple[tuple[FileLayer, tuple[int, ...]], ...] = ()


class Chain:
    """The network up to the current layer: finished stages, and the output of the last layer."""

    def __init__(self, source: str, input_shape: tuple[int, ...]) -> None:
        size = math.prod(input_shape)
        if not input_shape or min(input_shape) < 1 or size > LARGEST_VALUE:
            raise FormatError(
                f"{source}: input shape {input_shape}; expected positive sizes of at most "
                f"{LARGEST_VALUE} values together"
            )
        self.source = source
        self.input_shape = input_shape
        self.value = Value(shape=(1, *input_shape), index=positions(size), width=size)
        self.walk = GraphWalk()
        self._uneven = False
        self._waiting: WaitingPool | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output of the last layer, without the batch axis."""
        self._check_ready()
        return self.value.shape[1:]

    def description(
        self, kind: str, input_lo: FloatArray | None = None, input_hi: FloatArray | None = None
    ) -> ModelDescription:
        """Describe the network, whose scores are the output of the last layer."""
        value = self.value
        if value.pool is not None or value.clip is not None or self._waiting is not None:
            raise UnsupportedModelError(
                f"{self.source}: output: the scores must be a linear function of signs"
            )
        return ModelDescription(
            stages=(*self.walk.stages, output_stage(value)),
            input_shape=self.input_shape,
            input_lo=input_lo,
            input_hi=input_hi,
            output_transform=value.transform,
            source=self.source,
            kind=kind,
        )

    def apply(
        self, layer: FileLayer, op: str, *constants: npt.NDArray[Any], **attributes: Any
    ) -> None:
        """Apply an operator of ONNX to the output of the last layer; images are (1, C, H, W)."""
        self._check_ready()
        node = layer.node(op, **attributes)
        self.value = HANDLERS[op](self.walk, node, [self.value, *constants])

    # -- linear layers --------------------------------------------------------------------

    def dense(self, layer: FileLayer, weights: npt.NDArray[Any], bias: Any = None) -> None:
        """Multiply the last axis by `weights` (inputs x outputs) and add `bias`."""
        self.apply(layer, "MatMul", weights)
        if bias is not None:
            self._shift(layer, bias, axis=-1)

    def convolution(
        self,
        layer: FileLayer,
        kernel: npt.NDArray[Any],
        bias: Any,
        *,
        groups: int,
        fill: float = 0.0,
        **geometry: Any,
    ) -> None:
        """Convolve (1, C, H, W) with a kernel (O, C / groups, kh, kw).

        `fill` is the value of the padding, and `geometry` are the attributes of Conv.
        """
        node = layer.node("Conv", group=groups, **geometry)
        self._check_ready()
        shape = self.value.shape
        self.value = convolution(self.walk, node, [self.value, kernel])
        if fill:
            share = _padding_share(node, shape, kernel, groups, fill)
            self.value = self.value.then(Shift(share))
            self._uneven = bool(np.any(share))
        if bias is not None:
            self._shift(layer, bias, axis=1)

    # -- elementwise layers ---------------------------------------------------------------

    def _shift(self, layer: FileLayer, bias: npt.NDArray[Any], axis: int) -> None:
        self.value = self.value.then(Shift(self._along(layer, bias, axis, "bias")))

    def _along(self, layer: FileLayer, array: npt.NDArray[Any], axis: int, what: str) -> FloatArray:
        """Spread one number for each index of an axis to one for each position."""
        shape = self.value.shape
        if array.shape != (shape[axis],):
            raise layer.broken(f"{what} of shape {array.shape} for {shape[axis]} channels")
        return self.value.along(exact_floats(array, layer, what), axis)

    def normalise(
        self,
        layer: FileLayer,
        *,
        mean: npt.NDArray[Any],
        variance: npt.NDArray[Any],
        epsilon: float,
        axis: int,
        gamma: npt.NDArray[Any] | None = None,
        beta: npt.NDArray[Any] | None = None,
    ) -> None:
        """Batch normalisation with stored statistics along one axis."""
        value = plain(self.value, layer)
        arrays = {
            "gamma": np.ones(mean.shape) if gamma is None else gamma,
            "beta": np.zeros(mean.shape) if beta is None else beta,
            "mean": mean,
            "variance": variance,
        }
        numbers = {key: self._along(layer, array, axis, key) for key, array in arrays.items()}
        if not np.isfinite(epsilon) or np.any(numbers["variance"] + epsilon <= 0):
            raise layer.unsupported("variance + epsilon is not positive")
        if self._waiting is not None:
            if self._waiting.axis != axis % len(value.shape) or self._waiting.shapes:
                raise self._pending_pool_error()
            rising = np.where(arrays["gamma"] < 0, -self._waiting.rising, self._waiting.rising)
            self._waiting = replace(self._waiting, rising=rising)
        self.value = value.then(Normalise(epsilon=np.full(value.size, epsilon), **numbers))

    def sign(self, layer: FileLayer, at_zero: SignZero | None) -> None:
        """Take the sign; `at_zero` is None where the model does not define sign(0)."""
        self.value = binarise(self.walk, self.value, layer.node("Sign"), at_zero)
        self._uneven = False
        if self._waiting is not None:
            if at_zero not in ("plus", "minus"):
                raise layer.unsupported("sign(0) must be known where padded sums are pooled")
            self._pool_signs(self._waiting)

    def levels(
        self,
        layer: FileLayer,
        thresholds: Sequence[float],
        strict: Sequence[bool],
        low: float,
        step: float,
    ) -> None:
        """Apply step * (low + the number of thresholds reached), with one neuron for each of them.

        Thresholds are in ascending order; a value equal to one that is `strict` is below the step.
        """
        self._check_ready()
        table = np.array([thresholds], dtype=np.float64)
        taken = count_steps(self.walk, self.value, layer.node("Quant"), table, strict)
        self.value = taken.plus(low).times(step)
        self._uneven = False

    def clip(self, layer: FileLayer, low: float, high: float) -> None:
        """Clip to a range around zero, after which only a sign is supported."""
        operands: list[Operand] = [self.value, np.array(low), np.array(high)]
        self.value = clip(self.walk, layer.node("Clip"), operands)

    # -- layers that move entries, and maxima ----------------------------------------------

    def reshape(self, layer: FileLayer, shape: tuple[int, ...]) -> None:
        """Give the tensor another shape; one of its sizes may be -1."""
        if self._waiting is not None:
            shapes = (*self._waiting.shapes, (layer, shape))
            self._waiting = replace(self._waiting, shapes=shapes)
            return
        size, known = self.value.size, math.prod(n for n in shape if n != -1)
        wild = sum(n == -1 for n in shape)
        if wild == 1 and known > 0 and size % known == 0:
            shape = tuple(size // known if n == -1 else n for n in shape)
        elif wild or known != size or min(shape, default=1) < 1:
            raise layer.broken(f"a tensor of shape {self.shape} cannot have shape {shape}")
        self.value = self.value.reshaped((1, *shape))

    def transpose(self, axes: tuple[int, ...]) -> None:
        """Reorder the axes, the batch axis included."""
        self.value = self.value.transposed(axes)
        if self._waiting is not None:
            if self._waiting.shapes:
                raise self._pending_pool_error()
            self._waiting = replace(self._waiting, axis=axes.index(self._waiting.axis))

    def max_pool(self, layer: FileLayer, kernel: tuple[int, int], **geometry: Any) -> None:
        """Take the maximum over windows of (1, C, H, W)."""
        self._check_ready()
        node = layer.node("MaxPool", kernel_shape=kernel, **geometry)
        if self._uneven:
            channels, _ = image_of(self.value.shape, node)
            self._waiting = WaitingPool(layer, node, 1, np.ones(channels))
            return
        self.value = max_pool(self.walk, node, [self.value])

    def _pool_signs(self, waiting: WaitingPool) -> None:
        """Apply a delayed pooling after this sign."""
        self._waiting = None
        forth = (0, waiting.axis, *(k for k in range(1, 4) if k != waiting.axis))
        self.value = self.value.transposed(forth)
        # The minimum of signs is the maximum of their negatives, negated.
        self._turn(waiting)
        self.value = max_pool(self.walk, waiting.node, [self.value])
        self._turn(waiting)
        self.value = self.value.transposed(tuple(forth.index(k) for k in range(4)))
        for layer, shape in waiting.shapes:
            self.reshape(layer, shape)

    def _turn(self, waiting: WaitingPool) -> None:
        factor = self._along(waiting.layer, waiting.rising, 1, "direction")
        self.value = self.value.then(Scale(factor))

    def _check_ready(self) -> None:
        if self._waiting is not None:
            raise self._pending_pool_error()

    def _pending_pool_error(self) -> UnsupportedModelError:
        assert self._waiting is not None
        return self._waiting.layer.unsupported(
            "pools sums over a padding that is not zero; after that only batch normalisation of "
            "the channels and a sign are supported"
        )


#: Applies a layer, with its options and arrays, to what the chain is so far.
LayerHandler: TypeAlias = Callable[[Chain, FileLayer], None]


def pair(value: Any) -> tuple[int, int]:
    """Read a pair of integers, or one integer that stands for both."""
    first, second = (value, value) if type(value) is int else value
    if type(first) is not int or type(second) is not int:
        raise ValueError(f"{value!r} is not an integer or two integers")
    return first, second


def _padding_share(
    node: OnnxNode, shape: tuple[int, ...], kernel: npt.NDArray[Any], groups: int, fill: float
) -> FloatArray:
    """Compute by how much the outputs differ from those of the convolution padded with zeros."""
    if kernel.dtype.kind != "i":
        raise node.unsupported(
            f"padding with {fill:g} is supported for kernels of -1, 0, 1 only, not for real ones"
        )
    channels, spatial = image_of(shape, node)
    windows = windows_of(node, spatial, kernel.shape[2:])
    cells = channels * windows.image[0] * windows.image[1]
    inside = convolution_matrix(
        kernel.astype(np.int64), groups, windows, positions(cells), cells
    ).sum(axis=1)
    places = windows.out[0] * windows.out[1]
    total = np.repeat(kernel.reshape(kernel.shape[0], -1).astype(np.int64).sum(axis=1), places)
    try:
        return multiply((total - inside).astype(np.float64), np.full(total.size, fill))
    except InexactError as error:
        raise node.unsupported(f"padding with {fill!r} cannot be kept exactly") from error
