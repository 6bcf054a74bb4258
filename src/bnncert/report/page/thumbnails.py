"""The pictures of a page, each one kept once."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt

from bnncert.regions.pictures import png_bytes


class Album:
    """Pictures as base64 of PNG files, each one kept once, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.pictures: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._left = limit

    def add(self, pixels: npt.NDArray[np.uint8]) -> int | None:
        """Return the number of a picture, or None if the limit is reached."""
        file = png_bytes(pixels)
        number = self._numbers.get(file)
        if number is None:
            text = base64.b64encode(file).decode("ascii")
            if len(text) > self._left:
                return None
            self._left -= len(text)
            number = self._numbers[file] = len(self.pictures)
            self.pictures.append(text)
        return number
