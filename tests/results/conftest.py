from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.in_process import Outcome, command_line
from tests.results.tiny import write_files


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

    return command_line(monkeypatch, capfd, "experiment")
