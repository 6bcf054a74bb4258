"""Bad input: one line that names the file and the place, and exit code 2."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bnncert
from tests.brute_force import TinyNetwork
from tests.cli.diamond import (
    BALL,
    DECLARATIONS,
    DIAMOND,
    HARD,
    NOT_CLASS_0,
    POINT,
    Run,
    assert_one_line,
    command,
    query,
    write_network,
)


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


#: The arguments after the command, and what its one line has to mention.
#: Those about options that only `bound` has.
OF_BOUND = ("no samples", "unknown form")

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
    "unknown rival": (("net.npz", *BALL, "--rivals", "some"), ("--rivals", "'some'")),
    "rival too large": (("net.npz", *BALL, "--rivals", "3"), ("rival is 3",)),
    "rival is the label": (("net.npz", *BALL, "--rivals", "0"), ("rival 0",)),
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
    "noise as query": (("net.npz", "noise.onnx"), ("noise.onnx:", "UTF-8")),
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


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_that_names_it(folder: Path, run: Run, name: str) -> None:
    break_files(folder)
    arguments, mentioned = BAD_INPUT[name]
    assert_one_line(run("bound" if name in OF_BOUND else "verify", *arguments), *mentioned)


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
        (("demo", "--radius", "nan"), ("--radius", "nan")),
        (("demo", "--network", "huge"), ("--network", "huge")),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_the_other_commands_refuse_bad_input_too(
    folder: Path, run: Run, arguments: tuple[str, ...], mentioned: tuple[str, ...]
) -> None:
    assert_one_line(run(*arguments), *mentioned)


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full")
def test_a_full_standard_output_is_named() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bnncert", "methods"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    message = "bnncert: standard output: cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (2, message)
