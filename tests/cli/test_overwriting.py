"""No command writes onto a file that it reads, or two results into one file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.results.labelled_points import read_data
from bnncert.results.plan import plan_run
from bnncert.results.runner import run_plan
from bnncert.results.store import ResultsFile
from tests.cli.diamond import DECLARATIONS, DIAMOND, NOT_CLASS_0, write_network
from tests.in_process import Outcome, command_line

Run = Callable[..., Outcome]

ABOUT_X = ("net.npz", "--input", "x.npz:x", "--label", "0", "--radius", "0.4")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return command_line(monkeypatch, capsys)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every kind of file that is read."""
    folder = tmp_path_factory.mktemp("originals")
    write_network(folder / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0)
    network, point = bnncert.load(folder / "net.npz"), np.array([1.0, 0.0])
    network.save(folder / "net.onnx")
    np.savez(folder / "x.npz", x=point)
    np.savez(folder / "y.npz", y=np.array([0]))
    box = "(assert (>= X_0 0.9))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 0.1))\n"
    (folder / "q.vnnlib").write_text(DECLARATIONS + box + NOT_CLASS_0)
    (folder / "instances.csv").write_text("net.onnx,q.vnnlib,10\n")
    (folder / "results.csv").write_text("net.onnx,q.vnnlib,10\n")
    part = {"networks": ["n"], "data": "x.npz:x", "radii": [0.1], "methods": ["interval"]}
    config = {"networks": [{"name": "n", "file": "net.npz"}], "parts": [part]}
    (folder / "config.json").write_text(json.dumps(config))
    with ResultsFile(folder / "r.sqlite") as results:
        run_plan(plan_run(network, read_data(str(folder / "x.npz")), [0.1]), results)
    ball = bnncert.Ball("linf", point, 0.4)
    bnncert.verify(network, ball, 0, certificate=folder / "c.bnncert")
    return folder


@pytest.fixture
def folder(tmp_path: Path, originals: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder, also the working directory, with links in it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    Path("symbolic").symlink_to("net.npz")
    os.link("net.npz", "hard")
    Path("answers").mkdir()
    Path("answers/summary.csv").symlink_to("../r.sqlite")
    Path("answers/table.tex").symlink_to("../r.sqlite")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "line",
    [
        "verify NET IN --json net.npz",
        "verify NET IN --json symbolic",
        "verify NET IN --json hard",
        "verify NET IN --json answers/../net.npz",
        "verify NET IN --json x.npz",
        "verify NET IN --certificate net.npz",
        "verify NET IN --certificate x.npz",
        "verify NET IN --witness net.npz",
        "run net.npz --data x.npz:x --labels y.npz:y --radius 0.1 --out y.npz",
        "verify net.onnx q.vnnlib --json q.vnnlib",
        "verify net.onnx q.vnnlib --witness net.onnx",
        "bound NET IN --json net.npz",
        "bound NET IN --json x.npz",
        "radius net.npz --input x.npz:x --json net.npz",
        "radius net.npz --input x.npz:x --json x.npz",
        "radius net.npz --input x.npz:x --exact --grid 1 --certificate net.npz",
        "radius net.npz --input x.npz:x --exact --grid 1 --resume r.sqlite --certificate r.sqlite",
        "info net.npz --json net.npz",
        "check c.bnncert --model net.npz --json net.npz",
        "check c.bnncert --model net.npz --json c.bnncert",
        "convert net.npz net.npz",
        "convert symbolic net.npz",
        "convert net.onnx net.npz --layers net.npz",
        "run net.npz --data x.npz:x --radius 0.1 --out net.npz",
        "run net.npz --data x.npz:x --radius 0.1 --out x.npz",
        "experiment config.json --out config.json",
        "experiment config.json --out net.npz",
        "experiment config.json --out x.npz",
        "report r.sqlite -o r.sqlite",
        "report r.sqlite --csv answers",
        "report r.sqlite --latex answers",
        "vnncomp results.csv --out .",
        "vnncomp-instance net.onnx q.vnnlib net.onnx 10",
        "vnncomp-instance net.onnx q.vnnlib q.vnnlib 10",
        "train --data x.npz --out x.npz --force",
        "train --data x.npz --out y.npz --checkpoint x.npz",
    ],
)
def test_a_file_that_is_read_is_not_written(run: Run, folder: Path, line: str) -> None:
    before = content(folder)
    words = line.replace("NET IN", " ".join(ABOUT_X)).split()
    ended = run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(": cannot be written (this command reads it)\n")
    assert ended.err.count("\n") == 1
    assert content(folder) == before


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("verify NET IN --json new --certificate new", "new"),
        ("verify NET IN --witness ./new --json new", "new"),
        ("verify NET IN --save-counterexample new.npy --json new.npy", "new.npy"),
        ("verify NET IN --witness answers/../new --certificate new", "new"),
        ("train --data x.npz --out new.npz --checkpoint new.npz", "new.npz"),
    ],
)
def test_two_results_do_not_go_to_one_file(run: Run, folder: Path, line: str, name: str) -> None:
    before = content(folder)
    ended = run(*line.replace("NET IN", " ".join(ABOUT_X)).split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"bnncert: {name}: cannot be written (another output goes there)\n"
    assert content(folder) == before


def test_a_certificate_does_not_replace_the_network_in_python_either(folder: Path) -> None:
    before = content(folder)
    network, ball = bnncert.load("net.npz"), bnncert.Ball("linf", np.array([1.0, 0.0]), 0.4)
    with pytest.raises(bnncert.InputError, match="hard: cannot be written"):
        bnncert.verify(network, ball, 0, certificate="hard")
    assert content(folder) == before


def test_devices_may_be_named_twice(run: Run, folder: Path) -> None:
    ended = run("verify", *ABOUT_X, "--json", os.devnull, "--certificate", os.devnull)
    assert ended.code == 0
    assert not Path(os.devnull).is_file()


def test_training_does_not_replace_a_network_without_being_told_to(run: Run, folder: Path) -> None:
    before = content(folder)
    ended = run("train", "--data", "x.npz", "--out", "net.npz")
    assert ended.code == 2
    assert ended.err.startswith("bnncert: net.npz: exists already; give --force to replace it")
    # With it, the next thing that is wrong is the data.
    ended = run("train", "--data", "x.npz", "--out", "net.npz", "--force")
    assert ended.code == 2
    assert ended.err.startswith("bnncert: x.npz")
    assert content(folder) == before
