"""Quantisers of PyTorch layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.model.formats.layer_chain import FileLayer
from bnncert.model.formats.torch.layer_roles import quantised

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn


LAYER = FileLayer("net.pt", "fc1", "linear")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ternary_quantiser(kind: type) -> None:
    edge = np.float32(0.05)
    above, below = np.nextafter(edge, np.float32(1)), np.nextafter(edge, np.float32(0))
    weights: Any = np.array([[above, below, -above, -below, 0.0, 1.0]]).astype(kind)
    assert quantised(weights, "ternary:0.05", LAYER).tolist() == [[1, 0, -1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("weight", "quantizer"),
    [
        (np.float32(0.0), "sign"),
        (np.float32(-1e-40), "sign"),
        (np.float32(0.05), "ternary:0.05"),
        (-np.float32(0.05), "ternary:0.05"),
        (np.float64(0.05), "ternary:0.05"),
        # float32(0.05) is above 0.05: between the two it depends on the trainer's arithmetic.
        (np.float64(0.0500000005), "ternary:0.05"),
    ],
)
def test_weights_that_trainers_treat_differently(weight: Any, quantizer: str) -> None:
    with pytest.raises(FormatError, match="not the same in all trainers"):
        quantised(np.array([[1.0, weight]], dtype=weight.dtype), quantizer, LAYER)
