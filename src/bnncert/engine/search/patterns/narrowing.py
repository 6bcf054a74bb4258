"""The part of a circuit that is still open in a node.

A gate that propagation fixes in a node is fixed in all of its patterns.  Without these gates the
circuit often has a tenth of the size, and evaluating a pattern takes a tenth of the time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import Float32Array, IntArray
from bnncert.engine.search.patterns.circuit import Circuit, Level
from bnncert.engine.search.patterns.flips import BudgetedSums, FlipBudget, fits_level
from bnncert.engine.search.patterns.interval_propagation import propagate


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
