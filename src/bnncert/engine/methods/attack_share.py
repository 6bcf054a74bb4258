"""The attack's share of the time when proofs are also attempted.

A proof of a large problem may take all the time although an attack would find a counterexample
quickly.  So a share of the time is reserved for the attack:

* at the time limit its share is complete, because proofs end early enough for the rest of it;
* before that it gets its share in slices, each twice as long as the one before, so that quick
  proofs are not delayed;
* an attack that does not improve any more has a smaller share, so that at short time limits proofs
  have nearly all the time.
"""

from __future__ import annotations

from bnncert.deadline import Deadline

#: The attack's share of the time, and its share when it is stalled.
SHARE, STALLED_SHARE = 1.0 / 3.0, 0.1

#: Seconds of the first slice.  Proofs that end before it is due are not delayed.
FIRST_SLICE = 0.25


class AttackShare:
    """The time of the attack, measured by the clock of one deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._since = deadline.elapsed()
        self._slice = FIRST_SLICE
        self._share = SHARE
        self.seconds = 0.0

    def spend(self, seconds: float, *, stalled: bool) -> None:
        """Add seconds that the attack has used, and record whether it is stalled."""
        self.seconds += seconds
        self._share = STALLED_SHARE if stalled else SHARE

    def due(self) -> float:
        """Return the seconds for the attack now: 0, or at least the next slice."""
        elapsed = self._deadline.elapsed() - self._since
        # After this many more seconds of the attack, its share of all seconds is complete.
        lacking = (self._share * elapsed - self.seconds) / (1 - self._share)
        if lacking < self._slice:
            return 0.0
        self._slice *= 2
        return min(lacking, self._deadline.remaining())

    def lacking(self) -> float:
        """Return the seconds that the attack still has before the limit."""
        if self._deadline.seconds is None:
            return 0.0
        return max(self._share * (self._deadline.seconds - self._since) - self.seconds, 0.0)

    def for_proofs(self) -> Deadline:
        """Return the deadline of proofs, after which the rest of the attack's share follows."""
        if self._deadline.seconds is None:
            return self._deadline
        return self._deadline.within(self._deadline.remaining() - self.lacking())
