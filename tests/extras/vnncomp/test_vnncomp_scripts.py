"""The scripts of VNN-COMP, called as the competition does: from elsewhere, from a copy of the tool.

The copy has no environment of its own, so the interpreter of the tests stands in for it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from tests.competition_files import (
    assert_witness,
    diamond,
    executed,
    parse_result,
    square,
    write_hard,
)

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists() or shutil.which("bash") is None,
    reason="the competition runs on Linux",
)


@dataclass(frozen=True)
class Place:
    """A copy of the tool, a benchmark, and the folder that the scripts are called from."""

    tool: Path
    files: Path
    here: Path

    def environment(self) -> dict[str, str]:
        # Nothing of the repository: the scripts have to find the copy on their own.
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return {**kept, "BNNCERT_PYTHON": sys.executable}

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.tool / "vnncomp" / script), *arguments],
            cwd=self.here,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, script: str, *arguments: str) -> tuple[int, str]:
        """Return the exit code and what was said on stderr."""
        process = self.start(script, *arguments)
        _, complaint = process.communicate(timeout=120)
        return process.returncode, complaint

    def run(self, model: str, vnnlib: str, limit: str, out: str = "out.txt") -> tuple[int, str]:
        files = (str(self.files / model), str(self.files / vnnlib))
        return self.call("run_instance.sh", "v1", "squares", *files, out, limit)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    base = tmp_path_factory.mktemp("competition")
    found = Place(base / "my tools" / "bnncert", base / "the benchmarks", base / "started here")
    for folder in ("src", "vnncomp"):
        # What is compiled already, also by numba, is copied with the times of the files.
        ignored = shutil.ignore_patterns("data")
        shutil.copytree(ROOT / folder, found.tool / folder, ignore=ignored)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, found.tool / file)
    found.files.mkdir()
    diamond().save(found.files / "net.onnx")
    content = (found.files / "net.onnx").read_bytes()
    (found.files / "half.onnx").write_bytes(content[: len(content) // 2])
    write_hard(found.files / "hard.onnx", found.files / "hard.vnnlib")
    (found.files / "far.vnnlib").write_text(square(0.6))
    (found.files / "near.vnnlib").write_text(square(0.3))
    found.here.mkdir()
    # The working directory may hold anything.
    for name in ("bnncert", "json", "numpy"):
        (found.here / f"{name}.py").write_text("raise SystemError('taken from the wrong place')\n")
    return found


def test_sat_comes_with_a_witness(place: Place, tmp_path: Path) -> None:
    out = tmp_path / "a result.txt"
    assert place.run("net.onnx", "far.vnnlib", "60", str(out)) == (0, "")
    found = parse_result(out)
    assert found.word == "sat"
    content = (place.files / "net.onnx").read_bytes()
    assert_witness(found, content, [0.4, -0.6], [1.6, 0.6])
    assert list(tmp_path.iterdir()) == [out]


def test_unsat_next_to_where_it_was_called(place: Place) -> None:
    assert place.run("net.onnx", "near.vnnlib", "60") == (0, "")
    assert parse_result(place.here / "out.txt").word == "unsat"


SECOND = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [2]) (declare-output Y real [3]))
(declare-network g (equal-to f) (declare-input Z real [2]) (declare-output W real [3]))
(assert (and (>= X[0] 0.0) (<= X[0] 1.0) (>= X[1] 0.0) (<= X[1] 0.25)))
(assert (and (== Z[1] X[1]) (>= Z[0] X[0]) (<= Z[0] 1.0)))
(assert (> %s[0] %s[0]))
"""


@pytest.mark.skipif(importlib.util.find_spec("vnnlib") is None, reason="needs the extra 'vnnlib'")
@pytest.mark.parametrize(("one", "two", "word"), [("Y", "W", "unsat"), ("W", "Y", "sat")])
def test_two_networks_in_a_list(place: Place, one: str, two: str, word: str) -> None:
    """Score 0 does not decrease with input 0; paths of the list are relative to the benchmark."""
    folder = place.files / "vnnlib"
    folder.mkdir(exist_ok=True)
    (folder / "monotone.vnnlib").write_text(SECOND % (one, two))
    models = "[('f', 'net.onnx'), ('g', 'net.onnx')]"
    arguments = ("v1", "pairs", models, str(folder / "monotone.vnnlib"))
    if word == "unsat":
        assert place.call("prepare_instance.sh", *arguments) == (0, "")
    assert place.call("run_instance.sh", *arguments, "out.txt", "60") == (0, "")
    lines = (place.here / "out.txt").read_text().splitlines()
    assert lines[0] == word
    if word == "sat":
        heads = ["X real [2]", "Y real [3]", "Z real [2]", "W real [3]"]
        assert [lines[k] for k in (1, 4, 8, 11)] == heads and len(lines) == 15
        x, y, z, w = (
            [Fraction(v) for v in lines[a:b]] for a, b in ((2, 4), (5, 8), (9, 11), (12, 15))
        )
        assert x[1] == z[1] and 0 <= x[0] <= z[0] <= 1
        content = (place.files / "net.onnx").read_bytes()
        assert executed(content, x) == y and executed(content, z) == w and w[0] > y[0]


def test_a_limit_that_nothing_can_keep_is_a_timeout(place: Place) -> None:
    started = time.monotonic()
    assert place.run("hard.onnx", "hard.vnnlib", "0.01") == (0, "")
    assert time.monotonic() - started < 30
    assert parse_result(place.here / "out.txt").word == "timeout"


def test_a_broken_model_is_one_line(place: Place) -> None:
    code, complaint = place.run("half.onnx", "far.vnnlib", "60")
    assert code != 0
    assert complaint.count("\n") == 1
    assert "half.onnx" in complaint
    assert parse_result(place.here / "out.txt").word == "unknown"


@pytest.mark.parametrize(
    ("model", "vnnlib", "words"),
    [
        ("half.onnx", "far.vnnlib", "half.onnx"),
        ("net.onnx", "hard.vnnlib", "declares 784 inputs, the network has 2"),
    ],
)
def test_preparing_tells_what_cannot_be_answered(
    place: Place, model: str, vnnlib: str, words: str
) -> None:
    files = (str(place.files / model), str(place.files / vnnlib))
    code, complaint = place.call("prepare_instance.sh", "v1", "squares", *files)
    # Another exit code would make the competition skip the rest of the category.
    assert code == 0
    assert words in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("install_tool.sh", (), "no arguments"),
        ("install_tool.sh", ("v2",), "version is 'v2', expected v1"),
        ("install_tool.sh", ("v1", "x"), "2 arguments, expected 1"),
        ("prepare_instance.sh", ("v1", "c", "a.onnx"), "3 arguments, expected 4"),
        ("prepare_instance.sh", ("v0", "c", "a", "b"), "version is 'v0', expected v1"),
        ("run_instance.sh", ("v1", "c", "a", "b", "out"), "5 arguments, expected 6"),
        ("run_instance.sh", ("V1", "c", "a", "b", "out", "5"), "version is 'V1', expected v1"),
        ("run_instance.sh", ("v1", "c", "a", "b", "no/out", "5"), "no/out: cannot be written"),
    ],
)
def test_wrong_arguments_are_one_line(
    place: Place, script: str, arguments: tuple[str, ...], words: str
) -> None:
    code, complaint = place.call(script, *arguments)
    assert code == 1
    assert complaint.splitlines()[-1].startswith(f"{script}: {words}")


def test_without_an_installation_the_scripts_say_so(place: Place) -> None:
    environment = place.environment()
    del environment["BNNCERT_PYTHON"]
    script = str(place.tool / "vnncomp" / "run_instance.sh")
    ended = subprocess.run(
        [script, "v1", "c", "a.onnx", "b.vnnlib", "out.txt", "5"],
        cwd=place.here,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "run install_tool.sh v1 first" in ended.stderr
    assert parse_result(place.here / "out.txt").word == "unknown"


def test_installing_accepts_an_interpreter_that_has_everything(place: Place) -> None:
    assert place.call("install_tool.sh", "v1") == (0, "")
    assert not (place.tool / ".venv").exists()


def test_preparing_ends_what_this_tool_left_and_nothing_else(place: Place) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(100)"]
    ours = {**os.environ, "BNNCERT_VNNCOMP_HOME": str(place.tool.resolve())}
    other_tool = {**os.environ, "BNNCERT_VNNCOMP_HOME": f"{place.tool.resolve()}-2"}
    left = subprocess.Popen(sleep, env=ours)
    others = [
        subprocess.Popen(sleep, env=other_tool),
        subprocess.Popen(sleep),
        subprocess.Popen(["sleep", "100"], env=ours),
    ]
    try:
        # The environment is there to be read only once the other program has begun.
        time.sleep(0.3)
        files = (str(place.files / "net.onnx"), str(place.files / "far.vnnlib"))
        assert place.call("prepare_instance.sh", "v1", "squares", *files) == (0, "")
        assert left.wait(10) == -signal.SIGKILL
        assert [process.poll() for process in others] == [None, None, None]
    finally:
        for process in (left, *others):
            process.kill()
            process.wait()


def test_a_hard_kill_leaves_a_valid_file_and_no_process(place: Place, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("no_result_in_file\n")
    files = (str(place.files / "hard.onnx"), str(place.files / "hard.vnnlib"))
    process = place.start("run_instance.sh", "v1", "squares", *files, str(out), "300")
    until = time.monotonic() + 60
    while not (at_work := workers(place.tool)):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    assert parse_result(out).word == "unknown"
    until = time.monotonic() + 30
    while at_work & workers(place.tool) and time.monotonic() < until:
        time.sleep(0.05)
    assert not at_work & workers(place.tool)


def workers(tool: Path) -> set[int]:
    """Return the processes that verify for this copy of the tool."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = b"answer_request" in (process / "cmdline").read_bytes()
            mark = f"BNNCERT_VNNCOMP_HOME={tool.resolve()}\0".encode()
            if is_worker and mark in (process / "environ").read_bytes() + b"\0":
                found.add(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("bnncert.cli.vnncomp_instance", "numpy"),
        ("bnncert.extras.vnncomp.executed", "bnncert.proofs.writing"),
        ("bnncert.extras.vnncomp.executed", "bnncert.kernel"),
    ],
)
def test_start_up_imports_little(module: str, unwanted: str) -> None:
    """Start-up counts in the competition."""
    code = f"import sys, {module}; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
