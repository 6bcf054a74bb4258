"""Quantisers with straight-through gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training.binary_model import sign, ternary  # noqa: E402


def test_quantisers_round_and_pass_gradients() -> None:
    latent = torch.tensor([-0.9, -0.2, 0.0, 0.2, 0.9], requires_grad=True)
    weights = ternary(latent, torch.tensor(0.2))
    assert weights.tolist() == [-1, 0, 0, 0, 1]
    weights.backward(torch.arange(5.0))
    assert latent.grad.tolist() == [0, 1, 2, 3, 4]
    assert ternary(latent, torch.tensor(-1.0)).tolist() == [-1, -1, 1, 1, 1]
    x = torch.tensor([-2.0, -1.0, -0.0, 0.5, 3.0], requires_grad=True)
    signs = sign(x)
    assert signs.tolist() == [-1, -1, 1, 1, 1]
    signs.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]
