"""Neurons that compute the same sign, or the opposite one, from the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline


def row_keys(rows: Any) -> Iterator[tuple[bytes, int]]:
    """Yield a key of every CSR row, equal for w and -w, and the sign that distinguishes them."""
    columns = np.asarray(rows.indices, dtype=np.int64)
    data = np.asarray(rows.data, dtype=np.int64)
    for j in range(rows.shape[0]):
        start, stop = rows.indptr[j], rows.indptr[j + 1]
        values = data[start:stop]
        sign = -1 if values.size and values[0] < 0 else 1
        yield columns[start:stop].tobytes() + b"|" + (sign * values).tobytes(), sign


def equal_rows(
    rows: Any, plus: FloatArray, minus: FloatArray, deadline: Deadline | None = None
) -> tuple[IntArray, SignArray]:
    """Return the first neuron that each one equals, and its sign relative to it.

    -w with thresholds (p, q) is the opposite of w with thresholds (-q, -p).  A neuron whose sign is
    undetermined at a tie equals no other neuron, nor does one that is not reached before the
    deadline.
    """
    limit = deadline or Deadline(None)
    signs = np.ones(rows.shape[0], dtype=np.int8)
    leader = np.arange(rows.shape[0], dtype=np.int64)
    relative = np.ones(rows.shape[0], dtype=np.int8)
    seen: dict[tuple[bytes, float, float], int] = {}
    for j, (key, sign) in enumerate(row_keys(rows)):
        signs[j] = sign
        if limit.passed():
            break
        low, high = float(plus[j]), float(minus[j])
        if low <= high:
            continue
        if signs[j] < 0:
            low, high = -high, -low
        first = seen.setdefault((key, low, high), j)
        leader[j] = first
        relative[j] = signs[j] * signs[first]
    return leader, relative
