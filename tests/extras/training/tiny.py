"""Small synthetic data for the tests of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bnncert.extras.training.labelled_images import Split

#: Image size of :func:`blobs`.
SIDE = 8
CLASSES = 4


def blobs(count: int, seed: int, noise: float = 60.0) -> Split:
    """Return noisy copies of four fixed random images of 8 x 8 pixels."""
    centres = np.random.default_rng(0).integers(0, 256, (CLASSES, 1, SIDE, SIDE))
    rng = np.random.default_rng([7, seed])
    labels = rng.integers(0, CLASSES, count)
    pixels = centres[labels] + rng.normal(0.0, noise, (count, 1, SIDE, SIDE))
    return Split(np.clip(np.rint(pixels), 0, 255).astype(np.uint8), labels.astype(np.int64))


def write_blobs(path: Path, count: int = 300, noise: float = 60.0) -> None:
    """Write training and test images as .npz."""
    train, test = blobs(count, 1, noise), blobs(100, 2, noise)
    np.savez(
        path, x_train=train.images, y_train=train.labels, x_test=test.images, y_test=test.labels
    )
