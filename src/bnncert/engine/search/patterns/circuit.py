r"""The presolved network for all targets at once, as dense integer layers.

Presolve numbers the unstable neurons as variables and writes every sum as u = w.x + shift over
variables.  A *circuit* has the part of that which evaluates sign patterns: the variables of the
first layer, then level by level the gates  x_g = sign(w_g.x),  and the objectives of all targets
over the last level.  All sums are integers below 2^24, so float32 products are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray
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
