from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bnncert import cli
from tests.experiment.tiny import write_files


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with the tiny experiment in it."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


@pytest.fixture
def experiment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Return what runs `bnncert experiment` inside this process."""

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["bnncert", "experiment", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        assert isinstance(stopped.value.code, int)
        return Outcome(stopped.value.code, captured.out, captured.err)

    return call
