"""A PyTorch model, its checkpoint-like copy and its ONNX export are compared as users do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert

torch = pytest.importorskip("torch")


class Sign(torch.nn.Module):  # type: ignore[misc]
    """The sign with sign(0) = +1."""

    def forward(self, x: Any) -> Any:
        return torch.where(x >= 0, 1.0, -1.0)


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    made = torch.nn.Sequential(
        torch.nn.Linear(6, 8),
        torch.nn.BatchNorm1d(8),
        Sign(),
        torch.nn.Linear(8, 5),
        torch.nn.BatchNorm1d(5),
        Sign(),
        torch.nn.Linear(5, 3),
    )
    for norm in (made[1], made[4]):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        torch.nn.init.uniform_(norm.bias, -1, 1)
    return made.eval()


def converted(made: Any) -> bnncert.Network:
    return bnncert.from_torch(
        made, (6,), roles={Sign: "sign"}, weights="sign", input_lo=-1, input_hi=1
    )


def test_a_model_with_batch_normalisation_and_its_copy() -> None:
    one, two = converted(model()), converted(model())
    found = bnncert.compare(one, two)
    assert found.status == "identical"
    assert "irrational" in found.notes[0]
    changed = model()
    with torch.no_grad():
        changed[1].bias[3] += 0.01
    other = bnncert.compare(one, converted(changed), timeout=0.3)
    assert other.first_difference.startswith("layer 1, neuron 3: the bias is between")


def test_a_model_and_its_onnx_export(tmp_path: Path) -> None:
    made = model()
    # Without batch normalisation before real inputs all thresholds are floats.
    plain = converted(torch.nn.Sequential(*[made[k] for k in (0, 2, 3, 4, 5, 6)]))
    plain.save(tmp_path / "export.onnx")
    export = bnncert.load(tmp_path / "export.onnx")
    assert bnncert.compare(plain, export).status == "identical"
    points = np.random.default_rng(0).uniform(-1, 1, (50, 6))
    assert bnncert.compare(plain, export, inputs=points).status == "identical"
