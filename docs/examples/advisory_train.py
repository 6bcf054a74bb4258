"""Train the small collision-avoidance controller that ``advisory.py`` verifies.

The data come from a policy of a few rules (:func:`policy`), so that anybody can tell what the
network was meant to do.  The network is ternary: weights in {-1, 0, +1} and signs as activations,
trained with real latent weights and gradients passed straight through both quantisers.  Batch
normalisation is folded into the thresholds on export.

Run ``python docs/examples/advisory_train.py`` (needs ``bnncert[train]``); it takes some seconds
and writes ``advisory.json`` beside this file.  Other versions of torch may end in other weights;
the file in the repository is the network that the documentation is about.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from advisory import (
    ADVISORIES,
    CLEAR,
    HERE,
    QUANTITIES,
    STRONG_LEFT,
    STRONG_RIGHT,
    WEAK_LEFT,
    WEAK_RIGHT,
    FloatArray,
    to_encounters,
)
from torch import Tensor, nn
from torch.nn import functional

import bnncert

IntArray = npt.NDArray[np.int64]

WIDTHS = (len(QUANTITIES), 32, 32, len(ADVISORIES))
SAMPLES = 30_000
BATCH = 250
EPOCHS = 20
LEARNING_RATE = 0.01
SEED = 0

#: Missing an alert is worse than a needless one, so those examples weigh more.
ALERT_WEIGHT = 2.0

#: Thresholds and biases are rounded to multiples of 1/GRID: exact floats, and a short file.
GRID = 256


def policy(encounters: FloatArray) -> IntArray:
    """Return the advisory for each encounter (rows of physical quantities).

    * An encounter matters nearer than 1000 m and ten seconds of both aircraft's flight, unless
      the intruder is behind (bearing beyond 120 degrees).
    * Pass behind the intruder: right if it is on the left or flies there (bearing + heading >= 0,
      in degrees), else left.
    * The turn is strong within half of the first distance.
    """
    distance, bearing, heading, own, intruder = encounters.T
    matters = 1000.0 + 10.0 * (own + intruder)
    turn_right = bearing + heading >= 0.0
    weak = np.where(turn_right, WEAK_RIGHT, WEAK_LEFT)
    strong = np.where(turn_right, STRONG_RIGHT, STRONG_LEFT)
    turn = np.where(distance < matters / 2, strong, weak)
    clear = (distance >= matters) | (np.abs(bearing) > 120.0)
    return np.where(clear, CLEAR, turn).astype(np.int64)


def sample_encounters(generator: np.random.Generator, count: int) -> tuple[FloatArray, IntArray]:
    """Return random inputs in [-1, 1]^5 and the policy's advisories."""
    inputs = generator.uniform(-1.0, 1.0, (count, WIDTHS[0]))
    return inputs, policy(to_encounters(inputs))


class _Ternary(torch.autograd.Function):
    """Quantise latent weights to {-1, 0, +1}; the gradient passes unchanged."""

    @staticmethod
    def forward(ctx: Any, latent: Tensor) -> Tensor:
        return torch.where(latent.abs() > 1 / 3, latent.sign(), torch.zeros_like(latent))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class _Sign(torch.autograd.Function):
    """sign with sign(0) = +1; the gradient passes where the argument is within `window` of 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.window = window
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradients[0] * (x.abs() <= ctx.window), None


class TernaryLinear(nn.Module):
    """x -> W x with W ternary; the latent weights live in [-1, 1]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.empty(outputs, inputs).uniform_(-1.0, 1.0))

    def weights(self) -> Tensor:
        """Return the weights in {-1, 0, +1}."""
        weights: Tensor = _Ternary.apply(self.latent)
        return weights

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a batch."""
        return functional.linear(x, self.weights())


class TernaryNet(nn.Module):
    """Ternary layers, each but the last with batch normalisation and sign, and output biases.

    `window` is half the width, in standard deviations, of the strip around a neuron's threshold
    whose examples may move it.
    """

    def __init__(self, widths: Sequence[int], window: float = 1.0) -> None:
        super().__init__()
        self.window = window
        self.hidden = nn.ModuleList(TernaryLinear(m, n) for m, n in pairwise(widths[:-1]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in widths[1:-1])
        self.output: nn.Module = TernaryLinear(widths[-2], widths[-1])
        self.bias = nn.Parameter(torch.zeros(widths[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch."""
        for linear, norm in zip(self.hidden, self.norms, strict=True):
            x = _Sign.apply(norm(linear(x)), self.window)
        scores: Tensor = self.output(x) + self.bias
        return scores

    @torch.no_grad()
    def clip(self) -> None:
        """Keep the latent weights in [-1, 1], where the quantiser still hears their gradient."""
        for module in self.modules():
            if isinstance(module, TernaryLinear):
                module.latent.clamp_(-1.0, 1.0)


def fit(
    net: TernaryNet,
    inputs: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    epochs: int,
    batch: int = BATCH,
    rate: float = LEARNING_RATE,
) -> None:
    """Minimise loss(scores, rows of the batch) with Adam."""
    steps = epochs * (len(inputs) // batch)
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    net.train()
    for _ in range(epochs):
        order = torch.randperm(len(inputs))
        for chosen in order[: len(order) // batch * batch].split(batch):
            optimiser.zero_grad()
            loss(net(inputs[chosen]), chosen).backward()
            optimiser.step()
            schedule.step()
            net.clip()
    net.eval()


@torch.no_grad()
def folded_layers(net: TernaryNet, grid: int = GRID) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return W and b of the hidden layers, x = sign(W x + b), without batch normalisation.

    sign(g (W x - m) / s + c) is sign(W x - m + c s / g) for g > 0, and the same with the row and
    its bias negated for g < 0 (up to the value at a tie, and b is rounded to the grid anyway).
    """
    weights, biases = [], []
    for linear, norm in zip(net.hidden, net.norms, strict=True):
        gain = norm.weight.double()
        spread = (norm.running_var.double() + norm.eps).sqrt()
        bias = norm.bias.double() * spread / gain - norm.running_mean.double()
        flip = gain.sign()
        weights.append((flip[:, None] * linear.weights().double()).numpy())
        biases.append(np.round((flip * bias).numpy() * grid) / grid)
    return weights, biases


def train(samples: int = SAMPLES, epochs: int = EPOCHS, seed: int = SEED) -> bnncert.Network:
    """Train the controller."""
    torch.manual_seed(seed)
    inputs, labels = sample_encounters(np.random.default_rng(seed), samples)
    wanted = torch.from_numpy(labels)
    cost = torch.full((WIDTHS[-1],), ALERT_WEIGHT)
    cost[CLEAR] = 1.0
    # Scores are sums of 32 signs: scaled down, or the softmax would saturate.
    scale = 2.0 / WIDTHS[-2] ** 0.5

    def loss(scores: Tensor, chosen: Tensor) -> Tensor:
        return functional.cross_entropy(scale * scores, wanted[chosen], cost)

    net = TernaryNet(WIDTHS)
    fit(net, torch.from_numpy(inputs).float(), loss, epochs=epochs)
    weights, biases = folded_layers(net)
    assert isinstance(net.output, TernaryLinear)
    weights.append(net.output.weights().detach().double().numpy())
    biases.append(np.round(net.bias.detach().double().numpy() * GRID) / GRID)
    return bnncert.Network.from_arrays(
        weights, biases, sign_zero="plus", input_lo=-1.0, input_hi=1.0
    )


def main() -> None:
    """Train, report the accuracy on fresh encounters, and write the network."""
    parser = argparse.ArgumentParser(description="Train the collision-avoidance controller.")
    parser.add_argument("--out", type=Path, default=HERE / "advisory.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = train()
    inputs, labels = sample_encounters(np.random.default_rng(SEED + 1), 20_000)
    given = network.classify(inputs)
    print(f"{100 * np.mean(given == labels):.1f} % of 20000 fresh encounters as the policy says")
    for k, name in enumerate(ADVISORIES):
        share = np.bincount(given[labels == k], minlength=len(ADVISORIES)) / np.sum(labels == k)
        print(f"  {name:18}", " ".join(f"{100 * part:5.1f} %" for part in share))
    network.save(arguments.out)


if __name__ == "__main__":
    main()
