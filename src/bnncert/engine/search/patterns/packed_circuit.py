r"""A circuit in the form that the compiled enumeration takes: columns of bytes, signs of one bit.

A gate is +1 iff its sum is above a limit.  When signs below change, its sum changes by 2 w for each
of them: a level stores the differences between its limits and its sums, and a column of weights for
each gate below.  The objectives are counts of disagreements,  nnz - 2 popcount((y xor s) and m)
with the bits y of the last level's signs, s of the weights' signs and m of the non-zero weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bnncert.arrays import Float32Array, FloatArray, IntArray, SignArray
from bnncert.engine.search.patterns.circuit import Circuit, Level, LinearObjectives

Words = npt.NDArray[np.uint64]
Int16Array = npt.NDArray[np.int16]
Int8Array = npt.NDArray[np.int8]

#: Bits of a word; the gates of a level are padded to whole words.
WORD = 64

#: The limit of padding, which no sum reaches.
NEVER = 2**15 - 1

#: The largest number of different sizes of the weights of an objective.
MOST_PARTS = 8


class PackedLevels(NamedTuple):
    """The gates of all levels, one level after the other, and the weights between them."""

    #: The first gate of each level, and the number of all gates; multiples of WORD.
    gate: npt.NDArray[np.int64]
    #: What the gates of each level change in the sums of the next one: two rows for each gate, for
    #: becoming -1 and +1.  `start[k]` is where those that level k reads begin; a row of zeros comes
    #: last, from the last of `start` on.
    columns: Int8Array
    start: npt.NDArray[np.int64]


class PackedObjectives(NamedTuple):
    """The objectives: a part for each size of an objective's weights."""

    #: Words of the weights' signs and of the non-zero weights, one column for each part: the first
    #: parts of all objectives, then the second ones, and so on.
    signs: Words
    masks: Words
    #: What one disagreement takes from the objective: twice the size.
    scale: FloatArray
    #: The value without any disagreement, and the target of each objective.
    constant: FloatArray
    target: npt.NDArray[np.int64]


class PackedFlips(NamedTuple):
    """The open variables of a node in the order in which sets of flips take them."""

    #: What each adds to the first level's sums (half of it), one row after the other.
    gains: Int16Array
    #: The costs of the flips, ascending.
    cost: IntArray
    #: Words of the flips that each excludes, and of those that it needs; empty without such rules.
    clash: Words
    need: Words


@dataclass(frozen=True, eq=False)
class PackedCircuit:
    """Levels and objectives in the form that compiled functions take."""

    circuit: Circuit
    #: The largest sum at which each gate is -1; NEVER for padding.
    above: Int16Array
    #: The weights of each first-layer variable in the first level's sums, one row for each.
    gains: Int8Array
    levels: PackedLevels
    objectives: PackedObjectives

    def flip_gains(self, variables: IntArray, home: SignArray) -> Int16Array:
        """Return what flips of variables from their home add to the first level's sums (half)."""
        return (self.gains[variables] * -home[variables, None].astype(np.int16)).ravel()

    def room(self, pattern: SignArray) -> Int16Array:
        """Return floor((limit - sum) / 2) of all gates at a pattern of the first layer.

        A gate becomes +1 iff its sum moves by more than twice that.
        """
        states = np.zeros(self.circuit.size, dtype=np.float32)
        states[: pattern.size] = pattern
        out = np.full(self.above.size, NEVER, dtype=np.int16)
        firsts = self.levels.gate[:-1].tolist()
        for level, first in zip(self.circuit.all_levels, firsts, strict=True):
            sums = level.rows @ states[level.inputs]
            mine = slice(first, first + level.size)
            out[mine] = np.floor((self.above[mine] - sums) / 2)
            if level.outputs.size:
                states[level.outputs] = np.where(sums > level.minus_upto, 1, -1)
        return out


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
    """Return the packed circuit, or None if weights or connections do not allow it."""
    if circuit.last is None or circuit.has_ties:
        return None
    levels = circuit.all_levels
    # One flip at a time: the first level's weights only have to fit into bytes.
    most = [127, *(1 for _ in levels[1:])]
    if np.any(levels[0].inputs >= circuit.inputs) or not all(map(_is_small, levels, most)):
        return None
    packed, objectives = _pack_levels(circuit), _pack_objectives(circuit.objectives)
    if packed is None or objectives is None:
        return None
    above = np.full(int(packed.gate[-1]), NEVER, dtype=np.int16)
    for level, first in zip(levels, packed.gate[:-1].tolist(), strict=True):
        # No sum reaches half of NEVER, so larger limits may be clipped.
        limits = np.clip(np.floor(level.minus_upto), -NEVER // 2, NEVER // 2)
        above[first : first + level.size] = limits
    gains = _columns(circuit.inputs, levels[0].inputs, levels[0])
    return PackedCircuit(circuit, above, gains, packed, objectives)


def _pack_levels(circuit: Circuit) -> PackedLevels | None:
    """Return the packed levels, or None where a level reads others than the one below it."""
    levels = circuit.all_levels
    columns = []
    for below, level in pairwise(levels):
        place = np.full(circuit.size, -1, dtype=np.int64)
        place[below.outputs] = np.arange(below.size)
        where = place[level.inputs]
        if np.any(where < 0):
            return None
        one = _columns(_padded(below.size), where, level)
        columns.append(np.stack([-one, one], axis=1))
    zeros = np.zeros(max(_padded(level.size) for level in levels), dtype=np.int8)
    return PackedLevels(
        gate=np.cumsum([0, *(_padded(level.size) for level in levels)]).astype(np.int64),
        columns=np.concatenate([*(c.ravel() for c in columns), zeros]),
        start=np.cumsum([0, 0, *(c.size for c in columns)]).astype(np.int64),
    )


def _pack_objectives(objectives: LinearObjectives) -> PackedObjectives | None:
    """Return the packed objectives, or None if there are none or too many different weights."""
    weights, (count, width) = objectives.coefficients, objectives.coefficients.shape
    sizes = [np.unique(np.abs(row[row != 0])) for row in weights]
    parts = max((size.size for size in sizes), default=0)
    if not count or parts > MOST_PARTS:
        return None
    # Part p of an objective has the weights of its p-th size; if there is none it is empty.
    scale = np.zeros((parts, count))
    for k, size in enumerate(sizes):
        scale[: size.size, k] = size
    used = (np.abs(weights) == scale[:, :, None]) & (weights != 0)
    signs, masks = pack_rows(np.where(used, weights, 0.0).reshape(parts * count, width))
    return PackedObjectives(
        signs=np.ascontiguousarray(signs.T),
        masks=np.ascontiguousarray(masks.T),
        scale=2 * scale.ravel(),
        constant=objectives.constant - objectives.slack + np.abs(weights).sum(axis=1),
        target=objectives.target,
    )


def _is_small(level: Level, most: int) -> bool:
    """Whether weights are at most `most`, and no sum leaves 16 bits."""
    return bool(np.all(level.sizes <= most) and np.all(2 * level.sizes.sum(axis=1) < NEVER))


def _columns(count: int, where: npt.NDArray[np.int64], level: Level) -> Int8Array:
    """Return the weights: one row for each of `count` inputs, those of the level at `where`."""
    table: Float32Array = np.zeros((count, _padded(level.size)), dtype=np.float32)
    table[where, : level.size] = level.rows.T
    return table.astype(np.int8)
