"""The command line: answers known by hand, exit codes, and one line for every bad input.

The network of most tests has h = (sign(x0 + x1), sign(x0 - x1)) and, with the biases 1, 0, 0.5,

    h         (+,+)        (-,+)          (+,-)          (-,-)
    scores    3, 0, 0.5    1, 2, -1.5     1, -2, 2.5     -1, 0, 0.5

so class 0 wins only where h = (+,+): on the quarter plane x0 > |x1|.  From (1, 0) the distance to
its border is 1/2 in L-inf, 1/sqrt(2) in L2 and 1 in L1.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bnncert
from bnncert.bundled import load_demo_images
from tests.brute_force import TinyNetwork
from tests.in_process import Outcome, command_line

DIAMOND = TinyNetwork(
    (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]])),
    (np.zeros(2), np.array([1.0, 0.0, 0.5])),
    "plus",
)

#: The same with 1 more for class 0: its score ties with class 1 where h = (-,+).
TIED = TinyNetwork(DIAMOND.weights, (np.zeros(2), np.array([2.0, 0.0, 0.5])), "plus")

DECLARATIONS = "".join(
    f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1", "Y_2")
)
NOT_CLASS_0 = "(assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))\n"

DATA = Path(bnncert.__file__).parent / "data"
#: An image and a radius that the exact method needs minutes for.
HARD = (
    str(DATA / "mnist_dense.npz"),
    *("--input", f"{DATA / 'mnist_test_100.npz'}:images", "--index", "2"),
    *("--radius", repr(1.0 / 127.5)),
)


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return what runs the command line inside this process (an escaping exception fails)."""

    return command_line(monkeypatch, capfd)


def environment() -> dict[str, str]:
    source = str(Path(bnncert.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source}


def command(*arguments: str | Path, cwd: Path) -> Outcome:
    """Run the command line as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bnncert", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(),
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def write_network(path: Path, net: TinyNetwork, **extra: Any) -> Path:
    arrays: dict[str, Any] = {"sign_zero": np.array(net.sign_zero), **extra}
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        arrays[f"W{i}"], arrays[f"b{i}"] = w, b
    np.savez(path, **arrays)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with networks and points in it, which is also the working directory."""
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0)
    write_network(tmp_path / "tied.npz", TIED, input_lo=-2.0, input_hi=2.0)
    np.save(tmp_path / "x.npy", np.array([1.0, 0.0]))
    return tmp_path


def read_json(path: Path) -> dict[str, Any]:
    tree = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(tree, dict)
    return tree


# --- an evaluator of its own -----------------------------------------------------------------


def possible_scores(net: TinyNetwork, point: list[Fraction]) -> set[tuple[Fraction, ...]]:
    """Evaluate W and b in rationals; several answers where ties may go either way."""

    def layer(w: np.ndarray, b: np.ndarray, values: tuple[Fraction, ...]) -> list[Fraction]:
        return [
            sum((Fraction(p) * q for p, q in zip(row, values, strict=True)), Fraction(c))
            for row, c in zip(w.tolist(), b.tolist(), strict=True)
        ]

    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[net.sign_zero]
    current = {tuple(point)}
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        current = {
            tuple(Fraction(s) for s in signs)
            for values in current
            for signs in product(
                *((1,) if u > 0 else (-1,) if u < 0 else zero for u in layer(w, b, values))
            )
        }
    return {tuple(layer(net.weights[-1], net.biases[-1], values)) for values in current}


def assert_replays(tree: dict[str, Any], net: TinyNetwork, rival: int, label: int = 0) -> None:
    """Check the counterexample of a JSON answer against its region and the raw weights."""
    found, region = tree["counterexample"], tree["region"]
    point = [Fraction(v) for v in found.get("input_exact", found["input"])]
    radius = Fraction(region["radius"])
    gaps = [abs(x - Fraction(c)) for x, c in zip(point, region["center"], strict=True)]
    size = {"linf": max(gaps), "l1": sum(gaps), "l2": sum(g * g for g in gaps)}[region["norm"]]
    assert size <= (radius**2 if region["norm"] == "l2" else radius)
    for x, lo, hi in zip(point, region["clip_lo"], region["clip_hi"], strict=True):
        assert Fraction(lo) <= x <= Fraction(hi)
    margin = Fraction(found["value_exact"])
    assert margin <= 0
    scores = tuple(map(Fraction, found["scores"]))
    assert scores in possible_scores(net, point)
    assert scores[label] - scores[rival] == margin == Fraction(found["value"])
    assert found["predicted"] == scores.index(max(scores))
    assert found["target"] == f"class {rival}"


# --- verify: robust or not -------------------------------------------------------------------


def test_a_robust_point_is_robust_with_its_margin(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", "--input", "x.npy", "--label", "0", "--radius", "0.25")
    assert (answer.code, answer.err) == (0, "")
    first, *_, last = answer.out.splitlines()
    assert first == "net.npz, x.npy: label 0, L-inf ball of radius 0.25, data in [-2, 2]"
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
    assert run("verify", "net.npz", *question).code == 0
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
    ("targets", "status", "rivals"),
    [
        ("all", "not_robust", [1, 2]),
        ("1", "not_robust", [1]),
        ("2", "robust", [2]),
        ("runner-up", "robust", [2]),
    ],
)
def test_targets_choose_the_rivals(
    folder: Path, run: Run, targets: str, status: str, rivals: list[int]
) -> None:
    # Around (1, -1/2) only h0 can flip within 1/2: class 1 wins there, class 2 never does.  The
    # scores at the centre are 3, 0, 0.5, so the runner-up is class 2.
    np.save(folder / "low.npy", np.array([1.0, -0.5]))
    question = ("--input", "low.npy", "--radius", "0.5", "--targets", targets)
    assert run("verify", "net.npz", *question, "--json", "out.json").code == 0
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
    question = ("--input", "x.npy", "--norm", norm, "--radius", radius, "--targets", "1")
    settings = ("--sign-zero", sign_zero, "--method", method, "--json", "out.json")
    assert run("verify", "net.npz", *question, *settings).code == 0
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    assert tree["sign_zero"] == sign_zero
    if status == "not_robust":
        assert_replays(tree, TinyNetwork(DIAMOND.weights, DIAMOND.biases, sign_zero), 1)


@pytest.mark.parametrize(("ties", "status"), [("violation", "not_robust"), ("robust", "robust")])
def test_an_equal_score_counts_as_ties_says(folder: Path, run: Run, ties: str, status: str) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--targets", "1", "--ties", ties)
    assert run("verify", "tied.npz", *question, "--json", "out.json").code == 0
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    if status == "not_robust":
        assert_replays(tree, TIED, 1)
        assert tree["counterexample"]["value_exact"] == "0"


def test_a_wrong_label_fails_at_the_centre(folder: Path, run: Run) -> None:
    question = ("--input", "x.npy", "--radius", "0", "--label", "2")
    answer = run("verify", "net.npz", *question, "--json", "out.json")
    tree = read_json(folder / "out.json")
    assert (answer.code, tree["status"], tree["label"]) == (0, "not_robust", 2)
    assert tree["counterexample"]["input"] == [1.0, 0.0]
    assert_replays(tree, DIAMOND, 0, label=2)
    assert "centre" in answer.out


def test_clip_replaces_the_data_box(folder: Path, run: Run) -> None:
    # With x1 >= 0 only h1 can flip, and within 0.6 it does: class 2 wins, class 1 never.
    question = ("--input", "x.npy", "--radius", "0.6", "--clip", "0", "1.5")
    assert run("verify", "net.npz", *question, "--json", "out.json").code == 0
    tree = read_json(folder / "out.json")
    assert tree["region"]["clip_lo"] == [0.0, 0.0]
    assert tree["region"]["clip_hi"] == [1.5, 1.5]
    assert tree["status"] == "not_robust"
    assert_replays(tree, DIAMOND, 2)
    assert (
        run("verify", "net.npz", *question, "--targets", "1")
        .out.splitlines()[-1]
        .startswith("robust in")
    )


# --- JSON ------------------------------------------------------------------------------------


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
    question = ("--input", "x.npy", "--radius", "0.6", "--targets", "1", "--json", "-")
    answer = command("verify", "net.npz", *question, cwd=folder)
    assert answer.code == 0
    tree = json.loads(answer.out)
    assert tree["status"] == "not_robust"
    assert_replays(tree, DIAMOND, 1)
    assert "counterexample for class 1" in answer.err


def test_json_of_an_open_bound_is_null_and_not_infinity(folder: Path, run: Run) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--method", "interval", "--json", "-")
    answer = run("bound", "net.npz", *question)
    assert answer.code == 0
    tree = json.loads(answer.out, parse_constant=lambda text: pytest.fail(text))
    assert tree["upper"] is None
    assert tree["lower"] == -1.5


# --- VNN-LIB ---------------------------------------------------------------------------------


def query(radius: str) -> str:
    """Return the query "class 0 loses somewhere within `radius` of (1, 0)"."""
    r = Fraction(radius)
    bounds = [("X_0", 1 - r, 1 + r), ("X_1", -r, r)]
    lines = [
        f"(assert (>= {x} {float(lo)}))\n(assert (<= {x} {float(hi)}))\n" for x, lo, hi in bounds
    ]
    return DECLARATIONS + "".join(lines) + NOT_CLASS_0


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("radius", "word"), [("0.25", "unsat"), ("0.625", "sat")])
def test_a_query_is_answered_in_one_word(
    folder: Path, run: Run, compressed: bool, radius: str, word: str
) -> None:
    text = query(radius).encode()
    name = "q.vnnlib.gz" if compressed else "q.vnnlib"
    (folder / name).write_bytes(gzip.compress(text) if compressed else text)
    answer = run("verify", "net.npz", name, "--json", "out.json")
    assert (answer.code, answer.out, answer.err) == (0, word + "\n", "")
    tree = read_json(folder / "out.json")
    assert (tree["vnncomp"], tree["specification"]) == (word, name)


def test_a_query_that_a_method_leaves_open_is_unknown(folder: Path, run: Run) -> None:
    (folder / "q.vnnlib").write_text(query("0.625"))
    answer = run("verify", "net.npz", "q.vnnlib", "--method", "interval")
    assert (answer.code, answer.out) == (0, "unknown\n")


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
    assert run("verify", "net.npz", "sat.vnnlib", "--witness", "w.txt").code == 0
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


# --- bound -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m in bnncert.REGISTRY.all() if m.available()])
def test_every_method_bounds_the_margin_it_promises_to(
    folder: Path, run: Run, method: type[bnncert.Method]
) -> None:
    # Within 0.6 of (1, 0) all patterns but (-,-) occur: min margins -1 and -1.5.
    question = ("--input", "x.npy", "--radius", "0.6", "--method", method.name)
    answer = run("bound", "net.npz", *question, "--timeout", "5", "--json", "out.json")
    assert answer.code == 0
    assert answer.out.splitlines()[0].endswith(f"method {method.name}")
    tree = read_json(folder / "out.json")
    assert tree["method"] == method.name
    for target, minimum in zip(tree["targets"], (-1.0, -1.5), strict=True):
        if "bound" in method.promises:
            assert target["lower"] <= minimum
        if "counterexample" in method.promises and target["upper"] is not None:
            assert target["upper"] >= minimum
        if method.name == "milp":
            assert target["lower"] == target["upper"] == minimum
    if "counterexample" in method.promises:
        rival = int(tree["counterexample"]["target"].removeprefix("class "))
        assert_replays(tree, DIAMOND, rival)


def test_soft_and_lattice_form_find_the_same_minimum(folder: Path, run: Run) -> None:
    bounds = []
    for form in ("lattice", "soft"):
        question = ("--input", "x.npy", "--radius", "0.6", "--method", "milp", "--form", form)
        assert run("bound", "net.npz", *question, "--json", "out.json").code == 0
        tree = read_json(folder / "out.json")
        bounds.append([(t["lower"], t["upper"]) for t in tree["targets"]])
    assert bounds == [[(-1.0, -1.0), (-1.5, -1.5)]] * 2


def test_explain_shows_presolve_and_stages(folder: Path, run: Run) -> None:
    question = ("bound", "net.npz", "--input", "x.npy", "--radius", "0.6")
    answer = run(*question, "--explain", "--json", "out.json")
    assert answer.code == 0
    for word in ("presolve", "variables", "rules", "stages", "structured", "iterations", "gap"):
        assert word in answer.out, word
    details = read_json(folder / "out.json")["targets"][0]["details"]
    first = details["presolve"][0]
    assert first["neurons"] == first["open"] + first["rules"].get("stable", 0)
    rounds = details["rounds"]
    assert rounds[0]["bound"] <= rounds[0]["primal"] + 1e-6
    assert rounds[0]["seconds"] >= 0
    other = run(*question, "--explain", "--method", "lp")
    assert other.code == 2
    assert "method lp does not use --explain; it belongs to sdp" in other.err


@pytest.mark.parametrize("solver", ["structured", "clarabel", "low-rank"])
def test_every_solver_of_the_reduced_problem_bounds_it(folder: Path, run: Run, solver: str) -> None:
    question = ("bound", "net.npz", "--input", "x.npy", "--radius", "0.6", "--solver", solver)
    assert run(*question, "--timeout", "5", "--json", "out.json").code == 0
    for target, minimum in zip(
        read_json(folder / "out.json")["targets"], (-1.0, -1.5), strict=True
    ):
        assert target["lower"] <= minimum


# --- info, methods, convert ------------------------------------------------------------------


def test_info_counts_layers_and_zeros(folder: Path, run: Run) -> None:
    # 2 x 3 + 3 x 2 + 2 x 3 = 18 weights, of which 3 + 1 + 2 = 6 are zero.
    net = TinyNetwork(
        (
            np.array([[1.5, 0, 0], [0, -2, 1]]),
            np.array([[1, 0], [1, 1], [-1, 1]]),
            np.array([[1, 0, 3], [0, 1, -2]]),
        ),
        (np.zeros(2), np.zeros(3), np.zeros(2)),
        "minus",
    )
    write_network(folder / "deep.npz", net, input_lo=0.0, input_hi=1.0)
    answer = run("info", "deep.npz", "--json", "out.json")
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "deep.npz (npz)"
    assert "inputs 3 (shape 3), data box [0, 1], classes 2, threshold layers 2" in answer.out
    assert "zero weights 33.33 %" in answer.out
    rows = [line.split() for line in answer.out.splitlines() if line.startswith("W")]
    assert [row[:6] for row in rows] == [
        ["W0", "3", "2", "3", "50.0", "%"],
        ["W1", "2", "3", "5", "16.7", "%"],
        ["W2", "3", "2", "4", "33.3", "%"],
    ]
    assert [row[-1] for row in rows] == ["-1", "-1", "scores"]
    tree = read_json(folder / "out.json")
    assert tree["sizes"] == [3, 2, 3, 2]
    assert (tree["input_lo"], tree["input_hi"]) == ([0.0] * 3, [1.0] * 3)
    assert tree["zero_fraction"] == pytest.approx(6 / 18)
    assert tree["hash"] in answer.out
    assert [layer["nonzeros"] for layer in tree["layers"]] == [3, 5]
    assert [layer["integer"] for layer in tree["layers"]] == [False, True]
    assert tree["output"]["nonzeros"] == 4
    assert tree["output"]["values"] == "integers up to 3"


def test_methods_lists_every_method(run: Run) -> None:
    answer = run("methods")
    assert answer.code == 0
    first = [line.split(" ")[0] for line in answer.out.splitlines()]
    for method in bnncert.REGISTRY.all():
        assert method.name in first


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_conversion_there_and_back_is_the_same_network(
    folder: Path, run: Run, sign_zero: str
) -> None:
    net = TinyNetwork(
        (DIAMOND.weights[0] / 3, np.array([[1, -1], [0, 1]]), DIAMOND.weights[1]),
        (np.array([0.1, -0.7]), np.array([1.0, 0.5]), DIAMOND.biases[1]),
        sign_zero,
    )
    write_network(folder / "a.npz", net, input_lo=-2.0, input_hi=2.0)
    hashes = {bnncert.load("a.npz").content_hash}
    names = ("a.npz", "b.json", "c.npz", "d.onnx", "e.npz")
    for source, target in pairwise(names):
        answer = run("convert", source, target)
        assert (answer.code, answer.err) == (0, "")
        name, _, shown = answer.out.strip().partition(": ")
        assert name == target
        hashes.add(shown)
    assert len(hashes) == 1
    point = [Fraction("0.25"), Fraction("-0.5")]
    again = bnncert.load("e.npz")
    scores = {tuple(again.output.exactly(p[-1])) for p in again.exact_patterns(point)}
    assert scores == possible_scores(net, point)


def test_an_onnx_model_is_replayed_in_onnxruntime(folder: Path, run: Run) -> None:
    pytest.importorskip("onnxruntime")
    assert run("convert", "net.npz", "net.onnx").code == 0
    question = ("--input", "x.npy", "--radius", "0.6", "--json", "out.json")
    assert run("verify", "net.onnx", *question).code == 0
    tree = read_json(folder / "out.json")
    assert tree["counterexample"]["replayed_in"] == ["exact", "onnxruntime"]
    rival = int(tree["counterexample"]["target"].removeprefix("class "))
    assert_replays(tree, DIAMOND, rival)
    values = np.array(tree["counterexample"]["input"])
    np.testing.assert_array_equal(values, values.astype(np.float32))


# --- points ----------------------------------------------------------------------------------


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


# --- bad input -------------------------------------------------------------------------------


def break_files(folder: Path) -> None:
    """Write every kind of file that must be refused."""
    whole = (folder / "net.npz").read_bytes()
    bnncert.load(folder / "net.npz").save(folder / "net.onnx")
    model = (folder / "net.onnx").read_bytes()
    (folder / "folder.npz").mkdir()
    (folder / "half.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "half.npz.gz").write_bytes(gzip.compress(whole)[:-20])
    (folder / "half.onnx").write_bytes(model[: len(model) // 2])
    (folder / "empty.npz").write_bytes(b"")
    noise = np.random.default_rng(0).bytes(400)
    for name in ("noise.npz", "noise.onnx", "noise.json", "noise.npy", "noise.png"):
        (folder / name).write_bytes(noise)
    not_finite = np.array([[1.0, np.nan], [1.0, -1.0]])
    write_network(
        folder / "nan.npz", TinyNetwork((not_finite, DIAMOND.weights[1]), DIAMOND.biases, "plus")
    )
    endless = (DIAMOND.biases[0], np.array([1.0, np.inf, 0.5]))
    write_network(folder / "inf.npz", TinyNetwork(DIAMOND.weights, endless, "plus"))
    middle = np.array([[1, -1], [1, 2]])
    deep = TinyNetwork(
        (DIAMOND.weights[0], middle, DIAMOND.weights[1]),
        (np.zeros(2), np.zeros(2), np.zeros(3)),
        "plus",
    )
    write_network(folder / "deep.npz", deep)
    wide = (DIAMOND.weights[0], np.ones((3, 5)))
    write_network(folder / "wide.npz", TinyNetwork(wide, DIAMOND.biases, "plus"))
    np.save(folder / "nan.npy", np.array([1.0, np.nan]))
    np.save(folder / "inf.npy", np.array([-np.inf, 0.0]))
    np.save(folder / "long.npy", np.zeros(3))
    np.save(folder / "far.npy", np.array([1.0, 9.0]))
    np.save(folder / "words.npy", np.array(["a", "b"]))
    np.save(folder / "batch.npy", np.zeros((4, 2)))
    (folder / "symbol.vnnlib").write_text(DECLARATIONS + "(assert (<= Z_0 1))\n")
    (folder / "open.vnnlib").write_text(DECLARATIONS + "\n(assert (<= X_0 1)\n")
    three = DECLARATIONS + "(declare-const X_2 Real)\n"
    for i in range(3):
        three += f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))\n"
    (folder / "three.vnnlib").write_text(three + NOT_CLASS_0)
    (folder / "good.vnnlib").write_text(query("0.25"))
    (folder / "half.vnnlib.gz").write_bytes(gzip.compress(query("0.25").encode())[:-9])


POINT = ("--input", "x.npy")
BALL = (*POINT, "--radius", "0.25")

#: The arguments after the command, and what its one line has to mention.
BAD_INPUT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no model": (("missing.npz", *BALL), ("missing.npz", "no such file")),
    "model is a directory": (("folder.npz", *BALL), ("folder.npz", "directory")),
    "truncated npz": (("half.npz", *BALL), ("half.npz",)),
    "truncated gzip": (("half.npz.gz", *BALL), ("half.npz.gz", "truncated")),
    "truncated onnx": (("half.onnx", *BALL), ("half.onnx",)),
    "empty file": (("empty.npz", *BALL), ("empty.npz", "empty")),
    "noise as npz": (("noise.npz", *BALL), ("noise.npz",)),
    "noise as onnx": (("noise.onnx", *BALL), ("noise.onnx",)),
    "noise as json": (("noise.json", *BALL), ("noise.json",)),
    "a point as a model": (("x.npy", *BALL), ("x.npy",)),
    "NaN weight": (("nan.npz", *BALL), ("nan.npz", "W0", "NaN")),
    "infinite bias": (("inf.npz", *BALL), ("inf.npz", "b1", "infinity")),
    "weight 2 in a hidden layer": (("deep.npz", *BALL), ("deep.npz", "W1", "neuron 1", "2")),
    "layers that do not fit": (("wide.npz", *BALL), ("wide.npz", "W1", "5", "2")),
    "no point file": (("net.npz", "--input", "no.npy", "--radius", "1"), ("no.npy", "no such")),
    "no image file": (("net.npz", "--input", "no.png", "--radius", "1"), ("no.png", "no such")),
    "noise as point": (("net.npz", "--input", "noise.npy", "--radius", "1"), ("noise.npy",)),
    "noise as image": (("net.npz", "--input", "noise.png", "--radius", "1"), ("noise.png",)),
    "folder as point": (("net.npz", "--input", "folder.npz", "--radius", "1"), ("folder.npz",)),
    "words as point": (("net.npz", "--input", "words.npy", "--radius", "1"), ("words.npy",)),
    "NaN in the point": (
        ("net.npz", "--input", "nan.npy", "--radius", "1"),
        ("nan.npy", "value 1"),
    ),
    "infinite point": (("net.npz", "--input", "inf.npy", "--radius", "1"), ("inf.npy", "value 0")),
    "point of wrong shape": (
        ("net.npz", "--input", "long.npy", "--radius", "1"),
        ("long.npy", "(3,)", "(2,)"),
    ),
    "index beyond the batch": (
        ("net.npz", "--input", "batch.npy", "--index", "4", "--radius", "1"),
        ("batch.npy", "index 4", "0 to 3"),
    ),
    "negative index": (
        ("net.npz", "--input", "batch.npy", "--index", "-1", "--radius", "1"),
        ("batch.npy", "index -1"),
    ),
    "no such key": (
        ("net.npz", "--input", "net.npz:image", "--radius", "1"),
        ("net.npz", "'image'", "W0"),
    ),
    "point outside the data box": (
        ("net.npz", "--input", "far.npy", "--radius", "0.25"),
        ("far.npy", "empty", "input 1", "9"),
    ),
    "L1 centre outside the data box": (
        ("net.npz", "--input", "far.npy", "--radius", "8", "--norm", "l1"),
        ("far.npy", "input 1", "outside"),
    ),
    "no input": (("net.npz", "--radius", "1"), ("--input",)),
    "no radius": (("net.npz", *POINT), ("--radius",)),
    "negative radius": (("net.npz", *POINT, "--radius", "-0.5"), ("--radius", "-0.5")),
    "radius NaN": (("net.npz", *POINT, "--radius", "nan"), ("--radius", "nan")),
    "radius infinite": (("net.npz", *POINT, "--radius", "inf"), ("--radius", "inf")),
    "radius in words": (("net.npz", *POINT, "--radius", "big"), ("--radius",)),
    "unknown norm": (("net.npz", *BALL, "--norm", "l3"), ("--norm", "l3", "linf")),
    "clip upside down": (("net.npz", *BALL, "--clip", "1", "0"), ("--clip", "1.0 0.0")),
    "clip NaN": (("net.npz", *BALL, "--clip", "nan", "0"), ("--clip", "nan")),
    "clip with one number": (("net.npz", *BALL, "--clip", "1"), ("--clip",)),
    "clip misses the ball": (("net.npz", *BALL, "--clip", "5", "6"), ("x.npy", "empty")),
    "label too large": (("net.npz", *BALL, "--label", "3"), ("label is 3", "0 to 2")),
    "label negative": (("net.npz", *BALL, "--label", "-1"), ("label is -1", "0 to 2")),
    "label in words": (("net.npz", *BALL, "--label", "cat"), ("--label",)),
    "unknown target": (("net.npz", *BALL, "--targets", "some"), ("--targets", "'some'")),
    "target too large": (("net.npz", *BALL, "--targets", "3"), ("target is 3",)),
    "target is the label": (("net.npz", *BALL, "--targets", "0"), ("target 0",)),
    "unknown method": (("net.npz", *BALL, "--method", "magic"), ("'magic'", "milp")),
    "unknown option": (("net.npz", *BALL, "--magic"), ("--magic",)),
    "unknown ties": (("net.npz", *BALL, "--ties", "maybe"), ("--ties", "maybe")),
    "unknown sign(0)": (("net.npz", *BALL, "--sign-zero", "0"), ("--sign-zero",)),
    "timeout zero": (("net.npz", *BALL, "--timeout", "0"), ("timeout is 0",)),
    "timeout negative": (("net.npz", *BALL, "--timeout", "-1"), ("timeout is -1",)),
    "timeout NaN": (("net.npz", *BALL, "--timeout", "nan"), ("timeout is nan",)),
    "timeout in words": (("net.npz", *BALL, "--timeout", "long"), ("--timeout",)),
    "seed negative": (("net.npz", *BALL, "--seed", "-1"), ("--seed", "-1")),
    "seed in words": (("net.npz", *BALL, "--seed", "x"), ("--seed",)),
    "no samples": (
        ("net.npz", *BALL, "--method", "sample", "--samples", "0"),
        ("--samples", "at least 1"),
    ),
    "no restarts": (("net.npz", *BALL, "--restarts", "0"), ("--restarts", "at least 1")),
    "pixel step NaN": (("net.npz", *BALL, "--pixel-step", "nan"), ("--pixel-step", "nan")),
    "unknown form": (("net.npz", *BALL, "--form", "hard"), ("--form", "hard")),
    "L2 for milp": (
        ("net.npz", *POINT, "--radius", "0.8", "--norm", "l2", "--method", "milp"),
        ("L2", "milp"),
    ),
    "JSON into no folder": (("net.npz", *BALL, "--json", "no/out.json"), ("no/out.json",)),
    "JSON over a folder": (("net.npz", *BALL, "--json", "folder.npz"), ("folder.npz",)),
    "witness into no folder": (("net.npz", *BALL, "--witness", "no/w.txt"), ("no/w.txt",)),
    "no query file": (("net.npz", "no.vnnlib"), ("no.vnnlib", "No such file")),
    "truncated query": (("net.npz", "half.vnnlib.gz"), ("half.vnnlib.gz", "truncated")),
    "noise as query": (("net.npz", "noise.npz"), ("noise.npz:", "UTF-8")),
    "unknown symbol": (("net.npz", "symbol.vnnlib"), ("symbol.vnnlib:6:", "'Z_0'")),
    "unclosed parenthesis": (("net.npz", "open.vnnlib"), ("open.vnnlib:7:",)),
    "query for 3 inputs": (("net.npz", "three.vnnlib"), ("three.vnnlib", "3 inputs", "2")),
    "query and radius": (
        ("net.npz", "good.vnnlib", "--radius", "1"),
        ("a ball around a point", ".vnnlib"),
    ),
    "query and clip": (
        ("net.npz", "good.vnnlib", "--clip", "0", "1"),
        ("a ball around a point", ".vnnlib"),
    ),
    "query and label": (
        ("net.npz", "good.vnnlib", "--label", "1"),
        ("a ball around a point", ".vnnlib"),
    ),
    "no arguments": ((), ("model",)),
}


def assert_one_line(answer: Outcome, *mentioned: str) -> None:
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("bnncert: ")
    assert answer.err.endswith("\n")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    for word in mentioned:
        assert word.lower() in answer.err.lower()


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_that_names_it(folder: Path, run: Run, name: str) -> None:
    break_files(folder)
    arguments, mentioned = BAD_INPUT[name]
    assert_one_line(run("verify", *arguments), *mentioned)


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        ((), ("no command",)),
        (("prove", "net.npz"), ("prove",)),
        (("info", "missing.npz"), ("missing.npz",)),
        (("info", "net.npz", "--json", "no/out.json"), ("no/out.json",)),
        (("convert", "net.npz", "out.pb"), ("out.pb", ".onnx")),
        (("convert", "net.npz", "no/out.npz"), ("no/out.npz",)),
        (("convert", "missing.npz", "out.npz"), ("missing.npz",)),
        (("bound", "net.npz", *BALL, "--method", "magic"), ("'magic'",)),
        (("bound", "net.npz", *BALL, "--json", "no/out.json"), ("no/out.json",)),
        (
            ("bound", "net.npz", *BALL, "--norm", "l2", "--method", "milp", "--timeout", "5"),
            ("L2", "milp"),
        ),
        (("bound", "net.npz", *BALL, "--solver", "abacus"), ("--solver", "abacus")),
        (("bound", "net.npz", *BALL, "--sparsity", "none"), ("--sparsity", "none")),
        (
            ("bound", "net.npz", *POINT, "--radius", "2", "--norm", "l1", "--method", "sdp-tight"),
            ("L-inf", "L2"),
        ),
        (("demo", "--count", "0"), ("--count", "0")),
        (("demo", "--count", "101"), ("--count", "101", "100")),
        (("demo", "--delta", "nan"), ("--delta", "nan")),
        (("demo", "--network", "huge"), ("--network", "huge")),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_the_other_commands_refuse_bad_input_too(
    folder: Path, run: Run, arguments: tuple[str, ...], mentioned: tuple[str, ...]
) -> None:
    assert_one_line(run(*arguments), *mentioned)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user who is refused something"
)
def test_a_protected_file_is_refused(folder: Path, run: Run) -> None:
    (folder / "mine.json").write_text("precious")
    (folder / "mine.json").chmod(0o400)
    assert_one_line(run("info", "net.npz", "--json", "mine.json"), "mine.json", "denied")
    (folder / "net.npz").chmod(0)
    assert_one_line(run("info", "net.npz"), "net.npz", "denied")


def test_a_result_that_cannot_be_written_is_refused_before_the_work(folder: Path, run: Run) -> None:
    started = time.monotonic()
    answer = run("verify", *HARD, "--method", "milp", "--timeout", "60", "--json", "no/out.json")
    assert_one_line(answer, "no/out.json")
    assert time.monotonic() - started < 10


def test_the_process_ends_with_code_2_and_one_line(folder: Path) -> None:
    np.save(folder / "nan.npy", np.array([1.0, np.nan]))
    answer = command("verify", "net.npz", "--input", "nan.npy", "--radius", "1", cwd=folder)
    assert_one_line(answer, "nan.npy", "value 1 is nan")
    assert_one_line(command("verify", "net.npz", "--magic", cwd=folder), "--magic")


def test_help_is_shown_and_is_not_an_error(run: Run) -> None:
    answer = run("--help")
    assert (answer.code, answer.err) == (0, "")
    for name in ("verify", "bound", "info", "methods", "convert", "demo"):
        assert re.search(rf"^\W*{name} ", answer.out, re.MULTILINE)


# --- the process: pipes, limits, Ctrl-C ------------------------------------------------------


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


def test_the_time_limit_ends_a_hard_run_with_timeout(folder: Path, run: Run) -> None:
    answer = run("verify", *HARD, "--method", "milp", "--timeout", "1", "--json", "out.json")
    assert (answer.code, answer.err) == (0, "")
    tree = read_json(folder / "out.json")
    assert (tree["status"], tree["vnncomp"]) == ("timeout", "timeout")
    assert 0.5 <= tree["seconds"] <= 3.0
    assert re.match(r"timeout in \d", answer.out.splitlines()[-1])
    label = int(load_demo_images().labels[2])
    assert tree["label"] == label
    assert [t["rival"] for t in tree["targets"]] == [k for k in range(10) if k != label]


@pytest.fixture
def long_runs() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start runs that would last for minutes, and return once their real work has begun."""
    script = (
        "import signal, sys\n"
        "import bnncert.commands.verify\n"
        "from bnncert.cli import main\n"
        # A parent may have told its children to ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
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
        time.sleep(3)
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "/dev/zero"),
        ("bound", "net.npz", "--input", "/dev/zero", "--radius", "0.1"),
        ("verify", "net.npz", "/dev/zero"),
        ("run", "net.npz", "--data", "/dev/zero", "--radius", "0.1", "--out", "r.sqlite"),
        ("report", "/dev/zero", "-o", "page.html"),
        ("experiment", "/dev/zero"),
        ("vnncomp", "/dev/zero", "--out", "answers"),
        ("train", "--data", "/dev/zero", "--out", "new.npz"),
        ("convert", "/dev/zero", "new.npz"),
    ],
)
def test_devices_are_refused_at_once(run: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("bnncert: /dev/zero")
    assert outcome.err.count("\n") == 1


def test_a_page_has_the_suffix_of_a_page(run: Run, folder: Path) -> None:
    outcome = run("report", "r.sqlite", "-o", "r.pdf")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith("bnncert: r.pdf: the page is HTML")
    assert not Path("r.pdf").exists()
