"""The log of a refutation: all learned clauses, in order.

Each follows from the rows and the clauses before it by propagation.  Which of them a proof needs is
found when it is written.  The solver writes into a small buffer, which is emptied between slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bnncert.arrays import IntArray
from bnncert.engine.search.learning.solver_state import LOGGED, SolverState

#: Entries of the buffer.
BUFFER = 2**20


@dataclass(eq=False)
class ProofLog:
    """All learned clauses so far, in parts."""

    parts: list[IntArray] = field(default_factory=list)
    entries: int = 0
    lost: bool = False

    def take(self, state: SolverState, most: float) -> None:
        """Empty the buffer of the solver; a log of more than `most` bytes is given up."""
        self.entries += int(state.number[LOGGED])
        if 4.0 * self.entries > most:
            self.parts, self.lost = [], True
        elif not self.lost:
            self.parts.append(state.log[: state.number[LOGGED]].copy())
        state.number[LOGGED] = 0

    def lemmas(self) -> list[IntArray]:
        """Return the learned clauses."""
        found = []
        for part in self.parts:
            place = 0
            while place < part.size:
                found.append(part[place + 1 : place + 1 + part[place]])
                place += 1 + part[place]
        return found
