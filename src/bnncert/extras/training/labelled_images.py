"""Labelled images, and how they become inputs of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray

#: In data without a test part, every sixth image of each class is a test image.
TEST_EVERY = 6


@dataclass(frozen=True)
class Scaling:
    """The map from stored images to inputs of a network.

    Bytes p become p / 127.5 - 1, and other numbers are not changed.
    """

    #: The data box, if it is known.
    lo: float | None
    hi: float | None
    #: Input units per pixel level, if it is known.
    pixel_step: float | None

    def points(self, images: npt.NDArray[Any]) -> FloatArray:
        """Return images as flat points in input units."""
        flat = images.reshape(len(images), -1)
        if flat.dtype == np.uint8:
            return np.asarray(flat.astype(np.float64) / 127.5 - 1.0)
        return flat.astype(np.float64)


#: The scaling of bytes.
BYTES = Scaling(-1.0, 1.0, 2.0 / 255.0)


@dataclass(frozen=True, eq=False)
class Split:
    """Images [n, ...] and their classes [n]."""

    images: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images to train on and to test with."""

    train: Split
    test: Split
    #: The shape of an image: (channels, height, width), or (values,) if that is not known.
    input_shape: tuple[int, ...]
    #: The number of classes; labels are 0 to classes - 1.
    classes: int
    scaling: Scaling


def with_test_part(split: Split) -> tuple[Split, Split]:
    """Take every sixth image of each class for testing."""
    if len(split.images) != len(split.labels):
        # The error is reported by the check of the data set.
        return split, split
    test = np.zeros(len(split.labels), dtype=bool)
    for label in np.unique(split.labels):
        test[np.flatnonzero(split.labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    train, held = (Split(split.images[rows], split.labels[rows]) for rows in (~test, test))
    return train, held
