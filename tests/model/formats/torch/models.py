"""PyTorch models, and their comparison with networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from tests.data.make_larq_fixtures import inputs

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn


class Sign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.where(x >= 0, 1.0, -1.0)


def prepared(model: Any, *, signs: bool = True) -> Any:
    """Return the model in evaluation mode, with random statistics and ternary weights."""
    made = torch.Generator().manual_seed(5)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(0, 0.5, generator=made)
            module.running_var.uniform_(0.1, 2.0, generator=made)
            if module.affine:
                module.weight.data.normal_(0, 1, generator=made)
                module.bias.data.normal_(0, 0.5, generator=made)
        elif signs and type(module) in (nn.Linear, nn.Conv2d):
            module.weight.data = torch.randint(-1, 2, module.weight.shape, generator=made).float()
    return model.eval()


def dense() -> Any:
    return prepared(
        nn.Sequential(
            nn.Linear(16, 8),
            nn.BatchNorm1d(8),
            nn.Hardtanh(),
            Sign(),
            nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)),
            Sign(),
            nn.Linear(8, 3),
        )
    )


def images() -> Any:
    model = prepared(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding="same", bias=False),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.BatchNorm2d(4, eps=1e-3, affine=False),
            Sign(),
            nn.Conv2d(4, 24, (2, 3), padding=(1, 0), dilation=(2, 1), groups=2),
            nn.BatchNorm2d(24),
            Sign(),
            nn.MaxPool2d((3, 2), ceil_mode=True),
            nn.Identity(),
            nn.Flatten(),
            nn.Linear(48, 3),
            nn.LogSoftmax(dim=1),
        )
    )
    # The maxima of nine sums are about two: otherwise their signs never change.
    model[2].running_mean.add_(2.0)
    return model


def scores_of(model: Any, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    layers = list(model)
    if isinstance(layers[-1], (nn.LogSoftmax, nn.Softmax)):
        layers.pop()
    with torch.no_grad():
        scores = nn.Sequential(*layers).eval()(torch.from_numpy(points)).numpy()
    return np.asarray(scores, dtype=np.float64)


def compare(network: bnncert.Network, model: Any) -> None:
    points = inputs(network.input_shape)
    expected = scores_of(model, points)
    scores = network.evaluate(points)
    assert len(np.unique(expected, axis=0)) > 20
    assert len(set(expected.argmax(axis=1))) > 1
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=4e-6)


DENSE_LAYERS = {
    "input_shape": [16],
    "layers": [
        {"type": "linear", "weights": "0"},
        {"type": "batchnorm", "weights": "1", "eps": 1e-5},
        {"type": "hardtanh"},
        {"type": "sign", "zero": "plus"},
        {"type": "dropout"},
        {"type": "linear", "weights": "4.1"},
        {"type": "batchnorm", "weights": "4.2"},
        {"type": "sign", "zero": "plus"},
        {"type": "linear", "weights": "6"},
    ],
}


def write_layers(path: Path, tree: Any) -> Path:
    path.write_text(json.dumps(tree))
    return path
