"""The command line called inside the test's own process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from bnncert.cli import program as cli
from bnncert.cli import progress

#: A line of progress: what is done, the elapsed time, and the limit or the expected end.
_PROGRESS = re.compile(r".*, \d+ s(| of at most .*|, .* left)")

#: The exit codes of answers about a property, by their status and by the word for a query.
CODE = {"robust": 0, "unsat": 0, "not_robust": 1, "sat": 1, "unknown": 3, "timeout": 3}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Capture: TypeAlias = pytest.CaptureFixture[str]


def without_progress(errors: str) -> str:
    """Return what a process wrote to stderr, without progress, which slow machines print."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if not _PROGRESS.fullmatch(line.rstrip("\n")))


def command_line(
    monkeypatch: pytest.MonkeyPatch, capture: Capture, *first: str
) -> Callable[..., Outcome]:
    """Return what runs `bnncert FIRST ...`; an exception that escapes fails the test.

    Progress is not printed, because it depends on the speed of the machine.
    """
    monkeypatch.setattr(progress, "LINE_SECONDS", 600.0)

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr("sys.argv", ["bnncert", *first, *map(str, arguments)])
        capture.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capture.readouterr()
        assert isinstance(stopped.value.code, int)
        return Outcome(stopped.value.code, captured.out, captured.err)

    return call
