"""Sets of literals that cannot all hold, checked all at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray, SignArray
from bnncert.presolve.literals import sign_of, variable_of

#: Bytes of a Python object and an array's head, about.
OVERHEAD = 250


class ClauseSet:
    """Clauses of literals, each kept once."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._parts: list[IntArray] = []
        self._literals: IntArray = np.zeros(0, dtype=np.int64)
        self._starts: IntArray = np.zeros(0, dtype=np.int64)
        self._wanted: SignArray = np.zeros(0, dtype=np.int8)
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, literals: IntArray) -> bool:
        """Remember a clause; False if it was there already."""
        ordered = np.sort(literals).astype(np.int64)
        key = ordered.tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        self._parts.append(ordered)
        # The literals are held as a part, as a key and in the long list.
        self.bytes += 3 * ordered.nbytes + OVERHEAD
        return True

    def propagate(self, signs: SignArray) -> bool:
        """Fix the last open sign of every clause whose others hold; False for a contradiction."""
        if not self._parts:
            return True
        self._join()
        variables = variable_of(self._literals)
        agrees = signs[variables] * self._wanted
        # Counts per clause, in one pass over all literals.
        refuted = np.add.reduceat(agrees < 0, self._starts, dtype=np.int64) > 0
        open_ = np.add.reduceat(agrees == 0, self._starts, dtype=np.int64)
        if np.any(~refuted & (open_ == 0)):
            return False
        last = np.repeat(~refuted & (open_ == 1), np.diff(self._starts, append=agrees.size))
        unit = np.flatnonzero(last & (agrees == 0))
        # If two disagree, the next pass finds one of them violated.
        signs[variables[unit]] = -self._wanted[unit]
        return True

    def broken_by(self, patterns: SignArray) -> npt.NDArray[np.bool_]:
        """Return which rows of signs break a clause."""
        if not self._parts:
            return np.zeros(patterns.shape[0], dtype=bool)
        self._join()
        holds = patterns[:, variable_of(self._literals)] == self._wanted
        whole = np.logical_and.reduceat(holds, self._starts, axis=1)
        return np.asarray(whole.any(axis=1))

    def _join(self) -> None:
        if self._starts.size == len(self._parts):
            return
        sizes = np.array([p.size for p in self._parts], dtype=np.int64)
        self._literals = np.concatenate(self._parts)
        self._starts = np.cumsum(sizes) - sizes
        self._wanted = sign_of(self._literals)
