"""The command line as a process: help, full disks and closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.diamond import Run, assert_one_line, environment
from tests.in_process import Outcome


def test_help_is_shown_and_is_not_an_error(run: Run) -> None:
    answer = run("--help")
    assert (answer.code, answer.err) == (0, "")
    for name in ("verify", "bound", "info", "methods", "convert", "demo"):
        assert re.search(rf"^\W*{name} ", answer.out, re.MULTILINE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bnncert", "info", "net.npz"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert_one_line(Outcome(done.returncode, "", done.stderr), "space")


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bnncert", "methods"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
