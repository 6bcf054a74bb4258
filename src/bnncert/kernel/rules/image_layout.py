"""Which inputs belong to which pixel of an image."""

from __future__ import annotations

import math

import numpy as np

from bnncert.arrays import IntArray

#: The shortest side of a flat input that is taken for a square image.
SHORTEST_SIDE = 5


def pixel_inputs(shape: tuple[int, ...]) -> IntArray | None:
    """Return the inputs of every pixel, as (height, width, channels); None if there is no image.

    Channels may come first or last; axes of one entry are left out.  A flat input of at least
    25 values is a square image of one channel, or of three channels one after the other.
    """
    inputs = np.arange(math.prod(shape), dtype=np.int64)
    sizes = [n for n in shape if n > 1]
    if len(sizes) == 2:
        return inputs.reshape(*sizes, 1)
    if len(sizes) == 3 and sizes[0] == 3:
        return np.moveaxis(inputs.reshape(sizes), 0, -1)
    if len(sizes) == 3 and sizes[2] == 3:
        return inputs.reshape(sizes)
    for channels in (1, 3):
        side = math.isqrt(inputs.size // channels)
        if side >= SHORTEST_SIDE and channels * side * side == inputs.size:
            return np.moveaxis(inputs.reshape(channels, side, side), 0, -1)
    return None
