"""Shared by the tests of the commands: a network with known answers, and how a command is run.

The network has h = (sign(x0 + x1), sign(x0 - x1)) and, with the biases 1, 0, 0.5,

    h         (+,+)        (-,+)          (+,-)          (-,-)
    scores    3, 0, 0.5    1, 2, -1.5     1, -2, 2.5     -1, 0, 0.5

so class 0 wins only where h = (+,+): on the quarter plane x0 > |x1|.  From (1, 0) the distance to
its border is 1/2 in L-inf, 1/sqrt(2) in L2 and 1 in L1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from tests.brute_force import TinyNetwork
from tests.in_process import Outcome

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

POINT = ("--input", "x.npy")

BALL = (*POINT, "--radius", "0.25")

Run = Callable[..., Outcome]


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


def diamond_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the network and the point (1, 0) into a folder, and make it the working directory."""
    monkeypatch.chdir(folder)
    write_network(folder / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0)
    np.save(folder / "x.npy", np.array([1.0, 0.0]))
    return folder


def read_json(path: Path) -> dict[str, Any]:
    tree = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(tree, dict)
    return tree


def query(radius: str) -> str:
    """Return the query "class 0 loses somewhere within `radius` of (1, 0)"."""
    r = Fraction(radius)
    bounds = [("X_0", 1 - r, 1 + r), ("X_1", -r, r)]
    lines = [
        f"(assert (>= {x} {float(lo)}))\n(assert (<= {x} {float(hi)}))\n" for x, lo, hi in bounds
    ]
    return DECLARATIONS + "".join(lines) + NOT_CLASS_0


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


def assert_one_line(answer: Outcome, *mentioned: str) -> None:
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("bnncert: ")
    assert answer.err.endswith("\n")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    for word in mentioned:
        assert word.lower() in answer.err.lower()
