"""A clock that tests move by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import bnncert.deadline


class Clock:
    """The clock of all deadlines that are made while it is in place.

    Every look at it lets `tick` seconds pass; `looks` is their number.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tick: float = 0.0) -> None:
        self.now, self.tick, self.looks = 1000.0, tick, 0
        monkeypatch.setattr(bnncert.deadline, "time", SimpleNamespace(monotonic=self.read))

    def read(self) -> float:
        """Return the time in seconds."""
        self.looks += 1
        self.now += self.tick
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
