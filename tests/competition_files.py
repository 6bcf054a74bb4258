"""Small models and queries as VNN-COMP would give them, and its result files read on their own.

Class 0 of the network wins on the quarter plane x0 > |x1|: a square of radius r around (a, 0) lies
in it for r < a/2, and holds points of other classes for r > a/2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime

from bnncert import Network
from bnncert.model.loading import load_demo_images, load_demo_network

WORDS = ("sat", "unsat", "unknown", "timeout")


def diamond() -> Network:
    """Return the network, with numbers that float32 holds exactly."""
    weights = (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]]))
    return Network.from_arrays(weights, (np.zeros(2), np.array([1.0, 0.0, 0.5])))


def write_hard(model: Path, vnnlib: Path) -> None:
    """Write a bundled network and a ball around one of its images that takes minutes."""
    load_demo_network("dense").save(model)
    images = load_demo_images()
    point, radius = images.point(2), 1 / 127.5
    lower, upper = np.maximum(point - radius, -1), np.minimum(point + radius, 1)
    number = np.format_float_positional
    text = query([number(v) for v in lower], [number(v) for v in upper], int(images.labels[2]), 10)
    vnnlib.write_text(text)


def query(
    lower: Sequence[object], upper: Sequence[object], label: int = 0, classes: int = 3
) -> str:
    """Return a query that asks for a point of a box where another class scores as much."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(classes)]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{i} {low}))", f"(assert (<= X_{i} {high}))"]
    rivals = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(classes) if j != label)
    return "\n".join([*lines, f"(assert (or {rivals}))"]) + "\n"


def square(radius: float) -> str:
    """Return the query about a square around (1, 0): sat above radius 0.5, unsat below."""
    return query([1 - radius, -radius], [1 + radius, radius])


@dataclass(frozen=True)
class Parsed:
    """A result file."""

    word: str
    inputs: list[Fraction]
    outputs: list[Fraction]


def parse_result(path: Path) -> Parsed:
    """Read a result file by VNN-COMP's rules, and nothing else."""
    first, _, rest = path.read_text(encoding="ascii").partition("\n")
    assert first in WORDS
    if first != "sat":
        assert rest == ""
        return Parsed(first, [], [])
    pair = r"\(([XY])_(\d+) (-?\d+(?:\.\d+)?)\)"
    assert re.fullmatch(rf"\((?:{pair}\s*)+\)\s*", rest)
    values: dict[str, list[Fraction]] = {"X": [], "Y": []}
    for kind, number, value in re.findall(pair, rest):
        assert int(number) == len(values[kind])
        values[kind].append(Fraction(value))
    return Parsed(first, values["X"], values["Y"])


def executed(model: bytes, inputs: Sequence[Fraction]) -> list[float]:
    """Return what onnxruntime computes from a witness, in single precision."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in entry.shape]
    point = np.array([float(v) for v in inputs], dtype=np.float32).reshape(shape)
    return [float(v) for v in session.run(None, {entry.name: point})[0].reshape(-1)]


def assert_witness(
    found: Parsed, model: bytes, lower: Sequence[float], upper: Sequence[float]
) -> None:
    """Check a witness without tolerance: inside the box, and class 0 does not win."""
    assert len(found.inputs) == len(lower)
    for value, low, high in zip(found.inputs, lower, upper, strict=True):
        # Decimals, as the query writes them.
        assert Fraction(str(low)) <= value <= Fraction(str(high))
        assert Fraction(float(np.float32(float(value)))) == Fraction(float(value))
    outputs = executed(model, found.inputs)
    np.testing.assert_allclose([float(v) for v in found.outputs], outputs, rtol=1e-6, atol=1e-7)
    assert max(outputs[1:]) >= outputs[0]
