"""Square blocks of pixels, by which an image can be explained instead of by single inputs.

Input k of an image with `before` channels before the rows and `after` channels behind the columns
is channel (p, q) of the pixel in row y and column x, for

    k = ((p height + y) width + x) after + q.

The pixel is in block (y // side) * columns + x // side, with all its channels; blocks at the right
and lower border may be smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bnncert.arrays import IntArray


@dataclass(frozen=True)
class PixelBlocks:
    """The division of an image into blocks of side x side pixels."""

    side: int
    #: Channels before the rows, height, width, and channels behind the columns.
    shape: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        """Raise a ValueError if there is no such image."""
        numbers = (self.side, *self.shape)
        if len(numbers) != 5 or not all(type(n) is int and 1 <= n < 2**31 for n in numbers):
            raise ValueError("blocks of pixels have a side and four sizes, all at least 1")

    @property
    def inputs(self) -> int:
        """The number of inputs of the image."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """The number of blocks beside each other."""
        return -(-self.shape[2] // self.side)

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-self.shape[1] // self.side) * self.columns

    @property
    def numbers(self) -> IntArray:
        """The block of each input."""
        before, height, width, after = self.shape
        rows, columns = np.arange(height) // self.side, np.arange(width) // self.side
        plane = rows[:, None] * self.columns + columns[None, :]
        whole = np.broadcast_to(plane[None, :, :, None], (before, height, width, after))
        return np.ascontiguousarray(whole, dtype=np.int64).reshape(-1)

    @property
    def words(self) -> str:
        """The blocks in words."""
        return f"blocks of {self.side} x {self.side} pixels"

    @property
    def exact_words(self) -> str:
        """The blocks in words, with the order in which the inputs are pixels."""
        before, height, width, after = self.shape
        sizes = [*([before] * (before > 1)), height, width, *([after] * (after > 1))]
        return f"{self.words} (inputs {' x '.join(map(str, sizes))})"

    def stated(self) -> dict[str, Any]:
        """State the blocks as plain data."""
        return {"side": self.side, "shape": list(self.shape)}

    def place(self, block: int) -> tuple[int, int]:
        """Find the row and the column of a block among the blocks, from 0."""
        return block // self.columns, block % self.columns
