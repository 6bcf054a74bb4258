"""The point, its class and its ball, as the options of verify, bound and radius describe them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.in_process import Outcome, command_line
from tests.test_cli import DIAMOND, Run, read_json, write_network

#: Each command with the radius that it needs.
ASKING = {
    "verify": ("verify", "net.npz", "--radius", "0.1"),
    "bound": ("bound", "net.npz", "--radius", "0.1", "--method", "interval"),
    "radius": ("radius", "net.npz", "--max", "0.1"),
}

#: The network answers 0, 0 and 1; the true classes say 0, 2 and 1.
POINTS = np.array([[1.0, 0.0], [1.5, 0.25], [-1.0, 0.0]])
TRUE_CLASSES = np.array([0, 2, 1])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "120")
    return command_line(monkeypatch, capfd)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0)
    np.save(tmp_path / "batch.npy", POINTS)
    np.save(tmp_path / "one.npy", POINTS[:1])
    return tmp_path


def one_line(outcome: Outcome) -> str:
    assert outcome.code == 2, outcome
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    return outcome.err


# --- which point -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ASKING)
def test_a_batch_without_index_is_refused(run: Run, folder: Path, command: str) -> None:
    message = one_line(run(*ASKING[command], "--input", "batch.npy"))
    assert "batch.npy: holds 3 points; choose one with --index (0 to 2)" in message


@pytest.mark.parametrize("command", ASKING)
def test_a_batch_of_one_point_needs_no_index(run: Run, folder: Path, command: str) -> None:
    outcome = run(*ASKING[command], "--input", "one.npy")
    assert outcome.code == 0
    assert "net.npz, one.npy: label 0" in outcome.out


@pytest.mark.parametrize("command", ASKING)
def test_the_first_line_says_which_point_of_how_many(run: Run, folder: Path, command: str) -> None:
    outcome = run(*ASKING[command], "--input", "batch.npy", "--index", "1", "--json", "a.json")
    assert outcome.code == 0
    assert "net.npz, batch.npy [1] (of 3 points): label 0" in outcome.out
    assert read_json(folder / "a.json")["input"] == "batch.npy [1]"
