r"""Which clauses an elimination takes into account.

A clause whose variables are in one bucket without it costs nothing.  Any other clause joins
variables and widens the tables, so it is *activated* only when a minimising pattern violates it.
Conflicting pairs of presolve and learned clauses are treated in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from bnncert.arrays import IntArray, SignArray
from bnncert.engine.presolve.literals import variable_of
from bnncert.engine.search.clauses import ClauseSet

#: Longer clauses join so many variables that they are activated only if no shorter one helps.
SHORT = 4


class ClausePool(ClauseSet):
    """Clauses with their variables, and how often a minimising pattern violated each of them."""

    def __init__(self, clauses: Iterable[IntArray] = ()) -> None:
        super().__init__()
        self.scopes: list[tuple[int, ...]] = []
        #: How often each active clause was violated by a minimising pattern.
        self.uses: Counter[int] = Counter()
        for clause in clauses:
            self.add(clause)

    @property
    def active(self) -> list[int]:
        """The active clauses, those that were violated most often first."""
        return sorted(self.uses, key=lambda i: (-self.uses[i], self.clauses[i].size, i))

    def add(self, literals: IntArray) -> bool:
        """Add a clause; False if it is in the pool already."""
        new = super().add(literals)
        if new:
            self.scopes.append(tuple(variable_of(self.clauses[-1]).tolist()))
        return new

    def activate(self, clauses: Iterable[int]) -> None:
        """Activate the short ones of the clauses that a pattern violates: they exclude it."""
        violated = list(clauses)
        longest = max(SHORT, min((self.clauses[i].size for i in violated), default=0))
        self.uses.update(i for i in violated if self.clauses[i].size <= longest)

    def violated(self, signs: SignArray) -> list[int]:
        """Return the clauses that a pattern violates; `signs` are those of all variables."""
        found: list[int] = np.flatnonzero(self.violations(signs[None, :])[0]).tolist()
        return found
