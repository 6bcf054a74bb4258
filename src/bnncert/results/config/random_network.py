"""Random networks and points, the same for the same seed.

Every weight is -1, 0 or +1; biases are uniform in [-1, 1] times the number of a row's non-zeros, so
that nearly all neurons of the first layer are unstable on the data box [-1, 1].  The last class has
no weights: with two classes the margin is a sum of +-1 times the last layer, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bnncert.model.network import Network


@dataclass(frozen=True)
class RandomNetwork:
    """A recipe: sizes with inputs and classes, and how many weights are zero.

    `nonzeros` (of each row, all layers below the output) replaces the share `zeros`.
    """

    sizes: tuple[int, ...]
    zeros: float = 0.0
    nonzeros: int | None = None
    seed: int = 0

    @property
    def text(self) -> str:
        """The recipe in one line."""
        share = f"zeros={self.zeros:g}" if self.nonzeros is None else f"nonzeros={self.nonzeros}"
        return f"random:{'-'.join(map(str, self.sizes))} {share} seed={self.seed}"

    def build(self) -> Network:
        """Return the network."""
        generator = np.random.default_rng(self.seed)
        weights, biases = [], []
        for below, above in pairwise(self.sizes[:-1]):
            layer = self._layer(generator, above, below)
            # A row of zeros would make a constant neuron.
            empty = np.flatnonzero(~layer.any(axis=1))
            layer[empty, generator.integers(0, below, empty.size)] = 1
            weights.append(layer)
            count = np.count_nonzero(layer, axis=1)
            biases.append(generator.uniform(-1.0, 1.0, above) * count)
        output = np.zeros((self.sizes[-1], self.sizes[-2]), dtype=np.int8)
        output[:-1] = generator.choice(np.array([-1, 1], dtype=np.int8), size=output[:-1].shape)
        weights.append(output)
        biases.append(np.zeros(self.sizes[-1]))
        return Network.from_arrays(weights, biases, input_lo=-1.0, input_hi=1.0)

    def _layer(
        self, generator: np.random.Generator, above: int, below: int
    ) -> npt.NDArray[np.int8]:
        signs = generator.choice(np.array([-1, 1], dtype=np.int8), size=(above, below))
        if self.nonzeros is None:
            signs[generator.random((above, below)) < self.zeros] = 0
        elif self.nonzeros < below:
            kept = np.zeros((above, below), dtype=bool)
            for row in kept:
                row[generator.choice(below, self.nonzeros, replace=False)] = True
            signs[~kept] = 0
        return signs


def random_points(
    network: Network, count: int, seed: int, clip: tuple[float, float] | None
) -> npt.NDArray[np.float64]:
    """Return uniform points of the data box ([-1, 1] if the network does not state one)."""
    lo, hi = (network.input_lo, network.input_hi) if clip is None else clip
    if lo is None or hi is None:
        lo, hi = -1.0, 1.0
    generator = np.random.default_rng(seed)
    return np.asarray(generator.uniform(lo, hi, size=(count, network.inputs)))
