"""Fixtures of the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.diamond import TIED, Run, diamond_folder, write_network
from tests.in_process import command_line


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return what runs the command line inside this process (an escaping exception fails)."""

    return command_line(monkeypatch, capfd)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with networks and points in it, which is also the working directory."""
    write_network(tmp_path / "tied.npz", TIED, input_lo=-2.0, input_hi=2.0)
    return diamond_folder(tmp_path, monkeypatch)
