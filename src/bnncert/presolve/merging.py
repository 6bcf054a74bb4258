"""Neurons that compute the same sign, or the opposite one, from the same inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray


def row_keys(rows: Any) -> tuple[list[bytes], SignArray]:
    """Return a key of every CSR row, equal for w and -w, and the sign that distinguishes them."""
    keys: list[bytes] = []
    signs = np.ones(rows.shape[0], dtype=np.int8)
    columns = np.asarray(rows.indices, dtype=np.int64)
    data = np.asarray(rows.data, dtype=np.int64)
    for j in range(rows.shape[0]):
        start, stop = rows.indptr[j], rows.indptr[j + 1]
        values = data[start:stop]
        if values.size and values[0] < 0:
            signs[j] = -1
            values = -values
        keys.append(columns[start:stop].tobytes() + b"|" + values.tobytes())
    return keys, signs


def equal_rows(rows: Any, plus: FloatArray, minus: FloatArray) -> tuple[IntArray, SignArray]:
    """Return the first neuron that each one equals, and its sign relative to it.

    -w with thresholds (p, q) is the opposite of w with thresholds (-q, -p).  A neuron whose sign is
    undetermined at a tie equals no other neuron.
    """
    keys, signs = row_keys(rows)
    leader = np.arange(rows.shape[0], dtype=np.int64)
    relative = np.ones(rows.shape[0], dtype=np.int8)
    seen: dict[tuple[bytes, float, float], int] = {}
    for j, key in enumerate(keys):
        low, high = float(plus[j]), float(minus[j])
        if low <= high:
            continue
        if signs[j] < 0:
            low, high = -high, -low
        first = seen.setdefault((key, low, high), j)
        leader[j] = first
        relative[j] = signs[j] * signs[first]
    return leader, relative
