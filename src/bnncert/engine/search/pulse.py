"""Reports about the share of a tree that is closed, at regular intervals."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds between two reports.
INTERVAL = 1.0

#: The largest share of the time for computing what is reported.
COST = 0.01


class Pulse:
    """Calls `tell` with the closed share of a tree, but not too often."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._next = time.monotonic() + INTERVAL

    def beat(self, open_share: Callable[[], float]) -> None:
        """Report if it is time; `open_share` computes the share that is open."""
        now = time.monotonic()
        if now < self._next:
            return
        self._tell(min(1.0, max(0.0, 1.0 - open_share())))
        after = time.monotonic()
        self._next = after + max(INTERVAL, (after - now) / COST)
