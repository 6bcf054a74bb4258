r"""The presolved network for all targets at once, as dense integer layers.

Presolve numbers the unstable neurons as variables and writes every sum as u = w.x + shift over
variables.  A *circuit* has the part of that which evaluates sign patterns: the variables of the
first layer, then level by level the gates  x_g = sign(w_g.x),  and the objectives of all targets
over the last level.  All sums are integers below 2^24, so float32 products are exact.

The compiled enumeration takes it in a packed form: columns of bytes, signs of one bit.  A gate is
+1 iff its sum is above a limit.  When signs below change, its sum changes by 2 w for each of them:
a level stores the differences between its limits and its sums, and a column of weights for each
gate below.  The objectives are counts of disagreements,  nnz - 2 popcount((y xor s) and m) with the
bits y of the last level's signs, s of the weights' signs and m of the non-zero weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray, SignArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.problem import Objective, Target


@dataclass(frozen=True, eq=False)
class LinearObjectives:
    """f_k = constant_k + coefficients_k . x, each an objective of one target.

    A lower bound of f_k above `enough_k` proves objective k, and a target is excluded as soon as
    one of its objectives is proved.
    """

    coefficients: FloatArray
    constant: FloatArray
    #: The largest error of a computed lower bound, by rounding and by the objective's own error.
    slack: FloatArray
    enough: FloatArray
    #: The target of each objective, and the number of targets.
    target: IntArray
    targets: int

    @cached_property
    def absolute(self) -> FloatArray:
        """The absolute values of the coefficients."""
        return np.abs(self.coefficients)

    def values(self, signs: Float32Array) -> FloatArray:
        """Return lower bounds of the values (columns) at rows of signs, rounding included."""
        fixed = signs.astype(np.float64) @ self.coefficients.T
        return np.asarray(fixed + (self.constant - self.slack))

    def lower_bounds(self, states: Float32Array) -> FloatArray:
        """Return lower bounds of the values where some states are 0, which may be either sign."""
        fixed = states.astype(np.float64) @ self.coefficients.T
        loose = (states == 0).astype(np.float64) @ self.absolute.T
        return np.asarray(fixed - loose + (self.constant - self.slack))

    def open_targets(self, lower: FloatArray, goal: FloatArray) -> BoolArray:
        """Return which targets (columns) have no objective above its goal (which excludes them)."""
        proved = lower > goal
        excluded = np.zeros((lower.shape[0], self.targets), dtype=bool)
        for k, target in enumerate(self.target.tolist()):
            excluded[:, target] |= proved[:, k]
        return ~excluded

    def target_bounds(self, lower: FloatArray) -> FloatArray:
        """Return lower bounds of F = max_i f_i for each target (columns)."""
        bounds = np.full((lower.shape[0], self.targets), -np.inf)
        for k, target in enumerate(self.target.tolist()):
            np.maximum(bounds[:, target], lower[:, k], out=bounds[:, target])
        return bounds


#: The largest number of entries of the dense matrices of all levels.
MOST_ENTRIES = 2**27

#: Twice the relative rounding error of one float64 operation, for any order of summation.
ROUNDING = 2.0**-52


@dataclass(frozen=True, eq=False)
class Level:
    """Gates whose sums run over variables of lower levels."""

    #: The variables that the rows run over.
    inputs: IntArray
    #: One row of integer weights for each gate.
    rows: Float32Array
    #: The gate may be +1 iff u >= plus_from, and -1 iff u <= minus_upto.
    plus_from: Float32Array
    minus_upto: Float32Array
    #: Bounds of u from presolve.
    lower: Float32Array
    upper: Float32Array
    #: The variable of each gate; empty for the last level, which only the objectives read.
    outputs: IntArray

    @property
    def size(self) -> int:
        """The number of gates."""
        return int(self.rows.shape[0])

    @cached_property
    def sizes(self) -> Float32Array:
        """The absolute values of the weights."""
        return np.abs(self.rows)

    @cached_property
    def has_ties(self) -> bool:
        """Whether both signs are allowed at some value of u."""
        return bool(np.any(self.plus_from <= self.minus_upto))


@dataclass(frozen=True, eq=False)
class Circuit:
    """First-layer variables, gates, and the objectives of all targets.

    The objectives are functions of the last level, or of the variables themselves for a network
    with one sign layer.
    """

    #: The first-layer neuron of each first-layer variable.
    neurons: IntArray
    size: int
    levels: tuple[Level, ...]
    last: Level | None
    objectives: LinearObjectives

    @property
    def inputs(self) -> int:
        """The number of first-layer variables, which come first."""
        return int(self.neurons.size)

    @cached_property
    def all_levels(self) -> tuple[Level, ...]:
        """The levels, and the last one if there is one."""
        return self.levels if self.last is None else (*self.levels, self.last)

    @cached_property
    def has_ties(self) -> bool:
        """Whether a pattern of the first layer may leave a gate undetermined."""
        return any(level.has_ties for level in self.all_levels)


def is_small_enough(presolved: Presolved) -> bool:
    """Whether the circuit's dense matrices have at most MOST_ENTRIES entries."""
    depth, owner, total = presolved.network.depth, presolved.owner_layer, 0
    for number in range(1, depth):
        is_last = number == depth - 1
        own = presolved.bounds[-1].unstable.size if is_last else np.count_nonzero(owner == number)
        total += int(np.count_nonzero(owner < number)) * int(own)
    return total <= MOST_ENTRIES


def build_circuit(
    presolved: Presolved, targets: tuple[Target, ...], deadline: Deadline | None = None
) -> Circuit:
    """Return the circuit of a presolved network and the targets that are still open.

    Raises OutOfTimeError if the deadline passes before all layers are in it.
    """
    limit = deadline or Deadline(None)
    network = presolved.network
    first = presolved.owner_layer == 0
    levels: list[Level] = []
    for number in range(1, network.depth - 1):
        limit.check()
        outputs = np.flatnonzero(presolved.owner_layer == number)
        if outputs.size:
            levels.append(_level(presolved, number, presolved.owner[outputs], outputs))
    objectives = [o for target in targets for o in target.objectives]
    owner = [k for k, target in enumerate(targets) for _ in target.objectives]
    last: Level | None = None
    if network.depth > 1:
        neurons = presolved.bounds[-1].unstable
        matter = np.zeros(network.layers[-1].size, dtype=bool)
        for objective in objectives:
            matter |= objective.coefficients != 0
        neurons = neurons[matter[neurons]]
        last = _level(presolved, network.depth - 1, neurons, np.zeros(0, dtype=np.int64))
        rows = [o.coefficients[neurons] for o in objectives]
    else:
        rows = [_over_variables(presolved, o) for o in objectives]
    # A target that every output reaches has no objective.
    width = int(presolved.owner.size) if last is None else last.size
    constant, slack = _constants(presolved, objectives)
    return Circuit(
        neurons=presolved.owner[first],
        size=int(presolved.owner.size),
        levels=tuple(levels),
        last=last,
        objectives=LinearObjectives(
            coefficients=np.array(rows, dtype=np.float64).reshape(len(rows), width),
            constant=constant,
            slack=slack,
            enough=np.array([o.enough for o in objectives]),
            target=np.array(owner, dtype=np.int64),
            targets=len(targets),
        ),
    )


def _level(presolved: Presolved, number: int, neurons: IntArray, outputs: IntArray) -> Level:
    layer, made = presolved.network.layers[number], presolved.layers[number]
    rows = made.rows[neurons]
    inputs = np.unique(rows.indices).astype(np.int64)
    shift = made.shift[neurons]

    def moved(values: FloatArray | IntArray) -> Float32Array:
        return np.asarray(values[neurons] - shift, dtype=np.float32)

    return Level(
        inputs=inputs,
        rows=np.asarray(rows[:, inputs].toarray(), dtype=np.float32),
        plus_from=moved(layer.plus_from),
        minus_upto=moved(layer.minus_upto),
        lower=moved(made.bounds.lower),
        upper=moved(made.bounds.upper),
        outputs=outputs,
    )


def _over_variables(presolved: Presolved, objective: Objective) -> FloatArray:
    """Return the coefficients of the variables, for a network with one sign layer."""
    only = presolved.layers[0]
    open_ = np.flatnonzero(only.bounds.state == 0)
    total = np.zeros(presolved.owner.size)
    np.add.at(total, only.variable[open_], objective.coefficients[open_] * only.sign[open_])
    return total


def _constants(presolved: Presolved, objectives: list[Objective]) -> tuple[FloatArray, FloatArray]:
    """Return the constants of the objectives, fixed neurons included, and their slacks."""
    state = presolved.bounds[-1].state.astype(np.float64)
    constant, slack = np.zeros(len(objectives)), np.zeros(len(objectives))
    for k, objective in enumerate(objectives):
        d = objective.coefficients
        constant[k] = float(d @ state) + objective.constant
        reach = float(np.abs(d).sum()) + abs(objective.constant)
        whole = bool(np.all(d == np.rint(d))) and objective.constant == np.rint(objective.constant)
        rounding = 0.0 if whole and reach < 2**52 else 2 * (d.size + 4) * ROUNDING * reach
        slack[k] = float(objective.error) + rounding
    return constant, slack


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
