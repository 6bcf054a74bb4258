"""What `bnncert.kernel.flip_vectors` does, in plain NumPy, for tests without numba."""

from __future__ import annotations

from typing import Any

import numpy as np

#: As in the compiled module.
GROUP = 4


def lowest_one(word: Any) -> int:
    """Return the place of the lowest one in a word, or 64 if there is none."""
    whole = int(word)
    return (whole & -whole).bit_length() - 1 if whole else 64


def ones(word: Any) -> int:
    """Return the number of ones in a word."""
    return int(word).bit_count()


def above(values: Any, first: int, limits: Any, place: int) -> Any:
    """Return which of the 64 values from `first` on are above the limits from `place` on."""
    larger = values[first : first + 64] > limits[place : place + 64]
    return np.packbits(larger, bitorder="little").view("<u8")[0]


def _added(blocks: int) -> Any:
    def add(
        sums: Any, first: int, keep: int, table: Any, place: int, size: int, columns: Any,
        begin: int, end: int,
    ) -> None:  # fmt: skip
        assert (end - begin) % GROUP == 0
        count = 64 * blocks
        starts = columns[begin:end] * size + place
        parts = np.array([table[start : start + count] for start in starts], dtype=np.int64)
        total = parts.reshape(-1, count).sum(axis=0)
        assert np.all(np.abs(total) < 128)
        sums[first : first + count] *= keep
        sums[first : first + count] += total.astype(np.int16)

    return add


add_one, add_four = _added(1), _added(4)
