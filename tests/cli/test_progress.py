"""Progress on a terminal and in a pipe."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from bnncert.cli import progress
from bnncert.cli.consoles import PlainConsole
from bnncert.cli.progress import LiveLine
from tests.cli.diamond import HARD, Run, command, read_json
from tests.cli.pseudo_terminal import on_terminal, screen


def test_the_screen_of_a_terminal_follows_the_control_sequences() -> None:
    assert screen("one\r\ntwo\r\x1b[2Kthree\r\n", 10) == ["one", "three", ""]
    assert screen("abcdef", 4) == ["abcd", "ef"]
    assert screen("one\r\ntwo\x1b[1A\r\x1b[2Kfour", 10) == ["four", "two"]


def test_a_terminal_shows_one_live_line_that_vanishes(tmp_path: Path) -> None:
    question = ("verify", "demo:dense", "demo:2", "--radius", "1px")
    shown = on_terminal(*question, "--timeout", "3", cwd=tmp_path)
    assert shown.code == 3
    # While the command runs: the elapsed time, the limit and a stage.
    assert re.search(r"\d+ s of at most 3 s.*(attack|sdp|lp|bab|presolve)", shown.raw)
    text = "\n".join(shown.lines)
    assert "of at most" not in text
    assert shown.lines[0].startswith("mnist_dense.npz")
    assert shown.lines[1].startswith("target")
    assert "timeout in" in text


def test_a_pipe_gets_a_line_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.15)
    answer = run("verify", *HARD, "--timeout", "1")
    assert answer.code == 3
    lines = answer.err.splitlines()
    assert 3 <= len(lines) <= 7
    assert all(re.search(r"\d s of at most 1 s$", line) for line in lines)
    assert "of at most" not in answer.out


def test_a_short_command_in_a_pipe_prints_no_progress(folder: Path) -> None:
    answer = command("verify", "net.npz", "--input", "x.npy", "--radius", "0.25", cwd=folder)
    assert (answer.code, answer.err) == (0, "")


def test_the_lines_of_a_long_run_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = PlainConsole()
    console.file = text
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    monkeypatch.setattr(progress, "LINE_SHARE", 1.0)
    with LiveLine(console).shown() as line:
        line.show("answering", 3, 7, "about 5 s left")
        time.sleep(0.7)
    lines = text.getvalue().splitlines()
    # The pause doubles: 0.02, 0.02, 0.04, 0.08, .. seconds.
    assert 3 <= len(lines) <= 8
    assert lines[0] == "answering (3 of 7), 0 s, about 5 s left"


def test_a_quiet_console_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    text = io.StringIO()
    console = PlainConsole(quiet=True)
    console.file = text
    with LiveLine(console, limit=5.0).shown() as line, line.paused():
        line("sdp", 0, 9)
        time.sleep(0.1)
    assert text.getvalue() == ""


TRAINING = """
import time
from types import SimpleNamespace
from bnncert.cli.consoles import PlainConsole
from bnncert.cli.consoles import Consoles
from bnncert.cli.train import _watch
from bnncert.extras.training.training_options import TrainingOptions

known = dict(steps=4, loss=0.25, accuracy=0.9, zeros=0.34, seconds=1.0)
consoles = Consoles(PlainConsole(), PlainConsole(), PlainConsole(stderr=True), False, False)
with _watch(consoles, TrainingOptions(epochs=3)) as report:
    for epoch in range(3):
        for step in range(1, 5):
            report(SimpleNamespace(epoch=epoch, step=step, finished=False, **known))
            time.sleep(0.15)
        end = dict(open_share=None, held_out=None, certified=None, finished=True)
        report(SimpleNamespace(epoch=epoch + 1, step=4, **end, **known))
print("the end")
"""


@pytest.mark.parametrize("columns", [60, 120])
def test_training_leaves_one_line_for_each_epoch_on_a_terminal(
    tmp_path: Path, columns: int
) -> None:
    shown = on_terminal(cwd=tmp_path, columns=columns, python=TRAINING)
    assert shown.code == 0
    assert re.search(r"epoch 1/3: loss", shown.raw)
    assert re.search(r"\d s left", shown.raw)
    lines = [line for line in shown.lines if line]
    epochs = [line for line in lines if line.startswith("epoch")]
    assert [line[:9] for line in epochs] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all("  loss 0.2500  accuracy 90.00 %" in line for line in epochs)
    assert lines[-1] == "the end"
    assert "left" not in "".join(lines)


@pytest.mark.parametrize(
    "asked",
    [
        ("explain", "net.npz", "x.npy"),
        ("verify", "net.npz", "x.npy", "--radius", "0.1"),
    ],
    ids=lambda asked: asked[0],
)
def test_json_for_a_file_is_not_written_to_the_terminal(
    folder: Path, asked: tuple[str, ...]
) -> None:
    """A live line redirects the standard output to the terminal while it is shown."""
    with (folder / "out.json").open("wb") as file:
        shown = on_terminal(*asked, "--json", "-", cwd=folder, out=file.fileno())
    assert shown.code == 0
    assert "status" in read_json(folder / "out.json")
    assert '"status"' not in shown.raw
