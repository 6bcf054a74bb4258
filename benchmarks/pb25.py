"""Networks and images of the pseudo-Boolean competition 2025.

    python -m benchmarks.pb25 DATA OUT

converts the Chainer archives DATA/models/*.npz to networks OUT/*.npz that bnncert reads, and the
images DATA/images/*.png to points OUT/*.npy.  Inputs are integer pixels from 0 to 255.  The
networks binarise them: z_i = sign(a_i p_i / 255 + c_i), which becomes a diagonal first layer with
the weight sign(a_i), whose threshold lies half-way between the two pixels where z_i changes.
Batch normalisation of the other layers goes into their biases.  Their sums are integers, and no
threshold is near one, so rounding decides nothing (`SAFE`).

For one image, `network` states the same question on the reals: pixel i flips when it moves by
`distance[i]` levels, so the question about integer pixels is one about x >= 0 with a first layer
that is +1 iff x_i >= distance[i], and second-layer weights with the image's own signs multiplied
in.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import bnncert

PIXELS, BLOCKS, EPSILON = 784, 4, 2e-5

#: The smallest distance of a real threshold from an integer.
SAFE = 1e-6

#: A distance that no region of the benchmark has: the pixel cannot flip.
NEVER = 1000


@dataclass(frozen=True)
class Case:
    """One image, and the smallest L1, squared L2, L-inf and L0 perturbations that change its class.

    `optima` has the first three of them.
    """

    network: str
    image: int
    label: int
    optima: tuple[int, int, int]
    least_inputs: int

    @property
    def name(self) -> str:
        """The network and the number of the image."""
        return f"{self.network} {self.image}"

    def optimum(self, norm: str) -> int:
        """Return the proved optimum of a norm, squared for L2."""
        return dict(
            zip(("l1", "l2", "linf", "l0"), (*self.optima, self.least_inputs), strict=True)
        )[norm]


CASES = (
    Case("mnist", 7, 9, (5, 5, 1), 4),
    Case("mnist_rot", 8, 1, (3, 3, 1), 3),
    Case("mnist_rot", 16, 5, (2, 2, 1), 2),
)


def integer_network(folder: Path, name: str) -> bnncert.Network:
    """Return a network as it is, on integer pixels."""
    stored = _stored(folder, name)
    scale, shift = _normalisation(stored, "input_bn")
    weights, biases = _hidden(stored)
    direction = np.sign(scale)
    levels = np.arange(256) / 255.0
    values = scale[:, None] * levels + shift[:, None]
    if np.abs(values).min() < SAFE * np.abs(scale).max() / 255:
        raise ValueError(f"{name}: a pixel lies on the threshold of its binarisation")
    # Of direction +1, the pixels from `first` on are +1; of -1, those below it.
    first = np.where(direction > 0, (values < 0).sum(axis=1), (values >= 0).sum(axis=1))
    constant = np.where(shift >= 0, 1.0, -1.0)
    bias = np.where(direction == 0, constant, -direction * (first - 0.5))
    return bnncert.Network.from_arrays(
        [np.diag(direction), *weights],
        [bias, *biases],
        input_lo=0.0,
        input_hi=255.0,
        input_shape=(1, 28, 28),
        pixel_step=1.0,
    )


def network(folder: Path, case: Case) -> tuple[bnncert.Network, int]:
    """Return the network of one image, whose centre is 0, and the class of the image."""
    stored = _stored(folder, case.network)
    scale, shift = _normalisation(stored, "input_bn")
    weights, biases = _hidden(stored)
    pixels = pixels_of(folder, case)
    levels = np.arange(256) / 255.0
    signs = np.where(scale[:, None] * levels + shift[:, None] >= 0, 1, -1)
    own = signs[np.arange(PIXELS), pixels]
    moved = np.abs(np.arange(256) - pixels[:, None])
    distance = np.where(signs != own[:, None], moved, NEVER).min(axis=1)
    weights[0] = weights[0] * -own
    weights, biases = [np.eye(PIXELS), *weights], [-distance.astype(float), *biases]
    made = bnncert.Network.from_arrays(weights, biases, input_lo=0.0, input_hi=255.0)
    return made, int(made.classify(np.zeros(PIXELS))[0])


def classify(folder: Path, name: str, pixels: np.ndarray) -> int:
    """Return the class of integer pixels, from the numbers of the archive alone."""
    stored = _stored(folder, name)
    scale, shift = _normalisation(stored, "input_bn")
    signs = np.where(scale * (pixels / 255.0) + shift >= 0, 1.0, -1.0)
    for block in range(BLOCKS):
        gain, offset = _normalisation(stored, f"blocks/{block}/bn")
        total = np.sign(stored[f"blocks/{block}/lin/W"]) @ signs + stored[f"blocks/{block}/lin/b"]
        signs = np.where(gain * total + offset >= 0, 1.0, -1.0)
    return int(np.argmax(np.sign(stored["output_lin/W"]) @ signs + stored["output_lin/b"]))


def _stored(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / "models" / f"{name}.npz") as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def _hidden(stored: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return weights and biases of the layers above the binarised pixels."""
    weights, biases = [], []
    for block in range(BLOCKS):
        gain, offset = _normalisation(stored, f"blocks/{block}/bn")
        turn = np.where(gain < 0, -1.0, 1.0)
        bias = stored[f"blocks/{block}/lin/b"] + offset / gain
        if np.abs(bias - np.rint(bias)).min() < SAFE:
            raise ValueError(f"block {block}: a threshold is too near to an integer")
        weights.append(np.sign(stored[f"blocks/{block}/lin/W"]) * turn[:, None])
        biases.append(turn * bias)
    return [*weights, np.sign(stored["output_lin/W"])], [*biases, stored["output_lin/b"]]


def _normalisation(stored: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset of a batch normalisation."""
    gain = stored[f"{name}/gamma"] / np.sqrt(stored[f"{name}/avg_var"] + EPSILON)
    return gain, stored[f"{name}/beta"] - stored[f"{name}/avg_mean"] * gain


def pixels_of(folder: Path, case: Case) -> np.ndarray:
    """Return the pixels of an image as the network reads them."""
    file = folder / "images" / f"bnn_{case.network}_{case.image}_label{case.label}.png"
    pixels = np.array(Image.open(file))
    # The rotated images are stored transposed.
    pixels = pixels if case.network == "mnist" else pixels.T
    return pixels.reshape(-1).astype(np.int64)


def main() -> None:
    """Convert the networks and the images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(case.network for case in CASES):
        integer_network(arguments.data, name).save(arguments.out / f"{name}.npz")
    for case in CASES:
        point = pixels_of(arguments.data, case).astype(np.float64)
        np.save(arguments.out / f"{case.name.replace(' ', '_')}.npy", point)


if __name__ == "__main__":
    main()
