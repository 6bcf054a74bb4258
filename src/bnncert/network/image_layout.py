"""Which inputs belong to which pixel of an image."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import IntArray
from bnncert.errors import InputError
from bnncert.pictures import as_image


def pixel_inputs(shape: tuple[int, ...], what: str) -> IntArray:
    """Return the inputs of every pixel, as (height, width, channels).

    Channels may come first or last; axes of one entry are left out.  A flat input of at least
    25 values is a square image of one channel, or of three channels one after the other.

    Raises
    ------
    InputError
        If inputs of this shape are not an image, which `what` needs.
    """
    size = int(np.prod(shape))
    image = as_image(np.arange(size, dtype=np.float64), shape)
    if image is None:
        raise InputError(
            f"{what} needs an image; the network's inputs have the shape "
            f"{' x '.join(map(str, shape))}"
        )
    return np.asarray(image.reshape(*image.shape[:2], -1), dtype=np.int64)
