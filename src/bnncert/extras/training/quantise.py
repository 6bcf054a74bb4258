"""Quantisers with straight-through gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
