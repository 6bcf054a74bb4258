"""The log of a refutation: lemmas, and for each the earlier lemmas that it follows from.

The solver writes lemmas into a small buffer, which is emptied between slices.  Lemma numbers count
up from 0; -2 - r stands for clause r of the region, which has a proof of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bnncert.arrays import IntArray
from bnncert.engine.search.learning.solver_state import (
    ANTECEDENTS,
    HERE,
    LEMMA_LITERALS,
    LOST,
    SolverState,
)

#: Entries of the buffer for literals of lemmas.
BUFFER = 2**20


@dataclass(eq=False)
class ProofLog:
    """All lemmas so far, in parts."""

    literals: list[IntArray] = field(default_factory=list)
    sizes: list[IntArray] = field(default_factory=list)
    antecedents: list[IntArray] = field(default_factory=list)
    counts: list[IntArray] = field(default_factory=list)
    entries: int = 0
    lost: bool = False

    def take(self, state: SolverState, most: float) -> None:
        """Empty the buffer of the solver; a log of more than `most` bytes is given up."""
        number = state.number
        here = int(number[HERE])
        self.lost = self.lost or bool(number[LOST]) or 4.0 * self.entries > most
        if not self.lost:
            self.literals.append(state.lemma_literal[: number[LEMMA_LITERALS]].copy())
            self.sizes.append(np.diff(state.lemma_start[: here + 1]))
            self.antecedents.append(state.antecedent[: number[ANTECEDENTS]].copy())
            self.counts.append(np.diff(state.antecedent_start[: here + 1]))
            self.entries += int(number[LEMMA_LITERALS] + number[ANTECEDENTS]) + 4 * here
        number[[HERE, LEMMA_LITERALS, ANTECEDENTS]] = 0

    def trimmed(self) -> tuple[list[IntArray], IntArray]:
        """Return the lemmas that the last one, the empty one, needs, and clauses of the region."""
        none = np.zeros(0, dtype=np.int64)
        starts, places = (
            np.concatenate([[0], np.cumsum(np.concatenate([none, *sizes]))])
            for sizes in (self.sizes, self.counts)
        )
        literals = np.concatenate([none, *self.literals])
        antecedents = np.concatenate([none, *self.antecedents])
        count = starts.size - 1
        needed, region = np.zeros(count, dtype=bool), []
        needed[count - 1 :] = True
        for lemma in range(count - 1, -1, -1):
            if needed[lemma]:
                own = antecedents[places[lemma] : places[lemma + 1]]
                needed[own[own >= 0]] = True
                region.append(own[own < 0])
        kept = np.flatnonzero(needed).tolist()
        lemmas = [literals[starts[k] : starts[k + 1]] for k in kept]
        return lemmas, -2 - np.unique(np.concatenate([none, *region]))
