"""Array types by content, their hash, their last place, and the conversion of optional numbers."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

#: Signs -1 and +1, and 0 for an undecided sign.
SignArray: TypeAlias = npt.NDArray[np.int8]


def optional_floats(values: npt.ArrayLike | None) -> FloatArray | None:
    """Return numbers as an array of floats, and None for None."""
    return None if values is None else np.asarray(values, dtype=np.float64)


def numbers_hash(numbers: FloatArray) -> str:
    """Return the SHA-256 of numbers as little-endian float64, one after the other."""
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()


def last_place(numbers: FloatArray) -> int:
    """Return the largest e such that all numbers are multiples of 2^e; 0 if all of them are 0."""
    filled = numbers[numbers != 0]
    if not filled.size:
        return 0
    fraction, exponent = np.frexp(filled)
    whole = np.ldexp(fraction, 53).astype(np.int64)
    zeros = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return int((exponent.astype(np.int64) - 53 + zeros).min())
