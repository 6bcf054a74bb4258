"""A clock that tests move by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import bnncert.deadline


class Clock:
    """The clock of all deadlines that are made while it is in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(bnncert.deadline, "time", SimpleNamespace(monotonic=self.read))

    def read(self) -> float:
        """Return the time in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
