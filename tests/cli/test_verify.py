"""`bnncert verify`: answers known by hand, JSON, VNN-LIB queries and points."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bnncert
from bnncert.engine.verdict import Result
from bnncert.model.loading import load_demo_images
from tests.brute_force import TinyNetwork
from tests.cli.diamond import (
    DIAMOND,
    HARD,
    TIED,
    Run,
    assert_replays,
    command,
    environment,
    possible_scores,
    query,
    read_json,
    write_network,
)
from tests.in_process import CODE


def test_bundled_networks_and_images_have_names(run: Run) -> None:
    answer = run("verify", "demo:sparse", "demo:0", "--radius", "0.1px", "--rivals", "3")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1].startswith("robust in ")
    wrong = run("verify", "demo:other", "demo:0", "--radius", "0.1px")
    assert wrong.code == 2 and wrong.err.count("\n") == 1
    assert "demo:other: expected demo:sparse, demo:dense, demo:certified, or a file" in wrong.err


def test_a_robust_point_is_robust_with_its_margin(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", "--input", "x.npy", "--label", "0", "--radius", "0.25")
    assert (answer.code, answer.err) == (0, "")
    first, *_, last = answer.out.splitlines()
    assert first == (
        "net.npz, x.npy: label 0, L-inf ball of radius 0.25, data in [-2, 2]; "
        "time limit 60 s (--timeout none lifts it)"
    )
    assert re.fullmatch(r"robust in \d+\.\d\d s, margin at least 2\.5", last)
    assert len(re.findall(r"^class [12] +robust ", answer.out, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("norm", "radius", "status"),
    [
        ("linf", "0.45", "robust"),
        ("linf", "0.6", "not_robust"),
        ("l2", "0.6", "robust"),
        ("l2", "0.8", "not_robust"),
        ("l1", "0.8", "robust"),
        ("l1", "1.25", "not_robust"),
    ],
)
def test_the_distance_to_the_border_depends_on_the_norm(
    folder: Path, run: Run, norm: str, radius: str, status: str
) -> None:
    question = ("--input", "x.npy", "--norm", norm, "--radius", radius, "--json", "out.json")
    assert run("verify", "net.npz", *question).code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    assert tree["label"] == 0
    assert tree["vnncomp"] == {"robust": "unsat", "not_robust": "sat"}[status]
    if status == "robust":
        assert tree["counterexample"] is None
        assert tree["lower"] == 2.5
    else:
        rival = int(tree["counterexample"]["target"].removeprefix("class "))
        assert_replays(tree, DIAMOND, rival)
        assert tree["upper"] == {1: -1.0, 2: -1.5}[rival]


@pytest.mark.parametrize(
    ("named", "status", "rivals"),
    [
        ("all", "not_robust", [1, 2]),
        ("1", "not_robust", [1]),
        ("2", "robust", [2]),
        ("runner-up", "robust", [2]),
    ],
)
def test_rivals_are_chosen(
    folder: Path, run: Run, named: str, status: str, rivals: list[int]
) -> None:
    # Around (1, -1/2) only h0 can flip within 1/2: class 1 wins there, class 2 never does.  The
    # scores at the centre are 3, 0, 0.5, so the runner-up is class 2.
    np.save(folder / "low.npy", np.array([1.0, -0.5]))
    question = ("--input", "low.npy", "--radius", "0.5", "--rivals", named)
    assert run("verify", "net.npz", *question, "--json", "out.json").code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    assert [t["rival"] for t in tree["targets"]] == rivals


@pytest.mark.parametrize("method", ["auto", "milp"])
@pytest.mark.parametrize(
    ("sign_zero", "status"), [("plus", "robust"), ("minus", "not_robust"), ("either", "not_robust")]
)
@pytest.mark.parametrize(("norm", "radius"), [("linf", "0.5"), ("l1", "1")])
def test_sign_zero_decides_when_the_border_is_only_touched(
    folder: Path, run: Run, method: str, sign_zero: str, status: str, norm: str, radius: str
) -> None:
    question = ("--input", "x.npy", "--norm", norm, "--radius", radius, "--rivals", "1")
    settings = ("--sign-zero", sign_zero, "--method", method, "--json", "out.json")
    assert run("verify", "net.npz", *question, *settings).code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    assert tree["sign_zero"] == sign_zero
    if status == "not_robust":
        assert_replays(tree, TinyNetwork(DIAMOND.weights, DIAMOND.biases, sign_zero), 1)


@pytest.mark.parametrize(("ties", "status"), [("violation", "not_robust"), ("robust", "robust")])
def test_an_equal_score_counts_as_ties_says(folder: Path, run: Run, ties: str, status: str) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--rivals", "1", "--ties", ties)
    assert run("verify", "tied.npz", *question, "--json", "out.json").code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    if status == "not_robust":
        assert_replays(tree, TIED, 1)
        assert tree["counterexample"]["value_exact"] == "0"


def test_a_wrong_label_fails_at_the_centre(folder: Path, run: Run) -> None:
    question = ("--input", "x.npy", "--radius", "0", "--label", "2")
    answer = run("verify", "net.npz", *question, "--json", "out.json")
    tree = read_json(folder / "out.json")
    assert (answer.code, tree["status"], tree["label"]) == (1, "not_robust", 2)
    assert tree["counterexample"]["input"] == [1.0, 0.0]
    assert_replays(tree, DIAMOND, 0, label=2)
    assert "centre" in answer.out


def test_clip_replaces_the_data_box(folder: Path, run: Run) -> None:
    # With x1 >= 0 only h1 can flip, and within 0.6 it does: class 2 wins, class 1 never.
    question = ("--input", "x.npy", "--radius", "0.6", "--clip", "0", "1.5")
    assert run("verify", "net.npz", *question, "--json", "out.json").code == 1
    tree = read_json(folder / "out.json")
    assert tree["region"]["clip_lo"] == [0.0, 0.0]
    assert tree["region"]["clip_hi"] == [1.5, 1.5]
    assert tree["status"] == "not_robust"
    assert_replays(tree, DIAMOND, 2)
    assert (
        run("verify", "net.npz", *question, "--rivals", "1")
        .out.splitlines()[-1]
        .startswith("robust in")
    )


def test_json_holds_what_the_terminal_shows(folder: Path, run: Run) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--method", "milp", "--seed", "7")
    answer = run("verify", "net.npz", *question, "--json", "out.json")
    tree = read_json(folder / "out.json")
    assert answer.out.startswith(
        "net.npz, x.npy: label 0 (the network's own answer), L-inf ball of radius 0.6"
    )
    assert (tree["model"], tree["input"], tree["label"]) == ("net.npz", "x.npy", 0)
    assert (tree["region"]["norm"], tree["region"]["radius"]) == ("linf", 0.6)
    assert (tree["method"], tree["seed"]) == ("milp", 7)
    assert tree["bnncert"] == bnncert.__version__
    assert tree["network_hash"] == bnncert.load("net.npz").content_hash
    rows = re.findall(r"^(class \d) +(robust|not robust) .*?(\S+) *$", answer.out, re.MULTILINE)
    assert rows == [
        (t["target"], t["status"].replace("_", " "), t["stage"]) for t in tree["targets"]
    ]
    assert len(rows) == 2
    last = answer.out.splitlines()[-1]
    assert last.startswith(f"not robust in {tree['seconds']:.2f} s")
    found = tree["counterexample"]
    assert f"counterexample for {found['target']}, margin {found['value']:g}" in last
    assert f"replayed in {' and '.join(found['replayed_in'])} arithmetic" in last


def test_json_on_stdout_is_all_of_stdout(folder: Path) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--rivals", "1", "--json", "-")
    answer = command("verify", "net.npz", *question, cwd=folder)
    assert answer.code == 1
    tree = json.loads(answer.out)
    assert tree["status"] == "not_robust"
    assert_replays(tree, DIAMOND, 1)
    assert "counterexample for class 1" in answer.err


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("radius", "word"), [("0.25", "unsat"), ("0.625", "sat")])
def test_a_query_is_answered_in_one_word(
    folder: Path, run: Run, compressed: bool, radius: str, word: str
) -> None:
    text = query(radius).encode()
    name = "q.vnnlib.gz" if compressed else "q.vnnlib"
    (folder / name).write_bytes(gzip.compress(text) if compressed else text)
    answer = run("verify", "net.npz", name, "--json", "out.json")
    assert (answer.code, answer.out, answer.err) == (CODE[word], word + "\n", "")
    tree = read_json(folder / "out.json")
    assert (tree["vnncomp"], tree["specification"]) == (word, name)


def test_a_query_that_a_method_leaves_open_is_unknown(folder: Path, run: Run) -> None:
    (folder / "q.vnnlib").write_text(query("0.625"))
    answer = run("verify", "net.npz", "q.vnnlib", "--method", "interval")
    assert (answer.code, answer.out) == (3, "unknown\n")


def test_a_query_with_an_empty_region_is_unsat(folder: Path, run: Run) -> None:
    (folder / "q.vnnlib").write_text(query("0.625") + "(assert (<= X_0 0))\n")
    answer = run("verify", "net.npz", "q.vnnlib", "--json", "-")
    assert (answer.code, answer.err) == (0, "unsat\n")
    assert json.loads(answer.out)["notes"] == ["the input region is empty"]


def test_the_witness_file_is_what_vnncomp_reads(folder: Path, run: Run) -> None:
    (folder / "sat.vnnlib").write_text(query("0.625"))
    (folder / "unsat.vnnlib").write_text(query("0.25"))
    assert run("verify", "net.npz", "unsat.vnnlib", "--witness", "w.txt").code == 0
    assert (folder / "w.txt").read_text() == "unsat\n"
    assert run("verify", "net.npz", "sat.vnnlib", "--witness", "w.txt").code == 1
    word, *pairs = (folder / "w.txt").read_text().splitlines()
    assert word == "sat"
    assert pairs[0].startswith("((") and pairs[-1].endswith("))")
    values = [re.fullmatch(r"\(?\((X|Y)_(\d+) (-?\d+\.\d+)\)\)?", line) for line in pairs]
    found = [(m[1] + m[2], Fraction(m[3])) for m in values if m is not None]
    assert [name for name, _ in found] == ["X0", "X1", "Y0", "Y1", "Y2"]
    x, y = [v for _, v in found[:2]], tuple(v for _, v in found[2:])
    assert all(abs(a - c) <= Fraction("0.625") for a, c in zip(x, (1, 0), strict=True))
    assert possible_scores(DIAMOND, x) == {y}
    assert max(y[1:]) >= y[0]


def test_an_onnx_model_is_replayed_in_onnxruntime(folder: Path, run: Run) -> None:
    pytest.importorskip("onnxruntime")
    assert run("convert", "net.npz", "net.onnx").code == 0
    question = ("--input", "x.npy", "--radius", "0.6", "--json", "out.json")
    assert run("verify", "net.onnx", *question).code == 1
    tree = read_json(folder / "out.json")
    assert tree["counterexample"]["replayed_in"] == ["exact", "onnxruntime"]
    rival = int(tree["counterexample"]["target"].removeprefix("class "))
    assert_replays(tree, DIAMOND, rival)
    values = np.array(tree["counterexample"]["input"])
    np.testing.assert_array_equal(values, values.astype(np.float32))


def center(folder: Path, run: Run, *arguments: str) -> list[float]:
    question = ("--radius", "0.01", "--method", "interval", "--json", "out.json")
    answer = run("verify", "net.npz", "--input", *arguments, *question)
    assert (answer.code, answer.err) == (0, "")
    tree = read_json(folder / "out.json")
    points: list[float] = tree["region"]["center"]
    return points


def test_points_come_from_npy_npz_and_images(folder: Path, run: Run) -> None:
    np.save(folder / "batch.npy", np.array([[1.0, 0.0], [0.5, -0.25]]))
    np.savez(folder / "some.npz", first=np.array([1.5, 1.0]), a=np.array([[1.0, 0.75]]))
    # Bytes are pixels: 0..255 goes linearly to the data box [-2, 2].
    Image.fromarray(np.array([[255, 51]], dtype=np.uint8)).save(folder / "image.png")
    np.save(folder / "bytes.npy", np.array([0, 204], dtype=np.uint8))
    assert center(folder, run, "batch.npy", "--index", "1") == [0.5, -0.25]
    assert center(folder, run, "some.npz:first") == [1.5, 1.0]
    assert center(folder, run, "some.npz:a", "--index", "0") == [1.0, 0.75]
    assert center(folder, run, "image.png") == pytest.approx([2.0, -1.2], abs=1e-12)
    assert center(folder, run, "bytes.npy") == pytest.approx([-2.0, 1.2], abs=1e-12)


def test_names_are_printed_as_they_are(folder: Path, run: Run) -> None:
    # ":a:" is an emoji and "[red]" a colour to the library that prints tables.
    write_network(folder / "[red]net.npz", DIAMOND)
    np.savez(folder / "some.npz", a=np.array([1.0, 0.0]))
    answer = run("verify", "[red]net.npz", "--input", "some.npz:a", "--radius", "0.25")
    assert answer.out.startswith("[red]net.npz, some.npz:a: label 0 (the network's own answer), ")
    assert run("info", "[red]net.npz").out.startswith("[red]net.npz (npz)")


def test_a_timeout_names_the_start_up_that_the_limit_includes(folder: Path) -> None:
    answer = command("verify", *HARD, "--method", "milp", "--timeout", "0.01", cwd=folder)
    assert answer.code == 3
    start_up = re.search(r"timeout in .* after (\S+) s of start-up, which the limit", answer.out)
    assert start_up is not None and float(start_up[1]) > 0.01


def test_the_time_limit_ends_a_hard_run_with_timeout(folder: Path, run: Run) -> None:
    answer = run("verify", *HARD, "--method", "milp", "--timeout", "0.6", "--json", "out.json")
    assert (answer.code, answer.err) == (3, "")
    tree = read_json(folder / "out.json")
    assert (tree["status"], tree["vnncomp"]) == ("timeout", "timeout")
    assert 0.3 <= tree["seconds"] <= 2.6
    assert re.search(r"^timeout in \d", answer.out, re.MULTILINE)
    label = int(load_demo_images().labels[2])
    assert tree["label"] == label
    assert [t["rival"] for t in tree["targets"]] == [k for k in range(10) if k != label]


@pytest.fixture
def long_runs() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start runs that would last for minutes, and return once their real work has begun."""
    script = (
        "import signal, sys\n"
        "import bnncert.cli.result_views, bnncert.report.tables\n"
        "from bnncert.cli.program import main\n"
        "from bnncert.questions import prover\n"
        "run = prover.run_method\n"
        "def begun(*arguments, **named):\n"
        "    print('ready', flush=True)\n"
        "    return run(*arguments, **named)\n"
        "prover.run_method = begun\n"
        # A parent may have told its children to ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "main()\n"
    )
    options = {"milp": ("--method", "milp"), "attack": ("--method", "attack", "--timeout", "300")}
    runs = {
        name: subprocess.Popen(
            [sys.executable, "-c", script, "verify", *HARD, *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for name, extra in options.items()
    }
    try:
        for process in runs.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        yield runs
    finally:
        for process in runs.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_a_long_run_at_once(long_runs: dict[str, subprocess.Popen[str]]) -> None:
    for process in long_runs.values():
        assert process.poll() is None, "the run was over before it could be interrupted"
    started = time.monotonic()
    for process in long_runs.values():
        process.send_signal(signal.SIGINT)
    for process in long_runs.values():
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - started < 3
        assert process.returncode == 130
        assert err == "bnncert: interrupted\n"
        assert "of 9 targets are decided" in out.splitlines()[-1]


@pytest.mark.parametrize(("given", "processes"), [((), 0), (("--processes", "3"), 3)])
def test_the_number_of_processes_reaches_the_methods(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], processes: int
) -> None:
    seen = []
    ask = bnncert.verify

    def verify(*arguments: Any, options: bnncert.Options, **others: Any) -> Result:
        seen.append(options.processes)
        return ask(*arguments, options=options, **others)

    monkeypatch.setattr("bnncert.questions.verify.verify", verify)
    assert run("verify", "net.npz", "x.npy", "--radius", "0.1", *given).code == 0
    assert seen == [processes]


def test_a_negative_number_of_processes_is_refused(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", "x.npy", "--radius", "0.1", "--processes", "-1")
    assert answer.err == "bnncert: --processes is -1; expected an integer >= 0\n"
    assert answer.code == 2
