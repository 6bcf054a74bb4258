r"""Interval propagation of many nodes at once.

A node is a row of a matrix with entries -1, 0 and +1 over the first-layer variables; 0 is a sign
that is not fixed.  With the fixed part u = W x and the radius r = |W| [x = 0] a gate is +1 if u - r
is above the largest sum at which -1 is allowed, and -1 if u + r is below the smallest sum at which
+1 is allowed.  This takes two matrix products per level for all nodes of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray, SignArray
from bnncert.engine.search.patterns.circuit import Circuit, Level


@dataclass(frozen=True, eq=False)
class Propagated:
    """The result of propagating a batch of nodes."""

    #: All variables, -1, 0 or +1, one row per node.
    states: Float32Array
    #: The last level's gates, likewise (the variables themselves for one sign layer).
    last: Float32Array
    #: Lower bounds of the objectives, one column each.
    lower: FloatArray
    #: False for nodes whose fixed signs contradict each other.
    possible: BoolArray


@dataclass(frozen=True, eq=False)
class Sums:
    """Bounds lo <= u <= hi of the sums of one level, for each node."""

    lo: Float32Array
    hi: Float32Array


def level_sums(level: Level, states: Float32Array) -> Sums:
    """Return the interval of every sum of a level."""
    below = states[:, level.inputs]
    middle = below @ level.rows.T
    radius = (below == 0).astype(np.float32) @ level.sizes.T
    return Sums(middle - radius, middle + radius)


def settle(level: Level, sums: Sums) -> tuple[Float32Array, BoolArray]:
    """Return the state of every gate, and the nodes in which every gate has a possible sign."""
    lo = np.maximum(sums.lo, level.lower)
    hi = np.minimum(sums.hi, level.upper)
    on, off = lo > level.minus_upto, hi < level.plus_from
    state = on.astype(np.float32) - off.astype(np.float32)
    return state, ~np.any((on & off) | (lo > hi), axis=1)


def propagate(circuit: Circuit, nodes: SignArray, first: Sums | None = None) -> Propagated:
    """Propagate a batch of nodes through the whole circuit.

    `first` are tighter bounds of the sums of the first level, if the caller has them.
    """
    count = nodes.shape[0]
    states = np.zeros((count, circuit.size), dtype=np.float32)
    states[:, : circuit.inputs] = nodes
    possible = np.ones(count, dtype=bool)
    last = states
    for number, level in enumerate(circuit.all_levels):
        sums = level_sums(level, states) if number or first is None else first
        last, fine = settle(level, sums)
        possible &= fine
        if level.outputs.size:
            states[:, level.outputs] = last
    if circuit.last is None:
        last = states
    return Propagated(states, last, circuit.objectives.lower_bounds(last), possible)


def evaluate(circuit: Circuit, patterns: SignArray) -> Propagated:
    """Evaluate patterns in which every first-layer variable is fixed.

    The result is that of `propagate`, with half the work if no ties are possible.
    """
    if circuit.has_ties:
        return propagate(circuit, patterns)
    states = np.zeros((patterns.shape[0], circuit.size), dtype=np.float32)
    states[:, : circuit.inputs] = patterns
    last = states
    for level in circuit.all_levels:
        # In place and by slices: copies would take longer than the products.
        last = states[:, _places(level.inputs)] @ level.rows.T
        np.greater(last, level.minus_upto, out=last)
        last *= 2
        last -= 1
        if level.outputs.size:
            states[:, _places(level.outputs)] = last
    lower = circuit.objectives.values(last)
    return Propagated(states, last, lower, np.ones(patterns.shape[0], dtype=bool))


def _places(numbers: IntArray) -> IntArray | slice:
    """Return consecutive numbers as a slice, and others unchanged."""
    if numbers.size and bool((numbers[1:] - numbers[:-1] == 1).all()):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


def influence(circuit: Circuit, made: Propagated, open_: BoolArray) -> Float32Array:
    """Return the influence of each first-layer variable on the open targets of each node.

    The weights of the objectives are propagated back through the open gates, like a gradient.
    """
    of_objective = open_[:, circuit.objectives.target].astype(np.float32)
    weight = of_objective @ circuit.objectives.absolute.astype(np.float32)
    if circuit.last is None:
        return np.asarray(weight[:, : circuit.inputs])
    back = np.zeros((weight.shape[0], circuit.size), dtype=np.float32)
    weight = weight * (made.last == 0)
    back[:, circuit.last.inputs] = weight @ circuit.last.sizes
    for level in reversed(circuit.levels):
        weight = back[:, level.outputs] * (made.states[:, level.outputs] == 0)
        scale = np.maximum(weight.max(axis=1, keepdims=True), 1e-30)
        back[:, level.inputs] += (weight / scale) @ level.sizes
    return np.asarray(back[:, : circuit.inputs])


def literal_table(signs: SignArray) -> Float32Array:
    """Return one column for each literal 2a (x_a = +1) and 2a + 1 (x_a = -1): 1 where it holds."""
    table = np.zeros((signs.shape[0], 2 * signs.shape[1]), dtype=np.float32)
    table[:, 0::2] = signs > 0
    table[:, 1::2] = signs < 0
    return table


def imply(excluded: Float32Array, nodes: SignArray) -> tuple[SignArray, BoolArray]:
    """Fix the signs that conflicting pairs imply; also return which nodes are not contradictory."""
    nodes = nodes.copy()
    alive = np.ones(nodes.shape[0], dtype=bool)
    rows: IntArray = np.arange(nodes.shape[0])
    while rows.size:
        holds = literal_table(nodes[rows])
        false = holds @ excluded > 0
        both = false[:, 0::2] & false[:, 1::2]
        broken = np.any(both, axis=1) | np.any(false & (holds > 0), axis=1)
        alive[rows[broken]] = False
        part = nodes[rows]
        changed = np.where(part == 0, false[:, 1::2].astype(np.int8) - false[:, 0::2], part)
        moved = np.any(changed != part, axis=1) & ~broken
        nodes[rows[moved]] = changed[moved]
        rows = rows[moved]
    return nodes, alive


def pair_scores(excluded: Float32Array, nodes: SignArray) -> Float32Array:
    """Return how many open signs each variable decides, for branching.

    With a and b open literals that its two signs exclude, the score is (a + 1) (b + 1) + a + b, so
    that both children are small.
    """
    open_ = np.repeat((nodes == 0).astype(np.float32), 2, axis=1)
    counts = open_ @ excluded
    plus, minus = counts[:, 0::2], counts[:, 1::2]
    return np.asarray((plus + 1) * (minus + 1) + plus + minus)
