"""The penalties of robust training."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.extras.training.labelled_images import BYTES, Split
from tests.extras.training.tiny import blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training import export  # noqa: E402
from bnncert.extras.training.binary_model import DISTANCE, MARGIN, TernaryNet, penalised_scores  # noqa: E402
from tests.extras.training.trained import SMALL, train  # noqa: E402


def one_neuron() -> TernaryNet:
    """Return scores (y, -y) with y = sign(x)."""
    net = TernaryNet((1,), (), (1,), 2)
    with torch.no_grad():
        net.layers[0].map.latent.fill_(0.5)
        net.output.latent.copy_(torch.tensor([[0.5], [-0.5]]))
        # Normalisation is the identity up to rounding.
        net.layers[0].norm.running_var.fill_(1.0 - net.layers[0].norm.eps)
    net.eval()
    return net


def penalty(net: TernaryNet, x: float, lo: float, hi: float, label: int) -> tuple[float, float]:
    points = [torch.tensor([[value]]) for value in (x, lo, hi)]
    found = penalised_scores(net, points[0], torch.tensor([label]), points[1], points[2])
    return float(found.penalty.detach()), found.open_share


def test_penalties_of_one_neuron_by_hand() -> None:
    assert MARGIN == 2.0
    net = one_neuron()
    # x = 0.3 may fall to -0.2: open, and both scores may move by 2.
    value, share = penalty(net, 0.3, -0.2, 0.8, 0)
    assert share == 1.0
    assert value == pytest.approx(
        math.log(1 + math.exp(2)) + DISTANCE * (1 - 0.3 / (2 * 0.5)), rel=1e-5
    )
    # With the box cut off at 0.1 the sign is fixed; twice the reach of 0.2 is not yet kept.
    value, share = penalty(net, 0.3, 0.1, 0.8, 0)
    assert share == 0.0
    assert value == pytest.approx(
        math.log(1 + math.exp(-2)) + DISTANCE * (1 - 0.3 / (2 * 0.2)), rel=1e-5
    )
    # Far away from the threshold only the cross entropy is left.
    value, share = penalty(net, -0.9, -1.0, -0.8, 1)
    assert value == pytest.approx(math.log(1 + math.exp(-2)), rel=1e-5)


@pytest.mark.parametrize("binarised", [False, True], ids=["real", "binarised"])
@pytest.mark.parametrize(("conv", "stride"), [((), 1), ((3,), 1), ((3,), 2)])
def test_what_counts_as_fixed_does_not_change_in_the_box(
    conv: tuple[int, ...], stride: int, binarised: bool
) -> None:
    """The margin term is an upper bound of the loss at every point of the box."""
    generator = torch.Generator().manual_seed(0)
    net = TernaryNet((1, 4, 4), conv, (8, 6), 3, generator, (0.0,) if binarised else (), stride)
    net.set_zero_share(0.3)
    rng = np.random.default_rng(6)
    for layer in net.layers:
        layer.norm.running_mean.copy_(
            torch.from_numpy(rng.normal(size=layer.norm.running_mean.numel()))
        )
    net.eval()
    moved = 0
    for trial in range(20):
        x = torch.from_numpy(rng.uniform(-1, 1, (1, 16))).float()
        label = torch.tensor([trial % 3])
        lo, hi = (x - 0.1).clamp(min=-1), (x + 0.1).clamp(max=1)
        found = penalised_scores(net, x, label, lo, hi)
        assert torch.equal(found.scores, net(x))
        near = lo + (hi - lo) * torch.from_numpy(rng.uniform(0, 1, (300, 16))).float()
        with torch.no_grad():
            scores = net(near) / net.temperature
            losses = torch.nn.functional.cross_entropy(scores, label.expand(300), reduction="none")
            moved += len(scores.unique(dim=0)) > 1
        assert float(losses.max()) <= float(found.penalty.detach()) + 1e-5
    assert moved > 3


def open_neurons(network: bnncert.Network, test: Split, radius: float) -> float:
    """Return how many neurons of layer 1 may flip, on average, after the network file alone."""
    weights = network.layers[0].weights.toarray().astype(float)
    points = test.images.reshape(len(test.labels), -1) / 127.5 - 1.0
    lo, hi = np.maximum(points - radius, -1), np.minimum(points + radius, 1)
    middle = (lo + hi) / 2 @ weights.T + network.layers[0].bias
    reach = (hi - lo) / 2 @ np.abs(weights).T
    return float(np.mean(np.sum(np.abs(middle) <= reach, axis=1)))


def test_the_penalties_leave_fewer_open_neurons() -> None:
    options = replace(SMALL, epochs=10, batch=20, lr=1e-2, radius=4.0)
    counts = []
    for strength in (0.0, 2.0):
        net = train(replace(options, robust=strength))
        network = export.to_network(net, BYTES)
        counts.append(open_neurons(network, blobs(200, 2), 4.0 * 2 / 255))
    assert counts[1] < 0.5 * counts[0]
