"""What a finished search leaves for whoever writes a proof of its answer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.presolve.literals import sign_of, variable_of
from bnncert.presolve.pipeline import Presolved
from bnncert.search.tree import Tree


@dataclass(eq=False)
class Trace:
    """The leaves of a tree and the conflicts it learned, in terms of the network's neurons.

    A leaf is a list of (layer, neuron, sign); a conflict is first-layer neurons, their signs and
    the multipliers that prove it (None where only exact arithmetic knows them).
    """

    objective: int = 0
    leaves: list[list[tuple[int, int, int]]] = field(default_factory=list)
    conflicts: list[tuple[IntArray, IntArray, FloatArray | None]] = field(default_factory=list)


def trace_of(tree: Tree, presolved: Presolved, objective: int) -> Trace:
    """Return the trace of a tree that has proved its objective."""
    variables = tree.problem.variables
    layer, neuron = presolved.owner_layer[variables], presolved.owner[variables]
    trace = Trace(objective)
    for leaf in tree.outcome.leaves:
        fixed = np.flatnonzero(leaf.signs)
        trace.leaves.append(
            [(int(layer[v]), int(neuron[v]), int(leaf.signs[v])) for v in fixed.tolist()]
        )
    for literals, theta in tree.proofs:
        own = variable_of(literals)
        if np.all(layer[own] == 0):
            trace.conflicts.append((neuron[own], sign_of(literals).astype(np.int64), theta))
    return trace
