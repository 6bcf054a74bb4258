r"""Penalties that make a network easier to verify on L-inf balls.

Interval bounds are computed in the forward pass.  An input x of a layer lies in
[x + s - r, x + s + r]; then w.x changes by at most |w|.r - w.s downwards and |w|.r + w.s upwards.
A neuron whose distance d from its threshold is smaller than the change towards it is unstable: its
sign may flip, which is x in {-1, +1} with r = 1, s = -x for the next layer.

The penalty has two terms:

* distance: mean over neurons of max(0, 1 - d / (MARGIN * change)), which moves neurons away from
  their thresholds by more than the ball can;
* margin: the cross entropy of the scores in which every other class is raised by as much as the
  unstable neurons of the last layer can raise it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.extras.training.binary_model import POOL, HiddenLayer, TernaryNet

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
