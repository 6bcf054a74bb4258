"""Enumeration of the patterns of one node by matrix products.

The circuit is first narrowed to the open gates of the node, so that the products are small: a gate
that propagation fixes in a node is fixed in all of its patterns.  Without these gates the
circuit often has a tenth of the size, and evaluating a pattern takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray, SignArray
from bnncert.engine.search.patterns.circuit import Circuit, Level
from bnncert.engine.search.patterns.enumeration import Enumerated
from bnncert.engine.search.patterns.flips import UNITS, BudgetedSums, FlipBudget, fits_level
from bnncert.engine.search.patterns.interval_propagation import evaluate, propagate


def narrowed(
    circuit: Circuit, states: Float32Array, last: Float32Array, *, inputs: bool
) -> Circuit:
    """Return the circuit without the gates that are fixed.

    `states` and `last` are those of all variables and of the last level's gates in the node, -1, 0
    or +1.  With `inputs`, fixed first-layer variables are also removed.
    """
    if circuit.last is None:
        return circuit
    removed = states != 0
    if not inputs:
        removed[: circuit.inputs] = False
    place = np.cumsum(~removed) - 1
    levels = [
        _narrowed_level(level, states, removed, place, states[level.outputs] == 0)
        for level in circuit.levels
    ]
    open_, objectives = last == 0, circuit.objectives
    fixed = objectives.coefficients[:, ~open_] @ last[~open_].astype(np.float64)
    return replace(
        circuit,
        neurons=circuit.neurons[~removed[: circuit.inputs]],
        size=int(np.count_nonzero(~removed)),
        levels=tuple(level for level in levels if level.size),
        last=_narrowed_level(circuit.last, states, removed, place, open_),
        objectives=replace(
            objectives,
            coefficients=objectives.coefficients[:, open_],
            constant=objectives.constant + fixed,
        ),
    )


def _narrowed_level(
    level: Level, states: Float32Array, removed: np.ndarray, place: IntArray, open_: np.ndarray
) -> Level:
    gone = removed[level.inputs]
    rows = level.rows[open_]
    fixed = rows[:, gone] @ states[level.inputs[gone]]
    outputs = level.outputs[open_] if level.outputs.size else level.outputs
    return Level(
        inputs=place[level.inputs[~gone]],
        rows=np.ascontiguousarray(rows[:, ~gone]),
        plus_from=level.plus_from[open_] - fixed,
        minus_upto=level.minus_upto[open_] - fixed,
        lower=level.lower[open_] - fixed,
        upper=level.upper[open_] - fixed,
        outputs=place[outputs],
    )


def without_stable_gates(circuit: Circuit, budget: FlipBudget | None) -> Circuit:
    """Return the circuit without the gates that the budget fixes in the whole region."""
    levels = circuit.all_levels
    if budget is None or not levels or not fits_level(circuit, levels[0]):
        return circuit
    root, left = budget.restrict(np.zeros((1, circuit.inputs), dtype=np.int8))
    made = propagate(circuit, root, BudgetedSums(budget, levels[0]).sums(root, left))
    if not made.possible[0]:
        return circuit
    return narrowed(circuit, made.states[0], made.last[0], inputs=False)


#: Patterns up to which a node is enumerated, and patterns that are evaluated together.
MOST_PLAIN, CHUNK = 2**13, 2**12


def enumerate_node(
    circuit: Circuit,
    budget: FlipBudget | None,
    states: Float32Array,
    last: Float32Array,
    wanted: BoolArray,
    goal: FloatArray,
    signs: SignArray | None = None,
) -> Iterator[Enumerated]:
    """Evaluate all patterns of a node, in parts that take little time.

    `states` and `last` are the result of propagation for the node: its variables and the last
    level's gates.  `signs` are the patterns of the open variables (default: all in the budget).
    """
    node = states[: circuit.inputs].astype(np.int8)
    open_ = np.flatnonzero(node == 0)
    small = narrowed(circuit, states, last, inputs=True)
    if signs is None:
        signs = completions(open_.size) if budget is None else within_budget(budget, node, open_)
    # A network with one sign layer has nothing to remove.
    whole = small.inputs == circuit.inputs and open_.size < circuit.inputs
    for start in range(0, signs.shape[0], CHUNK):
        chunk = signs[start : start + CHUNK]
        made = evaluate(small, _filled(node, open_, chunk) if whole else chunk)
        reached = small.objectives.open_targets(made.lower, goal) & wanted & made.possible[:, None]
        closed = wanted & ~reached & made.possible[:, None]
        bounds = np.where(closed, small.objectives.target_bounds(made.lower), np.inf)
        violating = _filled(node, open_, chunk[reached.any(axis=1)])
        least = bounds.min(axis=0, initial=np.inf)
        ends = start + CHUNK >= signs.shape[0]
        yield Enumerated(chunk.shape[0], violating, least, complete=True, last=ends)


def _filled(node: SignArray, open_: IntArray, signs: SignArray) -> SignArray:
    """Return whole patterns, given the signs that the node leaves open."""
    patterns = np.repeat(node[None, :], signs.shape[0], axis=0)
    patterns[:, open_] = signs
    return patterns


def completions(count: int) -> SignArray:
    """Return all patterns of `count` signs, one in each row."""
    bits = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    return (1 - 2 * bits).astype(np.int8)


def within_budget(budget: FlipBudget, node: SignArray, open_: IntArray) -> SignArray:
    """Return the signs of the open variables for every set of flips that fits the budget."""
    order = np.argsort(budget.cost[open_], kind="stable")
    cost = budget.cost[open_][order]
    start = budget.home[open_][None, :]
    sets, parts = start, [start]
    left = UNITS - budget.spent(node[None, :])
    following: IntArray = np.zeros(1, dtype=np.int64)
    while sets.size:
        # Flips are added in ascending order of cost, so that every set is made once.
        fitting = np.searchsorted(cost, left, side="right")
        counts = np.maximum(fitting - following, 0)
        parent = np.repeat(np.arange(sets.shape[0]), counts)
        first = np.repeat(following - (np.cumsum(counts) - counts), counts)
        flip = first + np.arange(parent.size)
        sets = sets[parent]
        sets[np.arange(parent.size), order[flip]] *= -1
        left = left[parent] - cost[flip]
        following = flip + 1
        parts.append(sets)
    return np.concatenate(parts)
