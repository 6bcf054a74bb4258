r"""A circuit packed into bits: 64 signs to a word.

For weights -1, 0 and +1 the sum of a gate is  nnz - 2 popcount((y xor s) and m)  with the bits y of
the signs below, s of the weights' signs and m of the non-zero weights.  So a gate is +1 iff that
number of disagreements is below a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bnncert.arrays import Float32Array, FloatArray
from bnncert.search.patterns.circuit import LARGEST_SUM, Circuit

Words = npt.NDArray[np.uint64]
Int32Array = npt.NDArray[np.int32]

#: Bits of a word.
WORD = 64

#: Different sizes that the weights of an objective may have on average.
MOST_PARTS = 6


@dataclass(frozen=True, eq=False)
class PackedCircuit:
    """Words and limits of all levels above the first, one after the other.

    Attributes
    ----------
    first_above
        The largest first-level sums at which the gate is -1.
    signs, masks
        Words of all rows: of each level the first words of all gates, then the second ones, and so
        on.  `start[k]` is where level k begins, `width[k]` the words of a row.
    limit
        Disagreements below which a gate is +1; `gate[k]` is the first gate of level k.
    part_signs, part_masks
        The objectives' rows in the same form, one part for each size of an objective's weights.
    part
        The objective of each part; `scale` is the size, and `reach` the sum of all sizes.
    """

    first_above: Int32Array
    signs: Words
    masks: Words
    start: npt.NDArray[np.int64]
    width: npt.NDArray[np.int64]
    limit: Int32Array
    gate: npt.NDArray[np.int64]
    part_signs: Words
    part_masks: Words
    part: npt.NDArray[np.int64]
    scale: FloatArray
    reach: FloatArray
    constant: FloatArray
    target: npt.NDArray[np.int64]
    targets: int


def _padded(size: int) -> int:
    """Return the next multiple of the word size: gates come in whole words."""
    return max(1, -(-size // WORD)) * WORD


def pack_rows(rows: npt.NDArray[np.generic]) -> tuple[Words, Words]:
    """Return the words of the signs and of the non-zero weights of each row."""
    padded = np.zeros((rows.shape[0], _padded(rows.shape[1])), dtype=np.int8)
    padded[:, : rows.shape[1]] = np.sign(rows)

    def packed(bits: npt.NDArray[np.bool_]) -> Words:
        return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)

    return packed(padded > 0), packed(padded != 0)


def pack(circuit: Circuit) -> PackedCircuit | None:
    """Return the packed circuit, or None where weights or connections do not allow it."""
    if circuit.last is None or circuit.has_ties or not circuit.constant.size:
        return None
    levels = (*circuit.levels, circuit.last)
    if not np.array_equal(levels[0].inputs, levels[0].inputs[levels[0].inputs < circuit.inputs]):
        return None
    signs, masks, limits = [], [], []
    for below, level in pairwise(levels):
        place = np.full(circuit.size, -1, dtype=np.int64)
        place[below.outputs] = np.arange(below.size)
        where = place[level.inputs]
        if np.any(where < 0) or np.any(level.sizes > 1):
            return None
        rows: Float32Array = np.zeros((_padded(level.size), below.size), dtype=np.float32)
        rows[: level.size, where] = level.rows
        sign, mask = pack_rows(rows)
        signs.append(sign)
        masks.append(mask)
        nonzero = np.count_nonzero(rows[: level.size], axis=1)
        # u > minus_upto  iff  disagreements < (nnz - minus_upto) / 2.  Padding is never +1.
        limit = np.zeros(rows.shape[0])
        limit[: level.size] = np.ceil((nonzero - level.minus_upto) / 2)
        limits.append(limit)
    parts = [
        (k, size, np.where(np.abs(row) == size, row, 0.0))
        for k, row in enumerate(circuit.coefficients)
        for size in np.unique(np.abs(row[row != 0])).tolist()
    ]
    if len(parts) > MOST_PARTS * circuit.constant.size:
        return None
    rows_of_parts = np.array([row for _, _, row in parts]).reshape(len(parts), circuit.last.size)
    part_signs, part_masks = pack_rows(rows_of_parts)
    scale = np.array([size for _, size, _ in parts])
    first_above = np.full(_padded(levels[0].size), LARGEST_SUM, dtype=np.int32)
    first_above[: levels[0].size] = levels[0].minus_upto
    words = np.array([s.size for s in signs], dtype=np.int64)
    gates = np.array([s.shape[0] for s in signs], dtype=np.int64)
    return PackedCircuit(
        first_above=first_above,
        signs=_flat(signs),
        masks=_flat(masks),
        start=np.concatenate([[0], np.cumsum(words)]).astype(np.int64),
        width=np.array([s.shape[1] for s in signs], dtype=np.int64),
        limit=np.concatenate(limits).astype(np.int32) if limits else np.zeros(0, dtype=np.int32),
        gate=np.concatenate([[0], np.cumsum(gates)]).astype(np.int64),
        part_signs=part_signs,
        part_masks=part_masks,
        part=np.array([k for k, _, _ in parts], dtype=np.int64),
        scale=scale,
        reach=scale * np.count_nonzero(rows_of_parts, axis=1),
        constant=circuit.constant - circuit.slack,
        target=circuit.target,
        targets=circuit.targets,
    )


def _flat(parts: list[Words]) -> Words:
    # Word by word, so that all gates of a level meet the same word of signs in a row.
    return np.concatenate([p.T.reshape(-1) for p in parts] or [np.zeros(0, dtype=np.uint64)])
