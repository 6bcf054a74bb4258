"""Networks given as one layer after the other, as Keras and PyTorch describe them.

Each layer is carried out with the exact operators of the ONNX reader, so there is one place only
that decides what a binary network is and what can be kept without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from bnncert.arrays import FloatArray
from bnncert.description.model import ModelDescription, Normalise, Scale, Shift, SignZero
from bnncert.errors import BnncertError, FormatError, UnsupportedModelError, reason
from bnncert.formats.onnx.constants import exact_floats
from bnncert.formats.onnx.exact import InexactError, multiply
from bnncert.formats.onnx.graph import LARGEST_VALUE, OnnxNode
from bnncert.formats.onnx.linear import average_pool, convolution, matmul, pad, reduction
from bnncert.formats.onnx.operands import plain
from bnncert.formats.onnx.signs import binarise, max_pool, output_stage
from bnncert.formats.onnx.value import GraphWalk, Value, positions
from bnncert.formats.onnx.windows import convolution_matrix, image_of, windows_of

#: The operator set whose meaning the operators below have.
OPSET = 17


@dataclass(frozen=True, eq=False)
class LayerNode(OnnxNode):
    """One operator on behalf of a layer; messages speak of the layer."""

    kind: str = ""

    @property
    def place(self) -> str:
        """Where the layer is, for messages."""
        return f"{self.source}: layer {self.name} ({self.kind})"


@dataclass(frozen=True)
class FileLayer:
    """A layer's name and kind, as the file has them."""

    source: str
    name: str
    kind: str

    @property
    def place(self) -> str:
        """Where the layer is, for messages."""
        return self.node("").place

    def unsupported(self, why: str) -> UnsupportedModelError:
        """Return the error that says why this layer is not part of a binary network."""
        return UnsupportedModelError(f"{self.place}: {why}")

    def broken(self, why: str) -> FormatError:
        """Return the error that says what is wrong in the file."""
        return FormatError(f"{self.place}: {why}")

    def node(self, op: str, **attributes: Any) -> LayerNode:
        """Return an operator for this layer; attributes that are None are left out."""
        made = {
            key: helper.make_attribute(key, value)
            for key, value in attributes.items()
            if value is not None
        }
        return LayerNode(self.source, op, "", self.name, (), (), made, self.kind)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn whatever goes wrong with nonsense in the file into one line about this layer."""
        try:
            yield
        except BnncertError:
            raise
        except MemoryError as error:
            raise self.unsupported("not enough memory for this layer") from error
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise self.broken(f"malformed ({reason(error)})") from error


@dataclass(frozen=True, eq=False)
class WaitingPool:
    """Max-pooling of sums that a padding shifts differently, kept until after the sign.

    sign(F(max u)) is max sign(F(u)) for an increasing F and min sign(F(u)) for a decreasing one,
    so the pooling can wait while only batch normalisation by channel comes before the sign.

    Attributes
    ----------
    node
        The operator, on (1, C, H, W).
    axis
        The axis that has the channels now.
    rising
        For each channel whether F increases (1.0) or decreases (-1.0).
    shapes
        What the pooled tensor is to be reshaped to, with the layers that ask for it.
    """

    layer: FileLayer
    node: LayerNode
    axis: int
    rising: FloatArray
    shapes: tuple[tuple[FileLayer, tuple[int, ...]], ...] = ()


class Chain:
    """The network so far: stages that have ended, and the tensor that leaves the last layer."""

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
        self.walk = GraphWalk(opset=OPSET)
        self._uneven = False
        self._waiting: WaitingPool | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor that leaves the last layer, without the batch axis."""
        self._check_ready()
        return self.value.shape[1:]

    def description(
        self,
        kind: str,
        input_lo: FloatArray | None = None,
        input_hi: FloatArray | None = None,
    ) -> ModelDescription:
        """Return the network; what leaves the last layer are its scores."""
        value = self.value
        if value.pool is not None or value.clipped or self._waiting is not None:
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

    # -- linear layers --------------------------------------------------------------------

    def dense(self, layer: FileLayer, weights: npt.NDArray[Any], bias: Any = None) -> None:
        """Multiply the last axis by `weights` (inputs x outputs) and add `bias`."""
        self._check_ready()
        self.value = matmul(self.walk, layer.node("MatMul"), [self.value, weights])
        if bias is not None:
            self._shift(layer, bias, axis=-1)

    def convolution(
        self,
        layer: FileLayer,
        kernel: npt.NDArray[Any],
        bias: Any = None,
        *,
        strides: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] | None = None,
        same: bool = False,
        dilations: tuple[int, int] = (1, 1),
        groups: int = 1,
        fill: float = 0.0,
    ) -> None:
        """Convolve (1, C, H, W) with a kernel (O, C / groups, kh, kw).

        `pads` are (top, left, bottom, right); `same` pads for an output of size / stride, with
        the odd cell at the end; `fill` is what the padding holds.
        """
        node = layer.node(
            "Conv",
            strides=strides,
            pads=pads,
            auto_pad="SAME_UPPER" if same else None,
            dilations=dilations,
            group=groups,
        )
        self._check_ready()
        shape = self.value.shape
        self.value = convolution(self.walk, node, [self.value, kernel])
        if fill:
            share = _padding_share(layer, node, shape, kernel, groups, fill)
            self.value = self.value.then(Shift(share))
            self._uneven = bool(np.any(share))
        if bias is not None:
            self._shift(layer, bias, axis=1)

    def average_pool(self, layer: FileLayer, kernel: tuple[int, int], **geometry: Any) -> None:
        """Average over windows of (1, C, H, W); padding does not count."""
        self._check_ready()
        node = layer.node("AveragePool", kernel_shape=kernel, **geometry)
        self.value = average_pool(self.walk, node, [self.value])

    def global_average(self, layer: FileLayer) -> None:
        """Average over all of each channel of (1, C, H, W)."""
        self._check_ready()
        self.value = reduction(self.walk, layer.node("GlobalAveragePool"), [self.value])

    def pad(self, layer: FileLayer, pads: tuple[int, int, int, int]) -> None:
        """Put zeros (top, left, bottom, right) around (1, C, H, W)."""
        self._check_ready()
        top, left, bottom, right = pads
        widths = np.array([0, 0, top, left, 0, 0, bottom, right])
        self.value = pad(self.walk, layer.node("Pad"), [self.value, widths])

    # -- elementwise layers ---------------------------------------------------------------

    def _shift(self, layer: FileLayer, bias: npt.NDArray[Any], axis: int) -> None:
        self.value = self.value.then(Shift(self._along(layer, bias, axis, "bias")))

    def _along(self, layer: FileLayer, array: npt.NDArray[Any], axis: int, what: str) -> FloatArray:
        """Return one number for each position from one number for each index of an axis."""
        shape = self.value.shape
        if array.shape != (shape[axis],):
            raise layer.broken(f"{what} of shape {array.shape} for {shape[axis]} channels")
        floats = exact_floats(array, layer.node(""), what)
        lengths = [1] * len(shape)
        lengths[axis] = shape[axis]
        spread: FloatArray = np.broadcast_to(floats.reshape(lengths), shape).reshape(-1).copy()
        return spread

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
        value = plain(self.value, layer.node(""))
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
                raise self._too_late()
            rising = np.where(arrays["gamma"] < 0, -self._waiting.rising, self._waiting.rising)
            self._waiting = replace(self._waiting, rising=rising)
        self.value = value.then(Normalise(epsilon=value.uniformly(epsilon), **numbers))

    def sign(self, layer: FileLayer, at_zero: SignZero | None) -> None:
        """Take the sign; `at_zero` is None where the model does not say what sign(0) is."""
        self.value = binarise(self.walk, self.value, layer.node("Sign"), at_zero)
        self._uneven = False
        if self._waiting is not None:
            if at_zero not in ("plus", "minus"):
                raise layer.unsupported("sign(0) must be known where padded sums are pooled")
            self._pool_signs(self._waiting)

    def clip(self, layer: FileLayer, low: float, high: float) -> None:
        """Clip to a range around zero, of which only a sign may follow."""
        value = plain(self.value, layer.node("Clip"))
        if not low < 0 < high:
            raise layer.unsupported(f"clips to [{low:g}, {high:g}], which changes the sign")
        self.value = replace(value, clipped=True)

    def softmax(self, layer: FileLayer, axis: int = -1) -> None:
        """Softmax over all scores."""
        self._check_ready()
        value = plain(self.value, layer.node("Softmax"))
        if value.shape[axis] != value.size:
            raise layer.unsupported(f"axis {axis} of shape {self.shape} does not hold all scores")
        self.value = replace(value, transform="softmax")

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
                raise self._too_late()
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

    def global_max(self, layer: FileLayer) -> None:
        """Take the maximum of each channel of (1, C, H, W)."""
        self._check_ready()
        self.value = max_pool(self.walk, layer.node("GlobalMaxPool"), [self.value])

    def _pool_signs(self, waiting: WaitingPool) -> None:
        """Carry out a pooling that has waited for this sign."""
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
            raise self._too_late()

    def _too_late(self) -> UnsupportedModelError:
        assert self._waiting is not None
        return self._waiting.layer.unsupported(
            "pools sums over a padding that is not zero; after that only batch normalisation of "
            "the channels and a sign are supported"
        )


def _padding_share(
    layer: FileLayer,
    node: OnnxNode,
    shape: tuple[int, ...],
    kernel: npt.NDArray[Any],
    groups: int,
    fill: float,
) -> FloatArray:
    """Return what a padding of `fill` adds to each output of a zero-padded convolution."""
    if kernel.dtype.kind != "i":
        raise layer.unsupported(
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
        raise layer.unsupported(f"padding with {fill!r} cannot be kept exactly") from error
