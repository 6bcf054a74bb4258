"""Networks and images of the pseudo-Boolean competition 2025 as questions about a continuous ball.

The networks binarise integer pixels: z_i = sign(a_i p_i / 255 + c_i).  For one image, pixel i flips
when it moves by `distance[i]` levels.  So the question about integer pixels is one about x >= 0
with a first layer that is +1 iff x_i >= distance[i], and second-layer weights with the image's own
signs multiplied in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import bnncert

PIXELS, BLOCKS, EPSILON = 784, 4, 2e-5

#: A distance that no region of the benchmark has: the pixel cannot flip.
NEVER = 1000


@dataclass(frozen=True)
class Case:
    """One image, and the smallest L1, squared L2 and L-inf perturbations that change its class."""

    network: str
    image: int
    label: int
    optima: tuple[int, int, int]


CASES = (
    Case("mnist", 7, 9, (5, 5, 1)),
    Case("mnist_rot", 8, 1, (3, 3, 1)),
    Case("mnist_rot", 16, 5, (2, 2, 1)),
)


def network(folder: Path, case: Case) -> tuple[bnncert.Network, int]:
    """Return the network of one image, whose centre is 0, and the class of the image."""
    with np.load(folder / "models" / f"{case.network}.npz") as file:
        stored = {name: file[name].astype(np.float64) for name in file.files}
    scale, shift = _normalisation(stored, "input_bn")
    weights, biases = [], []
    for block in range(BLOCKS):
        gain, offset = _normalisation(stored, f"blocks/{block}/bn")
        turn = np.where(gain < 0, -1.0, 1.0)
        weights.append(np.sign(stored[f"blocks/{block}/lin/W"]) * turn[:, None])
        biases.append(turn * (stored[f"blocks/{block}/lin/b"] + offset / gain))
    pixels = _pixels(folder, case)
    levels = np.arange(256) / 255.0
    signs = np.where(scale[:, None] * levels + shift[:, None] >= 0, 1, -1)
    own = signs[np.arange(PIXELS), pixels]
    moved = np.abs(np.arange(256) - pixels[:, None])
    distance = np.where(signs != own[:, None], moved, NEVER).min(axis=1)
    weights[0] = weights[0] * -own
    weights = [np.eye(PIXELS), *weights, np.sign(stored["output_lin/W"])]
    biases = [-distance.astype(float), *biases, stored["output_lin/b"]]
    made = bnncert.Network.from_arrays(weights, biases, input_lo=0.0, input_hi=255.0)
    return made, int(made.classify(np.zeros(PIXELS))[0])


def _normalisation(stored: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset of a batch normalisation."""
    gain = stored[f"{name}/gamma"] / np.sqrt(stored[f"{name}/avg_var"] + EPSILON)
    return gain, stored[f"{name}/beta"] - stored[f"{name}/avg_mean"] * gain


def _pixels(folder: Path, case: Case) -> np.ndarray:
    file = folder / "images" / f"bnn_{case.network}_{case.image}_label{case.label}.png"
    pixels = np.array(Image.open(file))
    # The rotated images are stored transposed.
    pixels = pixels if case.network == "mnist" else pixels.T
    return pixels.reshape(-1).astype(np.int64)
