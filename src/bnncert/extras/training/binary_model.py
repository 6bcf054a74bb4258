r"""The network that is trained: ternary maps, batch normalisation, max-pooling and signs.

    x_i = sign(max-pool(BN_i(W_i x_{i-1} + b_i))),     scores = W_{L+1} x_L + b_{L+1}

Sign is increasing, so pooling before and after it are equal; gradients are better before it.
Convolutions with a stride make images smaller by themselves and are not followed by pooling.
With input thresholds, x_0 are the signs of all inputs about each of them, else the inputs.

Penalties make a network easier to verify on L-inf balls.  Interval bounds are computed in the
forward pass: an input x of a layer lies in [x + s - r, x + s + r]; then w.x changes by at most
|w|.r - w.s downwards and |w|.r + w.s upwards.  A neuron whose distance d from its threshold is
smaller than the change towards it is unstable: its sign may flip, which is x in {-1, +1} with
r = 1, s = -x for the next layer.  The penalty has two terms:

* distance: mean over neurons of max(0, 1 - d / (MARGIN * change)), which moves neurons away from
  their thresholds by more than the ball can;
* margin: the cross entropy of the scores in which every other class is raised by as much as the
  unstable neurons of the last layer can raise it.

Certified training takes the scores that interval bounds leave to an adversary instead.  A box
around an image is a middle m and a radius r.  Each layer maps it to W m -+ |W| r, batch
normalisation to another interval, and the signs of its two ends are the box of the next layer.  A
rival may then be ahead by at most (w_j - w_y) m + |w_j - w_y| r.  This is the bound of the batched
proofs of `run`, so an image with a negative bound for every rival is certified.  Unlike the
penalties, both ends carry gradients: a neuron that is open is moved by the end that is on the
wrong side.

The bounds of a whole ball are so loose that a network which makes them tight is right less often.
So the box of the loss is a part of the ball, around the worse of two points: the image, and that
of an adversary, one step along the gradient that moves all inputs to an end of their intervals.
Only some of the inputs, drawn for every image and step, stay free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bnncert.errors import InputError

# -- quantisers with straight-through gradients -------------------------------------------


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
    """sign with sign(0) = +1; the gradient passes where the argument is in a window."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: float) -> Tensor:
        """Return the signs."""
        ctx.save_for_backward(x)
        ctx.window = window
        return (x >= 0).to(x.dtype).mul_(2).sub_(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient where the argument is in [-window, window], else zero."""
        (x,) = ctx.saved_tensors
        return grads[0] * (x.abs() <= ctx.window), None


def ternary(latent: Tensor, threshold: Tensor) -> Tensor:
    """Return weights in {-1, 0, +1} (in {-1, +1} if the threshold is negative)."""
    return _Ternary.apply(latent, threshold)


def sign(x: Tensor, window: float = 1.0) -> Tensor:
    """Return signs in {-1, +1}; gradients pass where `x` is in [-window, window]."""
    return _Sign.apply(x, window)


# -- the model ----------------------------------------------------------------------------

#: Latent weights start uniformly in [-START, START].
START = 0.15

#: Added to variances, as Larq does.
EPSILON = 1e-3

POOL = 2


class TernaryMap(nn.Module):  # type: ignore[misc]
    """An affine map, dense or a convolution, whose weights are quantised latent ones."""

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
        return functional.conv2d(
            x, weights, bias, stride=self.stride, padding=weights.shape[-1] // 2
        )


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

    def signs(self, normalised: Tensor, window: float = 1.0) -> Tensor:
        """Return the outputs of the layer."""
        sums = functional.max_pool2d(normalised, POOL) if self.pooled else normalised
        return sign(sums, window)


class TernaryNet(nn.Module):  # type: ignore[misc]
    """Convolutions, dense layers and the ternary output layer."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        conv: tuple[int, ...],
        hidden: tuple[int, ...],
        classes: int,
        generator: Any = None,
        input_thresholds: tuple[float, ...] = (),
        stride: int = 1,
        kernel: int = 3,
    ) -> None:
        super().__init__()
        self.input_shape = input_shape
        self.input_thresholds = input_thresholds
        channels = input_shape[0] * max(1, len(input_thresholds))
        shape = (channels, *input_shape[1:])
        shapes, inputs = layer_shapes(shape, conv, hidden, stride, kernel)
        self.layers = nn.ModuleList(HiddenLayer(shape, generator, stride) for shape in shapes)
        self.output = TernaryMap((classes, inputs), generator)
        # Scores are sums of hundreds of signs; this only scales them for the loss.
        self.temperature = inputs**0.5

    def maps(self) -> list[TernaryMap]:
        """Return the linear maps, first to last."""
        return [*(layer.map for layer in self.layers), self.output]

    def set_zero_share(self, share: float, others: float | None = None) -> None:
        """Make that share of every layer's weights zero; `others` is that of all but the dense.

        These are the output layer and kernels, which have few weights for each neuron.
        """
        for map_ in self.maps():
            few = map_ is self.output or map_.latent.dim() == 4
            map_.set_zero_share(share if others is None or not few else others)

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
        if self.input_thresholds:
            x = torch.cat([sign(x - threshold) for threshold in self.input_thresholds], dim=1)
        if not self.layers[0].convolutional:
            return x
        return x.reshape(len(x), -1, *self.input_shape[1:])

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
    input_shape: tuple[int, ...],
    conv: tuple[int, ...],
    hidden: tuple[int, ...],
    stride: int = 1,
    kernel: int = 3,
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
            shapes.append((out, channels, kernel, kernel))
            channels, (height, width) = out, smaller((height, width), stride)
        inputs = channels * height * width
    else:
        inputs = math.prod(input_shape)
    shapes += [(after, before) for before, after in pairwise((inputs, *hidden))]
    return shapes, hidden[-1] if hidden else inputs


# -- penalties ----------------------------------------------------------------------------

#: Neurons are moved this many times as far from their thresholds as the ball reaches.
MARGIN = 2.0

#: Weight of the distance term beside the margin term.
DISTANCE = 10.0


@dataclass(frozen=True)
class Penalised:
    """Scores of a batch, its penalty, and the share of unstable neurons in the first layer."""

    scores: Tensor
    penalty: Tensor
    open_share: float


def penalised_scores(
    net: TernaryNet, x: Tensor, labels: Tensor, lo: Tensor, hi: Tensor
) -> Penalised:
    """Return the scores at a batch `x` and the penalty over the boxes [lo, hi] around it."""
    # Binarising is increasing, so that it maps the ends of a box to the ends of its image.
    x, lo, hi = (net.shaped(part) for part in (x, lo, hi))
    radius, shift = (hi - lo) / 2, (hi + lo) / 2 - x
    distance_terms, open_share = [], None
    for layer in net.layers:
        weights = layer.map.weights()
        normalised = layer.normalised(x, weights)
        distance = normalised.abs() * _unit(layer, normalised)
        with torch.no_grad():
            spread = layer.map.apply_weights(radius, weights.abs())
            moved = layer.map.apply_weights(shift, weights)
            change = torch.where(normalised >= 0, spread - moved, spread + moved)
            open_ = distance <= change
        hinge = functional.relu(1 - distance / (MARGIN * change).clamp(min=1e-6))
        distance_terms.append(hinge.mean())
        if open_share is None:
            open_share = float(open_.float().mean())
        x = layer.signs(normalised)
        with torch.no_grad():
            radius = _open_after_pooling(layer, open_, normalised)
            shift = -x * radius
    weights = net.output.weights()
    scores = net.output.apply_weights(x, weights, net.output.bias)
    with torch.no_grad():
        moved = net.output.apply_weights(shift, weights)
        own = torch.arange(len(labels))
        spread = torch.empty_like(scores)
        for label in labels.unique():
            rows = labels == label
            spread[rows] = radius.flatten(1)[rows] @ (weights - weights[label]).abs().T
        raised = spread + moved - moved[own, labels][:, None]
    margin = functional.cross_entropy((scores + raised) / net.temperature, labels)
    penalty = margin + DISTANCE * torch.stack(distance_terms).sum()
    return Penalised(scores, penalty, open_share or 0.0)


def _unit(layer: HiddenLayer, normalised: Tensor) -> Tensor:
    """Return the units of W x in one unit of its normalised value, neuron by neuron."""
    norm = layer.norm
    with torch.no_grad():
        unit = torch.sqrt(norm.running_var + norm.eps) / norm.weight.abs().clamp(min=1e-6)
        return unit.reshape(1, -1, *(1,) * (normalised.dim() - 2))


def _open_after_pooling(layer: HiddenLayer, open_: Tensor, normalised: Tensor) -> Tensor:
    """Return 1 for each unstable output; a window with a stable +1 is stable."""
    mask = open_.to(normalised.dtype)
    if not layer.pooled:
        return mask
    fixed_on = ((normalised >= 0) & ~open_).to(normalised.dtype)
    return functional.max_pool2d(mask, POOL) * (1 - functional.max_pool2d(fixed_on, POOL))


# -- the loss of certified training ------------------------------------------------------

#: Gradients of the ends of an interval pass this far from a threshold, in units of normalised sums.
#: 0.5 was better than 1 and 3: with a wide window, ends that cannot be moved far enough pull too.
WINDOW = 0.5


def adversarial_box(
    net: TernaryNet, x: Tensor, labels: Tensor, lo: Tensor, hi: Tensor, free: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find a bad point in [lo, hi], and the box around it in which inputs are `free`.

    The point is the end of [lo, hi] to which the gradient of the loss at `x` points, or `x` itself
    where that has the larger loss: a long step may miss what it aims at.  Running statistics of a
    network in training are updated on the way; they are computed anew at the end.
    """
    start = x.detach().requires_grad_(True)
    losses = _losses(net, start, labels)
    (slope,) = torch.autograd.grad(losses.sum(), start)
    point = torch.where(slope > 0, hi, torch.where(slope < 0, lo, x))
    with torch.no_grad():
        missed = losses > _losses(net, point, labels)
    point = torch.where(missed[:, None], x, point)
    return point, torch.where(free, lo, point), torch.where(free, hi, point)


def _losses(net: TernaryNet, x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(net(x) / net.temperature, labels, reduction="none")


def scores_and_worst(
    net: TernaryNet, x: Tensor, labels: Tensor, lo: Tensor, hi: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the scores at `x`, and by how much each class may be ahead of the label on [lo, hi].

    Normalisation is by the statistics of the batch at `x`; running ones are not updated.
    """
    x, lo, hi = (net.shaped(part) for part in (x, lo, hi))
    middle, radius = (lo + hi) / 2, (hi - lo) / 2
    for layer in net.layers:
        weights = layer.map.weights()
        centre = layer.map.apply_weights(middle, weights)
        sums = layer.map.apply_weights(x, weights)
        reach = layer.map.apply_weights(radius, weights.abs())
        gain, offset = _normalisation(layer, sums)
        x = layer.signs(gain * sums + offset)
        centre, reach = gain * centre + offset, gain.abs() * reach
        lo, hi = (layer.signs(end, WINDOW) for end in (centre - reach, centre + reach))
        middle, radius = (lo + hi) / 2, (hi - lo) / 2
    weights = net.output.weights()
    scores = net.output.apply_weights(x, weights, net.output.bias)
    ahead = net.output.apply_weights(middle, weights, net.output.bias)
    ahead = ahead - ahead.gather(1, labels[:, None])
    radius = radius.flatten(1)
    for label in labels.unique():
        rows = (labels == label).nonzero().squeeze(1)
        spread = radius[rows] @ (weights - weights[label]).abs().T
        ahead = ahead.index_add(0, rows, spread)
    return scores, ahead


def _normalisation(layer: HiddenLayer, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gain and offset of batch normalisation, with the statistics of these sums.

    The bias of the map is left out, because the mean of the batch takes it away again.
    """
    norm: Any = layer.norm
    variance, mean = torch.var_mean(sums, (0, *range(2, sums.dim())), correction=0)
    gain = norm.weight / torch.sqrt(variance + norm.eps)
    shape = (1, -1, *(1,) * (sums.dim() - 2))
    return gain.view(shape), (norm.bias - mean * gain).view(shape)


def certified_loss(scores: Tensor, ahead: Tensor, labels: Tensor, share: float) -> Tensor:
    """Mix the cross entropies of the scores and of the worst ones, which has this share."""
    plain = functional.cross_entropy(scores, labels)
    return (1 - share) * plain + share * functional.cross_entropy(ahead, labels)
