"""Evaluation of complete patterns, against propagation and level by level."""

from __future__ import annotations

import numpy as np

from bnncert.engine.search.patterns.circuit import Circuit, Level, LinearObjectives
from bnncert.engine.search.patterns.interval_propagation import evaluate, propagate


def random_circuit(rng: np.random.Generator, inputs: int, *, contiguous: bool) -> Circuit:
    """Return three levels, which may leave out variables or have them in any order."""
    sizes, first = (5, 4, 3), inputs
    below, levels = np.arange(inputs), []
    for size in sizes:
        outputs = np.arange(first, first + size)
        read = below
        if not contiguous:
            outputs = rng.permutation(outputs)
            read = rng.permutation(first)[: int(rng.integers(1, first + 1))]
        rows = rng.integers(-2, 3, (size, read.size)).astype(np.float32)
        limit = rng.integers(-2, 3, size).astype(np.float32)
        reach = np.abs(rows).sum(axis=1)
        levels.append(Level(read, rows, limit + 1, limit, -reach, reach, outputs))
        below, first = outputs, first + size
    last = levels.pop()
    last = Level(
        last.inputs, last.rows, last.plus_from, last.minus_upto, last.lower, last.upper,
        np.zeros(0, dtype=np.int64),
    )  # fmt: skip
    nothing = np.zeros(2)
    weights = rng.integers(-3, 4, (2, sizes[-1])).astype(np.float64)
    return Circuit(
        neurons=np.arange(inputs), size=inputs + sum(sizes[:-1]), levels=tuple(levels), last=last,
        objectives=LinearObjectives(
            weights, rng.integers(-2, 3, 2).astype(np.float64), nothing, nothing, np.arange(2), 2
        ),
    )  # fmt: skip


def by_levels(circuit: Circuit, pattern: np.ndarray) -> np.ndarray:
    """Return the objectives at one pattern, gate by gate."""
    states = dict(enumerate(pattern.tolist()))
    assert circuit.last is not None
    gates: list[int] = []
    for level in (*circuit.levels, circuit.last):
        gates = []
        for row, limit in zip(level.rows.tolist(), level.minus_upto.tolist(), strict=True):
            total = sum(w * states[v] for w, v in zip(row, level.inputs.tolist(), strict=True))
            gates.append(1 if total > limit else -1)
        states.update(zip(level.outputs.tolist(), gates, strict=False))
    return circuit.objectives.constant + circuit.objectives.coefficients @ np.array(gates)


def test_patterns_are_evaluated_as_they_are_propagated() -> None:
    rng = np.random.default_rng(0)
    for k in range(60):
        circuit = random_circuit(rng, int(rng.integers(1, 6)), contiguous=k % 3 == 0)
        patterns = rng.choice([-1, 1], (7, circuit.inputs)).astype(np.int8)
        made, slow = evaluate(circuit, patterns), propagate(circuit, patterns)
        np.testing.assert_array_equal(made.states, slow.states)
        np.testing.assert_array_equal(made.last, slow.last)
        np.testing.assert_array_equal(made.lower, slow.lower)
        assert made.possible.all() and slow.possible.all()
        for pattern, lower in zip(patterns, made.lower, strict=True):
            np.testing.assert_array_equal(lower, by_levels(circuit, pattern))
