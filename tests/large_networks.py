"""Files of large networks that are written in less than a second."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


def write_local_network(
    path: Path, sizes: tuple[int, ...], reach: int, *, spread: bool = False, seed: int = 0
) -> Path:
    """Write an .npz file whose hidden neurons read `reach` inputs each, with weights +-1.

    The inputs of a neuron are neighbours, or anywhere with `spread`; inputs are in [-1, 1].  Class
    0 has an advantage that is too small for intervals and too large for attacks.
    """
    generator = np.random.default_rng(seed)
    stored: dict[str, Any] = {"input_lo": -1.0, "input_hi": 1.0}
    for i, (inputs, size) in enumerate(pairwise(sizes[:-1])):
        first = np.arange(size) * inputs // size
        columns = (first[:, None] + np.arange(reach)) % inputs
        if spread:
            # Steps without a common divisor with the width lead to different inputs.
            steps = np.array([k for k in range(1, inputs) if np.gcd(k, inputs) == 1])
            step = generator.choice(steps, size=(size, 1))
            first = generator.integers(inputs, size=size)
            columns = (first[:, None] + step * np.arange(reach)) % inputs
        stored[f"W{i}_data"] = generator.choice([-1, 1], size=size * reach).astype(np.int8)
        stored[f"W{i}_indices"] = np.sort(columns, axis=1).ravel()
        stored[f"W{i}_indptr"] = np.arange(size + 1) * reach
        stored[f"W{i}_shape"] = np.array([size, inputs])
        stored[f"b{i}"] = generator.integers(-2, 3, size=size) + 0.5
    last = len(sizes) - 2
    stored[f"W{last}"] = generator.integers(-1, 2, size=(sizes[-1], sizes[-2])).astype(np.int8)
    stored[f"b{last}"] = np.zeros(sizes[-1])
    stored[f"b{last}"][0] = 0.15 * sizes[-2]
    np.savez(path, **stored)
    return path
