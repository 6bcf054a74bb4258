r"""Which clauses an elimination takes into account.

A clause whose variables are together in one bucket anyway costs nothing.  Any other one joins
variables and widens the tables, so it is *activated* only when a minimising pattern violates it.
Conflicting pairs of presolve and learned clauses are treated alike.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bnncert.arrays import IntArray, SignArray
from bnncert.presolve.literals import sign_of, variable_of

#: Longer clauses join so many variables that they are activated only where no shorter one helps.
SHORT = 4


class ClausePool:
    """Clauses as literals of variables, each once, and how often each was violated."""

    def __init__(self, clauses: Iterable[IntArray] = ()) -> None:
        self.clauses: list[IntArray] = []
        self.scopes: list[tuple[int, ...]] = []
        #: How often an active clause was violated by a minimising pattern.
        self.uses: dict[int, int] = {}
        self._known: set[bytes] = set()
        self._joined: tuple[IntArray, IntArray, SignArray] | None = None
        for clause in clauses:
            self.add(clause)

    def __len__(self) -> int:
        return len(self.clauses)

    @property
    def active(self) -> list[int]:
        """The active clauses, those that were violated most often first."""
        return sorted(self.uses, key=lambda i: (-self.uses[i], self.clauses[i].size, i))

    def add(self, clause: IntArray) -> bool:
        """Add a clause; False if it is there already."""
        ordered = np.sort(clause).astype(np.int64)
        if ordered.tobytes() in self._known:
            return False
        self._known.add(ordered.tobytes())
        self.clauses.append(ordered)
        self.scopes.append(tuple(variable_of(ordered).tolist()))
        self._joined = None
        return True

    def activate(self, clauses: Iterable[int]) -> None:
        """Activate short ones of the clauses that a pattern violates, which exclude it already."""
        violated = list(clauses)
        longest = max(SHORT, min((self.clauses[i].size for i in violated), default=0))
        for i in violated:
            if self.clauses[i].size <= longest:
                self.uses[i] = self.uses.get(i, 0) + 1

    def violated(self, signs: SignArray) -> list[int]:
        """Return the clauses that a pattern violates; `signs` are those of all variables."""
        if not self.clauses:
            return []
        if self._joined is None:
            sizes = np.array([c.size for c in self.clauses], dtype=np.int64)
            literals = np.concatenate(self.clauses)
            self._joined = variable_of(literals), np.cumsum(sizes) - sizes, sign_of(literals)
        variables, starts, wanted = self._joined
        holds = signs[variables] == wanted
        return [int(i) for i in np.flatnonzero(np.logical_and.reduceat(holds, starts))]
