"""Which inputs belong to which pixel of an image."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import IntArray
from bnncert.pictures import as_image


def pixel_inputs(shape: tuple[int, ...]) -> IntArray | None:
    """Return the inputs of every pixel, as (height, width, channels); None if there is no image.

    Channels may come first or last; axes of one entry are left out.  A flat input of at least
    25 values is a square image of one channel, or of three channels one after the other.
    """
    size = int(np.prod(shape))
    image = as_image(np.arange(size, dtype=np.float64), shape)
    if image is None:
        return None
    return np.asarray(image.reshape(*image.shape[:2], -1), dtype=np.int64)
