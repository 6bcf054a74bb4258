"""How much of the time belongs to the attack when proofs are attempted as well.

A proof of a large problem may take all the time, although an attack would find a counterexample in
a moment.  So the attack has a share of the time that no proof can take:

* at the time limit its share is complete, because proofs end early enough for what it still lacks;
* before that it gets what it lacks in slices, each twice as long as the one before, so that quick
  proofs are not held up;
* an attack that no longer comes closer to any target has a smaller share, so that at short limits
  proofs have nearly all the time.
"""

from __future__ import annotations

from bnncert.deadline import Deadline

#: The attack's share of the time, and its share once it is stalled.
SHARE, STALLED_SHARE = 1.0 / 3.0, 0.1

#: Seconds of the first slice.  Proofs that end before it is due are not delayed.
FIRST_SLICE = 0.25


class AttackShare:
    """The account of the attack's time on the clock of one deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._since = deadline.elapsed()
        self._slice = FIRST_SLICE
        self._share = SHARE
        self.seconds = 0.0

    def spend(self, seconds: float, *, stalled: bool) -> None:
        """Add seconds that the attack has used, and note whether it still comes closer."""
        self.seconds += seconds
        self._share = STALLED_SHARE if stalled else SHARE

    def due(self) -> float:
        """Return the seconds that the attack shall get now: 0, or at least the next slice."""
        elapsed = self._deadline.elapsed() - self._since
        # After so many seconds more of the attack, its share of all seconds is complete.
        lacking = (self._share * elapsed - self.seconds) / (1 - self._share)
        if lacking < self._slice:
            return 0.0
        self._slice *= 2
        return min(lacking, self._deadline.remaining())

    def lacking(self) -> float:
        """Return the seconds that the attack still has to get before the limit."""
        if self._deadline.seconds is None:
            return 0.0
        return max(self._share * (self._deadline.seconds - self._since) - self.seconds, 0.0)

    def for_proofs(self) -> Deadline:
        """Return when proofs have to end, so that the attack's share fits in before the limit."""
        if self._deadline.seconds is None:
            return self._deadline
        return self._deadline.within(self._deadline.remaining() - self.lacking())
