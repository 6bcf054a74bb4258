r"""The loss of certified training: the scores that interval bounds leave to an adversary.

A box around an image is a middle m and a radius r.  Each layer maps it to W m -+ |W| r, batch
normalisation to another interval, and the signs of its two ends are the box of the next layer.  A
rival may then be ahead by at most (w_j - w_y) m + |w_j - w_y| r.  This is the bound of the batched
proofs of `run`, so an image with a negative bound for every rival is certified.  Unlike the
penalties of `binary_model`, both ends carry gradients: a neuron that is open is moved by the end
that is on the wrong side.

The bounds of a whole ball are so loose that a network which makes them tight is right less often.
So the box of the loss is a part of the ball, around the worse of two points: the image, and that
of an adversary, one step along the gradient that moves all inputs to an end of their intervals.
Only some of the inputs, drawn for every image and step, stay free.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.extras.training.binary_model import HiddenLayer, TernaryNet

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
