r"""The network that is trained: ternary maps, batch normalisation, max-pooling and signs.

    x_i = sign(max-pool(BN_i(W_i x_{i-1} + b_i))),     scores = W_{L+1} x_L + b_{L+1}

Sign is increasing, so pooling before and after it are equal; gradients are better before it.
Convolutions with a stride make images smaller by themselves and are not followed by pooling.
With a binarised input, x_0 are the signs of the inputs about a threshold, else the inputs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bnncert.errors import InputError


class _Ternary(torch.autograd.Function):  # type: ignore[misc]
    """Latent weights to -1, 0, +1; the gradient passes unchanged.

    The training loop keeps latent weights in [-1, 1], so nothing is clipped here.
    """

    @staticmethod
    def forward(ctx: Any, latent: Tensor, threshold: Tensor) -> Tensor:
        """Return the sign where the magnitude is above the threshold, else 0."""
        return (latent >= 0).to(latent.dtype).mul_(2).sub_(1).mul_(latent.abs() > threshold)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient unchanged."""
        return grads[0], None


class _Sign(torch.autograd.Function):  # type: ignore[misc]
    """sign with sign(0) = +1; the gradient passes where the argument is in [-1, 1]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the signs."""
        ctx.save_for_backward(x)
        return (x >= 0).to(x.dtype).mul_(2).sub_(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient where the argument is in [-1, 1], else zero."""
        (x,) = ctx.saved_tensors
        return grads[0] * (x.abs() <= 1)


def ternary(latent: Tensor, threshold: Tensor) -> Tensor:
    """Return weights in {-1, 0, +1} (in {-1, +1} if the threshold is negative)."""
    return _Ternary.apply(latent, threshold)


def sign(x: Tensor) -> Tensor:
    """Return signs in {-1, +1}."""
    return _Sign.apply(x)


#: Latent weights start uniformly in [-START, START].
START = 0.15

#: Added to variances, as Larq does.
EPSILON = 1e-3

KERNEL, POOL = 3, 2


class TernaryMap(nn.Module):  # type: ignore[misc]
    """An affine map, dense or a 3 x 3 convolution, whose weights are quantised latent ones."""

    def __init__(self, shape: tuple[int, ...], generator: Any, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.latent = nn.Parameter(torch.empty(shape).uniform_(-START, START, generator=generator))
        self.bias = nn.Parameter(torch.zeros(shape[0]))
        self.register_buffer("threshold", torch.tensor(-1.0))

    def weights(self) -> Tensor:
        """Return the weights in {-1, 0, +1}."""
        return ternary(self.latent, self.threshold)

    def set_zero_share(self, share: float) -> None:
        """Move the threshold to that quantile of the latent magnitudes."""
        with torch.no_grad():
            count = round(share * self.latent.numel())
            if count == 0:
                # No magnitude is below this threshold: the weights are binary.
                self.threshold.fill_(-1.0)
            else:
                self.threshold.copy_(self.latent.abs().flatten().kthvalue(count).values)

    def apply_weights(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the map with these weights (its own, or their magnitudes) at a batch."""
        if weights.dim() == 2:
            return functional.linear(x.flatten(1), weights, bias)
        return functional.conv2d(x, weights, bias, stride=self.stride, padding=KERNEL // 2)


class HiddenLayer(nn.Module):  # type: ignore[misc]
    """A ternary map, batch normalisation, max-pooling after a convolution of stride 1, and sign."""

    def __init__(self, shape: tuple[int, ...], generator: Any, stride: int = 1) -> None:
        super().__init__()
        self.map = TernaryMap(shape, generator, stride)
        kind = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
        self.norm = kind(shape[0], eps=EPSILON)
        self.convolutional = len(shape) == 4
        self.pooled = self.convolutional and stride == 1

    def normalised(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the normalised sums, before pooling and sign."""
        return self.norm(self.map.apply_weights(x, weights, self.map.bias))

    def signs(self, normalised: Tensor) -> Tensor:
        """Return the outputs of the layer."""
        return sign(functional.max_pool2d(normalised, POOL) if self.pooled else normalised)


class TernaryNet(nn.Module):  # type: ignore[misc]
    """Convolutions, dense layers and the ternary output layer."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        conv: tuple[int, ...],
        hidden: tuple[int, ...],
        classes: int,
        generator: Any = None,
        input_threshold: float | None = None,
        stride: int = 1,
    ) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.input_threshold = input_threshold
        shapes, inputs = layer_shapes(input_shape, conv, hidden, stride)
        self.layers = nn.ModuleList(HiddenLayer(shape, generator, stride) for shape in shapes)
        self.output = TernaryMap((classes, inputs), generator)
        # Scores are sums of hundreds of signs; this only scales them for the loss.
        self.temperature = inputs**0.5

    def maps(self) -> list[TernaryMap]:
        """Return the linear maps, first to last."""
        return [*(layer.map for layer in self.layers), self.output]

    def set_zero_share(self, share: float) -> None:
        """Make that share of every layer's weights zero."""
        for map_ in self.maps():
            map_.set_zero_share(share)

    def zero_share(self) -> float:
        """Return the share of zero weights over all layers."""
        with torch.no_grad():
            weights = [map_.weights() for map_ in self.maps()]
        zeros = sum(int((w == 0).sum()) for w in weights)
        return zeros / sum(int(w.numel()) for w in weights)

    def clip_latent(self) -> None:
        """Keep the latent weights in [-1, 1]."""
        with torch.no_grad():
            for map_ in self.maps():
                map_.latent.clamp_(-1.0, 1.0)

    def shaped(self, x: Tensor) -> Tensor:
        """Return flat points in the shape that the first map takes, binarised if so chosen."""
        if self.input_threshold is not None:
            x = sign(x - self.input_threshold)
        return x.reshape(-1, *self.input_shape) if self.layers[0].convolutional else x

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of a batch of flat points."""
        x = self.shaped(x)
        for layer in self.layers:
            x = layer.signs(layer.normalised(x, layer.map.weights()))
        return self.output.apply_weights(x, self.output.weights(), self.output.bias)


def smaller(size: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return the image size after a convolution of this stride, and pooling if that is 1."""
    if stride == 1:
        return size[0] // POOL, size[1] // POOL
    return (size[0] - 1) // stride + 1, (size[1] - 1) // stride + 1


def layer_shapes(
    input_shape: tuple[int, ...], conv: tuple[int, ...], hidden: tuple[int, ...], stride: int = 1
) -> tuple[list[tuple[int, ...]], int]:
    """Return the weight shapes of the hidden layers, and the inputs of the output layer."""
    shapes: list[tuple[int, ...]] = []
    if conv:
        if len(input_shape) != 3:
            raise InputError(
                f"--conv needs images (channels, height, width); the data have shape {input_shape}"
            )
        channels, height, width = input_shape
        for out in conv:
            if min(height, width) < POOL:
                how = "pooling" if stride == 1 else f"stride {stride}"
                raise InputError(
                    f"--conv: {len(conv)} convolutions with {how} are too many for images of "
                    f"{input_shape[1]} x {input_shape[2]} pixels"
                )
            shapes.append((out, channels, KERNEL, KERNEL))
            channels, (height, width) = out, smaller((height, width), stride)
        inputs = channels * height * width
    else:
        inputs = math.prod(input_shape)
    shapes += [(after, before) for before, after in pairwise((inputs, *hidden))]
    return shapes, hidden[-1] if hidden else inputs
