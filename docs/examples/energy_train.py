"""Train the small model of an oscillator that ``energy.py`` examines.

A unit mass on a unit spring moves its state (position, velocity) along a circle; after the time
STEP the state is the old one, turned by that angle.  The network has two ternary hidden layers
and real output weights, which are fitted by least squares at the end and rounded to multiples of
1/64, so that its outputs are exact.

Run ``python docs/examples/energy_train.py`` (needs ``bnncert[train]``); it takes some seconds and
writes ``energy.json`` beside this file.  Other versions of torch may end in other weights; the
file in the repository is the network that the documentation is about.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from advisory import FloatArray
from advisory_train import TernaryLinear, TernaryNet, fit, folded_layers
from energy import HERE
from torch import Tensor, nn

import bnncert

WIDTHS = (2, 24, 24, 2)
STEP = 0.3
SAMPLES = 20_000
EPOCHS = 20
SEED = 0

#: With two inputs a neuron is a step in the plane: only states near its line should move it.
WINDOW = 0.25

#: Output weights and biases are multiples of 1/GRID.
GRID = 64


def advance(states: FloatArray) -> FloatArray:
    """Return the true states one time step later."""
    cosine, sine = np.cos(STEP), np.sin(STEP)
    return np.asarray(states @ np.array([[cosine, -sine], [sine, cosine]]))


def sample_states(generator: np.random.Generator, count: int) -> tuple[FloatArray, FloatArray]:
    """Return random states in [-1, 1]^2 and their successors."""
    states = generator.uniform(-1.0, 1.0, (count, WIDTHS[0]))
    return states, advance(states)


@torch.no_grad()
def start_as_rulers(net: TernaryNet) -> None:
    """Start with neurons that read position and velocity at evenly spaced marks.

    From random weights the few neurons of layer 1 crowd around the middle and stay there.
    """
    first, second = net.hidden
    assert isinstance(first, TernaryLinear) and isinstance(second, TernaryLinear)
    count = len(first.latent)
    number = torch.arange(count)
    first.latent.copy_(0.7 * torch.eye(2)[number % 2])
    # Batch normalisation makes a uniform input reach about 1.7 standard deviations.
    net.norms[0].bias.copy_(1.7 * (2 * (number // 2 + 0.5) / (count / 2) - 1))
    # Layer 2 starts as a copy of layer 1; weights below 1/3 are zero until training raises them.
    second.latent.uniform_(-0.3, 0.3).fill_diagonal_(0.7)


def train(samples: int = SAMPLES, epochs: int = EPOCHS, seed: int = SEED) -> bnncert.Network:
    """Train the surrogate."""
    torch.manual_seed(seed)
    states, later = sample_states(np.random.default_rng(seed), samples)
    wanted = torch.from_numpy(later).float()

    def loss(outputs: Tensor, chosen: Tensor) -> Tensor:
        return (outputs - wanted[chosen]).square().mean()

    net = TernaryNet(WIDTHS, WINDOW)
    net.output = nn.Linear(WIDTHS[-2], WIDTHS[-1], bias=False)
    start_as_rulers(net)
    fit(net, torch.from_numpy(states).float(), loss, epochs=epochs)
    weights, biases = folded_layers(net)
    signs = states
    for w, b in zip(weights, biases, strict=True):
        signs = np.where(signs @ w.T + b >= 0, 1.0, -1.0)
    columns = np.column_stack([signs, np.ones(samples)])
    fitted = np.linalg.lstsq(columns, later, rcond=None)[0].T
    rounded = np.round(GRID * fitted) / GRID
    return bnncert.Network.from_arrays(
        [*weights, rounded[:, :-1]],
        [*biases, rounded[:, -1]],
        sign_zero="plus",
        input_lo=-1.0,
        input_hi=1.0,
    )


def main() -> None:
    """Train, report the error on fresh states, and write the network."""
    parser = argparse.ArgumentParser(description="Train the oscillator surrogate.")
    parser.add_argument("--out", type=Path, default=HERE / "energy.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = train()
    states, later = sample_states(np.random.default_rng(SEED + 1), 20_000)
    predicted = network.evaluate(states)
    error = np.sqrt(np.mean((predicted - later) ** 2))
    growth = (np.sum(predicted**2, axis=1) - np.sum(states**2, axis=1)) / 2
    print(f"root mean square error {error:.3f} on 20000 fresh states in [-1, 1]^2")
    print(f"energy change in one step from {growth.min():.3f} to {growth.max():.3f}")
    network.save(arguments.out)


if __name__ == "__main__":
    main()
