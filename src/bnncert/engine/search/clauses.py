"""Sets of literals that cannot all hold, checked in one pass."""

from __future__ import annotations

import numpy as np

from bnncert.arrays import BoolArray, IntArray, SignArray
from bnncert.engine.presolve.literals import sign_of, variable_of

#: Approximate size in bytes of a Python object and the header of an array.
OVERHEAD = 250


class ClauseSet:
    """Clauses as sorted arrays of literals, without repetitions."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self.clauses: list[IntArray] = []
        self._variables: IntArray = np.zeros(0, dtype=np.int64)
        self._starts: IntArray = np.zeros(0, dtype=np.int64)
        self._wanted: SignArray = np.zeros(0, dtype=np.int8)
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.clauses)

    def add(self, literals: IntArray) -> bool:
        """Add a clause; False if it is in the set already."""
        ordered = np.sort(literals).astype(np.int64)
        key = ordered.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        self.clauses.append(ordered)
        # The literals are stored as an array, as a key and in the joined arrays.
        self.bytes += 3 * ordered.nbytes + OVERHEAD
        return True

    def propagate(self, signs: SignArray) -> bool:
        """Fix the last open sign of every clause whose others hold; False for a contradiction."""
        if not self.clauses:
            return True
        self._join()
        variables = self._variables
        agrees = signs[variables] * self._wanted
        # Counts for each clause, in one pass over all literals.
        refuted = np.add.reduceat(agrees < 0, self._starts, dtype=np.int64) > 0
        open_ = np.add.reduceat(agrees == 0, self._starts, dtype=np.int64)
        if np.any(~refuted & (open_ == 0)):
            return False
        last = np.repeat(~refuted & (open_ == 1), np.diff(self._starts, append=agrees.size))
        unit = np.flatnonzero(last & (agrees == 0))
        # If two clauses disagree, the next pass finds one of them violated.
        signs[variables[unit]] = -self._wanted[unit]
        return True

    def violations(self, patterns: SignArray) -> BoolArray:
        """Return which clauses (columns) the rows of signs violate."""
        if not self.clauses:
            return np.zeros((patterns.shape[0], 0), dtype=bool)
        self._join()
        holds = patterns[:, self._variables] == self._wanted
        return np.asarray(np.logical_and.reduceat(holds, self._starts, axis=1))

    def broken_by(self, patterns: SignArray) -> BoolArray:
        """Return which rows of signs violate a clause."""
        return np.asarray(self.violations(patterns).any(axis=1))

    def _join(self) -> None:
        if self._starts.size == len(self.clauses):
            return
        sizes = np.array([clause.size for clause in self.clauses], dtype=np.int64)
        literals = np.concatenate(self.clauses)
        self._starts = np.cumsum(sizes) - sizes
        self._variables, self._wanted = variable_of(literals), sign_of(literals)
