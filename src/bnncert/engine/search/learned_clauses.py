"""First-layer clauses that one search learns and the searches of other objectives reuse.

A clause excludes a combination of signs of first-layer neurons.  It holds for every objective, and
neurons have the same numbers in all reduced problems of a region.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.presolve.literals import renumbered, variable_of
from bnncert.engine.search.tree import Tree

#: Longer clauses exclude too few patterns to be useful in another tree.
LONGEST = 12


@dataclass(eq=False)
class LearnedClauses:
    """Clauses as literals of neurons, each with the Farkas multipliers that prove it."""

    known: dict[bytes, tuple[IntArray, FloatArray | None]] = field(default_factory=dict)

    def add(self, literals: IntArray, theta: FloatArray | None) -> None:
        """Add literals of neurons that cannot all hold, unless there are too many of them."""
        if literals.size <= LONGEST:
            self.known.setdefault(np.sort(literals).tobytes(), (literals, theta))

    def add_from(self, tree: Tree) -> None:
        """Add the clauses that a tree has learned."""
        neuron_of = np.full(tree.problem.size, -1, dtype=np.int64)
        neuron_of[tree.inputs] = tree.neurons
        for literals, theta in tree.proofs:
            if np.all(neuron_of[variable_of(literals)] >= 0):
                self.add(renumbered(literals, neuron_of), theta)

    def add_to(self, tree: Tree) -> None:
        """Add to a tree the clauses whose neurons are all variables of its problem."""
        for literals, theta in self.over(tree.neurons, tree.inputs):
            tree.learn(literals, theta)

    def over(
        self, neurons: IntArray, variables: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray | None]]:
        """Yield the clauses over these neurons; neuron k becomes the variable `variables[k]`."""
        if not self.known:
            return
        most = max(int(variable_of(literals).max()) for literals, _ in self.known.values())
        place = np.full(max(most, int(neurons.max(initial=0))) + 1, -1, dtype=np.int64)
        place[neurons] = variables
        for literals, theta in self.known.values():
            if np.all(place[variable_of(literals)] >= 0):
                yield renumbered(literals, place), theta
