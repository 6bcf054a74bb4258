r"""Enumeration of the patterns of branch-and-bound nodes with few open first-layer signs.

The signs of a node are propagated through all layers by intervals.  If that does not close the
node, all patterns of its open first-layer signs are evaluated.  In a deep network this takes
milliseconds, whereas a relaxation over all of its gates takes a second and gives a weak bound.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bnncert.arrays import IntArray, SignArray
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.search.patterns.circuit import Circuit, build_circuit, is_small_enough
from bnncert.engine.search.patterns.enumeration import enumerate_node
from bnncert.engine.search.patterns.interval_propagation import propagate
from bnncert.engine.search.restrict import Restriction
from bnncert.problem import Objective, Target

#: Open first-layer signs up to which a node is enumerated.
MOST_OPEN = 15

#: Open variables of all layers from which on a relaxation takes longer than the enumeration.
WORTH_IT = 60


class NodePatterns:
    """Enumerates the patterns of nodes of one tree."""

    def __init__(self, presolved: Presolved, problem: ReducedProblem, objective: Objective) -> None:
        self._presolved, self._objective = presolved, objective
        #: The first-layer variables of the tree; a circuit has the numbers of presolve.
        self._inputs: IntArray = np.flatnonzero(presolved.owner_layer[problem.variables] == 0)
        self._numbers: IntArray = problem.variables[self._inputs]
        self._can = is_small_enough(presolved)

    @cached_property
    def _circuit(self) -> Circuit:
        return build_circuit(self._presolved, (Target("", (self._objective,)),))

    def is_worth_it(self, left: Restriction) -> bool:
        """Whether a node is enumerated: it has few open signs and many open gates."""
        few = np.count_nonzero(left.signs[self._inputs] == 0) <= MOST_OPEN
        if not few or left.free.size < WORTH_IT or not self._can:
            return False
        return bool(np.count_nonzero(self._node(left) == 0) <= MOST_OPEN)

    def _node(self, left: Restriction) -> SignArray:
        """Return the node's signs of all first-layer variables, as one row."""
        node = np.zeros((1, self._circuit.inputs), dtype=np.int8)
        # Variables that f does not depend on also stay open: with a sign that no input has, a gate
        # that conflicts make stable could contradict the pattern, which would be dropped.
        node[0, self._numbers] = left.signs[self._inputs]
        return node

    def violating(self, left: Restriction) -> tuple[SignArray, float]:
        """Return the patterns that may reach the objective, over the tree's first-layer variables.

        Also return a lower bound of f on all others.
        """
        circuit, node = self._circuit, self._node(left)
        made = propagate(circuit, node)
        nothing = np.zeros((0, self._inputs.size), dtype=np.int8)
        if not made.possible[0]:
            return nothing, np.inf
        if made.lower[0, 0] > circuit.objectives.enough[0]:
            return nothing, float(made.lower[0, 0])
        patterns, least = [nothing], np.inf
        wanted = np.ones(1, dtype=bool)
        for part in enumerate_node(
            circuit, None, made.states[0], made.last[0], wanted, circuit.objectives.enough
        ):
            patterns.append(part.violating[:, self._numbers])
            least = min(least, float(part.least[0]))
        return np.concatenate(patterns), least
