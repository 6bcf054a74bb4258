"""`bnncert verify QUERY --network NAME=FILE`: the command line of VNN-LIB 2.0, to the letter."""

from __future__ import annotations

import importlib.util
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bnncert import Network
from tests.cli.diamond import Run
from tests.competition_files import executed, query, write_hard

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vnnlib") is None, reason="needs the extra 'vnnlib'"
)


def net(bias: float = 0.0) -> Network:
    weights = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, -1]]))
    return Network.from_arrays(weights, (np.array([0.0, bias]), np.zeros(2)))


def declared(*asserts: str, kind: str = "float32", second: str | None = None) -> str:
    """Write a query about inputs in [0, 1] x [-0.25, 0.25] of one or two networks."""
    lines = ["(vnnlib-version <2.0>)"]
    names = [("f", "", "X", "Y")] + ([] if second is None else [("g", second, "Z", "W")])
    for name, kin, x, y in names:
        lines += [
            f"(declare-network {name} {kin}",
            f"(declare-input {x} {kind} [1,2,1]) (declare-output {y} {kind} [1,2]))",
        ]
        lines.append(f"(assert (and (>= {x}[0,0,0] 0.0) (<= {x}[0,0,0] 1.0)))")
        lines.append(f"(assert (and (>= {x}[0,1,0] -0.25) (<= {x}[0,1,0] 0.25)))")
    declarations = [line for line in lines if "assert" not in line]
    bounds = [line for line in lines if "assert" in line]
    return "\n".join([*declarations, *bounds, *(f"(assert {a})" for a in asserts)]) + "\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    net().save("a.onnx")
    net(1.0).save("b.onnx")
    return tmp_path


def test_sat_is_followed_by_the_assignment(run: Run, files: Path) -> None:
    Path("q.vnnlib").write_text(declared("(> Y[0,0] Y[0,1])"))
    done = run("verify", "q.vnnlib", "--network", "f=a.onnx", "--timeout", "60")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "sat"
    assert (lines[1], lines[4]) == ("X float32 [1,2,1]", "Y float32 [1,2]")
    assert len(lines) == 7 and done.out.endswith("\n")
    x, y = ([Fraction(v) for v in lines[a:b]] for a, b in ((2, 4), (5, 7)))
    assert 0 <= x[0] <= 1 and abs(x[1]) <= Fraction(1, 4) and y[0] > y[1]
    assert executed(Path("a.onnx").read_bytes(), x) == y


@pytest.mark.parametrize("kind", ["real", "Real", "float32"])
def test_unsat_is_one_word(run: Run, files: Path, kind: str) -> None:
    text = declared("(< Y[0,0] 0.0)", "(>= X[0,0,0] 0.5)", kind=kind)
    Path("q.vnnlib").write_text(text)
    done = run("verify", "q.vnnlib", "--network", "f=a.onnx")
    assert (done.code, done.out, done.err) == (0, "unsat\n", "")


def test_timed_out_is_the_word_of_the_standard(run: Run, files: Path) -> None:
    write_hard(Path("hard.onnx"), Path("hard.vnnlib"))
    done = run("verify", "hard.vnnlib", "--network", "any=hard.onnx", "--timeout", "0.3")
    assert (done.code, done.out) == (0, "timed-out\n")
    # With the model first it is a question of bnncert, which has its own words and codes.
    done = run("verify", "hard.onnx", "hard.vnnlib", "--timeout", "0.3")
    assert (done.code, done.out.splitlines()[0]) == (3, "timeout")


def test_version_1_has_its_own_witnesses(run: Run, files: Path) -> None:
    Path("q.vnnlib").write_text(query([0, 0], [1, 1], 0, 2))
    done = run("verify", "q.vnnlib", "--network", "f=a.onnx")
    assert done.code == 0
    assert done.out.startswith("sat\n((X_0 ")


SAME = ("(== X[0,0,0] Z[0,0,0])", "(== X[0,1,0] Z[0,1,0])")


@pytest.mark.parametrize(
    ("second", "models", "asserts", "word"),
    [
        ("(equal-to f)", ("f=a.onnx",), (*SAME, "(!= Y[0,0] W[0,0])"), "unsat"),
        ("(isomorphic-to f)", ("g=b.onnx", "f=a.onnx"), (*SAME, "(> Y[0,0] W[0,0])"), "unsat"),
        ("(isomorphic-to f)", ("f=a.onnx", "g=b.onnx"), (*SAME, "(< Y[0,0] W[0,0])"), "sat"),
        ("", ("f=a.onnx", "g=a.onnx"), (*SAME, "(< Y[0,0] W[0,0])"), "unsat"),
    ],
)
def test_two_networks(
    run: Run, files: Path, second: str, models: tuple[str, ...], asserts: tuple[str, ...], word: str
) -> None:
    Path("q.vnnlib").write_text(declared(*asserts, kind="real", second=second))
    named = [part for model in models for part in ("--network", model)]
    done = run("verify", "q.vnnlib", *named, "--json", "answer.json", "--witness", "out.txt")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == word
    assert Path("out.txt").read_text() == done.out
    assert json.loads(Path("answer.json").read_text())["specification"] == "q.vnnlib"
    if word == "sat":
        heads = ["X real [1,2,1]", "Y real [1,2]", "Z real [1,2,1]", "W real [1,2]"]
        assert [lines[k] for k in (1, 4, 7, 10)] == heads
        assert lines[2:4] == lines[8:10]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (declared("(> Y[0,0] 0.0)"), ("--network", "a.onnx"), "expected NAME=FILE"),
        (declared("(> Y[0,0] 0.0)"), ("--network", "g=a.onnx"), "declares no network 'g'"),
        (
            declared("(> Y[0,0] 0.0)"),
            ("--network", "f=a.onnx", "--network", "f=b.onnx"),
            "names 'f' twice",
        ),
        (declared("(> Y[0,0] 0.0)"), ("--network", "f=no.onnx"), "no.onnx: no such file"),
        (
            declared("(> Y[0,0] 0.0)", kind="float16"),
            ("--network", "f=a.onnx"),
            "q.vnnlib: declares type float16; verdicts are sound for float32 and real",
        ),
        (
            declared("(> Y[0,0] 0.0)"),
            ("--network", "f=a.onnx", "--arithmetic", "real"),
            "write real there instead of --arithmetic real",
        ),
        (
            declared("(> Y[0,0] 0.0)", second="(equal-to f)"),
            ("--network", "f=a.onnx", "--network", "g=a.onnx"),
            "network g is declared equal to f",
        ),
        (
            declared("(> Y[0,0] 0.0)", second=""),
            ("--network", "f=a.onnx"),
            "network g has no model (--network g=FILE)",
        ),
        (
            declared("(> Y[0,0] 0.0)", kind="real", second="(equal-to f)"),
            ("--network", "f=a.onnx", "--certificate", "c"),
            "several networks has no certificate",
        ),
        (
            declared("(> Y[0,0] 0.0)"),
            ("b.onnx", "--network", "f=a.onnx"),
            "with --network the only argument is the query",
        ),
        (
            declared("(> Y[0,0] 0.0)"),
            ("--network", "f=a.onnx", "--radius", "1"),
            "--radius describes a ball",
        ),
    ],
)
def test_errors_are_one_line(
    run: Run, files: Path, text: str, arguments: tuple[str, ...], words: str
) -> None:
    Path("q.vnnlib").write_text(text)
    done = run("verify", "q.vnnlib", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert words in done.err


def test_a_query_about_two_networks_names_them(run: Run, files: Path) -> None:
    Path("q.vnnlib").write_text(declared("(> Y[0,0] 0.0)", second=""))
    done = run("verify", "a.onnx", "q.vnnlib")
    assert done.code == 2
    assert "bnncert verify q.vnnlib --network f=FILE --network g=FILE" in done.err


@pytest.mark.parametrize("arguments", [("q.vnnlib",), ("q.vnnlib", "a.onnx"), ("q.vnnlib.gz",)])
def test_a_query_in_the_place_of_the_model(
    run: Run, files: Path, arguments: tuple[str, ...]
) -> None:
    Path(arguments[0]).write_text(declared("(> Y[0,0] 0.0)"))
    done = run("verify", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"(bnncert verify {arguments[0]} --network NAME=FILE)" in done.err
