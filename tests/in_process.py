"""The command line called inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from bnncert import cli


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Capture: TypeAlias = pytest.CaptureFixture[str]


def command_line(
    monkeypatch: pytest.MonkeyPatch, capture: Capture, *first: str
) -> Callable[..., Outcome]:
    """Return what runs `bnncert FIRST ...`; an exception that escapes fails the test."""

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr("sys.argv", ["bnncert", *first, *map(str, arguments)])
        capture.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capture.readouterr()
        assert isinstance(stopped.value.code, int)
        return Outcome(stopped.value.code, captured.out, captured.err)

    return call
