"""Time limits, which are passed to all computations that may take long."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from bnncert.errors import InputError

#: Why a computation has no result after its deadline.
TIME_IS_UP = "time is up"

#: Weights of layers that take little time together, and are worked on even after a deadline.
MOST_LATE = 300_000


class OutOfTimeError(Exception):
    """The deadline passed in a computation that cannot return a partial result."""


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock; `Deadline(None)` never passes."""

    seconds: float | None = None
    start: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        if self.seconds is not None and (math.isnan(self.seconds) or self.seconds <= 0):
            raise InputError(f"timeout is {self.seconds}; expected a number of seconds > 0")

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.start

    def remaining(self) -> float:
        """Return the remaining seconds: negative after the limit, infinite without a limit."""
        return math.inf if self.seconds is None else self.seconds - self.elapsed()

    def passed(self) -> bool:
        """Whether the limit has passed."""
        return self.remaining() <= 0

    def check(self) -> None:
        """Raise OutOfTimeError if the limit has passed."""
        if self.passed():
            raise OutOfTimeError(TIME_IS_UP)

    def extended(self, seconds: float) -> Deadline:
        """Return the deadline that is so many seconds later."""
        return self if self.seconds is None else Deadline(self.seconds + seconds, self.start)

    def within(self, seconds: float | None) -> Deadline:
        """Return a deadline `seconds` from now, or this one if it is earlier."""
        if seconds is None or seconds == math.inf:
            return self
        now, left = time.monotonic(), min(seconds, self.remaining())
        # A limit must be positive: a limit that has passed is written with a start in the past.
        return Deadline(left, now) if left > 0 else Deadline(1e-9, now + left - 1e-6)


#: The limit of computations that may take as long as they need.
NO_DEADLINE = Deadline()


@dataclass(eq=False)
class Grace:
    """A little work that is done even after a deadline, so that small problems are finished."""

    deadline: Deadline
    #: The weights that may still be worked on after the deadline.
    left: int = field(default_factory=lambda: MOST_LATE)

    def allows(self, weights: int) -> bool:
        """Whether there is time for work on so many weights."""
        if not self.deadline.passed():
            return True
        self.left -= weights
        return self.left >= 0

    def check(self, weights: int) -> None:
        """Raise OutOfTimeError if there is no time for work on so many weights."""
        if not self.allows(weights):
            raise OutOfTimeError(TIME_IS_UP)
