"""Networks that differ by rounding: what is said of them is true at every input."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from tests.cli.diamond import Run
from tests.in_process import command_line

WEIGHTS: list[Any] = [
    np.array([[1, 1, 0], [1, -1, 1], [0, 1, -1], [1, 1, 1]]),
    np.array([[1, -1, 1, 0], [1, 1, 1, -1], [-1, 1, 0, 1]]),
    np.array([[0.5, 1.25, -1.0], [1.0, -0.75, 0.5], [-0.25, 1.0, 1.0]]),
]
BIASES = [np.array([0.1, -0.3, 0.25, 0.7]), np.array([0.5, -0.5, 0.5]), np.array([0.1, 0.2, 0.3])]


def network(weights: Any = 0.0, output: Any = 0.0, first: Any = 0.0) -> bnncert.Network:
    """Return the network with other output weights, output biases and first-layer biases."""
    return bnncert.Network.from_arrays(
        [*WEIGHTS[:2], WEIGHTS[2] + weights],
        [BIASES[0] + first, BIASES[1], BIASES[2] + output],
        input_lo=-1,
        input_hi=1,
    )


def test_a_constant_in_the_tenth_digit_is_rounding() -> None:
    a, b = network(), network(output=[3e-10, 0.0, 0.0])
    found = bnncert.compare(a, b, tolerance=1e-8, timeout=60)
    assert (found.status, found.how, bool(found)) == ("rounding", "constants", True)
    assert found.rounding is not None and found.rounding.constants == 1
    assert found.rounding.scores == pytest.approx(3e-10) and found.rounding.sums == 0
    assert found.summary == (
        "equal up to rounding: 1 constant differs, by at most 2.4e-10 of its size; the class is "
        "the same unless two scores are within 3e-10"
    )


def test_a_bias_of_the_first_layer_is_named_as_a_sum() -> None:
    found = bnncert.compare(network(), network(first=1e-11), tolerance=1e-8, timeout=60)
    assert found.status == "rounding" and found.rounding is not None
    assert found.rounding.scores == 0 and found.rounding.sums >= 1e-11
    assert "unless a sum of the first layer is within 1" in found.summary


def test_more_than_the_tolerance_or_than_constants_is_decided_exactly() -> None:
    large = bnncert.compare(network(), network(output=[0.4, 0.0, 0.0]), tolerance=1e-8, timeout=60)
    assert large.status in ("equal", "different")
    assert any("more than the tolerance 1e-08" in note for note in large.notes)
    other = WEIGHTS[1].copy()
    other[0, 0] = 0
    pruned = bnncert.Network.from_arrays(
        [WEIGHTS[0], other, WEIGHTS[2]], BIASES, input_lo=-1, input_hi=1
    )
    found = bnncert.compare(network(), pruned, tolerance=1e-8, timeout=60)
    assert found.status in ("equal", "different")
    assert any("the tolerance is not used" in note for note in found.notes)
    with pytest.raises(bnncert.InputError, match="tolerance is 2"):
        bnncert.compare(network(), pruned, tolerance=2)


@pytest.mark.parametrize("seed", range(12))
def test_the_class_is_the_same_unless_the_stated_numbers_are_that_near(seed: int) -> None:
    """Scores and sums are compared in rationals at all corners and at random points."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-3, 0)
    a = network()
    b = network(
        size * rng.normal(size=(3, 3)), size * rng.normal(size=3), size * rng.normal(size=4)
    )
    rounding = bnncert.compare(a, b, tolerance=0.999, timeout=60).rounding
    assert rounding is not None
    points = [*product((-1.0, 0.0, 1.0), repeat=3), *rng.uniform(-1, 1, (300, 3)).tolist()]
    near = 0
    for point in points:
        sums = WEIGHTS[0] @ np.array([Fraction(x) for x in point]) + [
            Fraction(float(v)) for v in BIASES[0]
        ]
        scores = sorted(_scores(a, point))
        if scores[-1] - scores[-2] <= Fraction(rounding.scores) or any(
            abs(value) <= Fraction(rounding.sums) for value in sums
        ):
            near += 1
        else:
            assert a.classify(np.array(point)).item() == b.classify(np.array(point)).item()
    assert near < len(points) or size >= 0.1


def _scores(net: bnncert.Network, point: Any) -> list[Fraction]:
    """Evaluate the network in rationals, from the arrays above."""
    signs = np.array([Fraction(x) for x in point])
    for weights, biases in zip(WEIGHTS[:2], BIASES[:2], strict=True):
        sums = weights @ signs + [Fraction(float(v)) for v in biases]
        signs = np.array([Fraction(1 if s >= 0 else -1) for s in sums])
    exact = np.vectorize(Fraction, otypes=[object])(WEIGHTS[2])
    return list(exact @ signs + [Fraction(float(v)) for v in BIASES[2]])


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run: Run = command_line(monkeypatch, capsys, "compare")
    network().save("a.npz")
    network(output=[3e-10, 0.0, 0.0]).save("b.npz")
    done = run("a.npz", "b.npz", "--tolerance", "1e-6")
    assert done.code == 0 and "equal up to rounding: " in done.out
    assert run("a.npz", "b.npz", "--tolerance", "2").code == 2
    # Without a box there is no answer, and both ways out are named.
    for name in ("a", "b"):
        with np.load(f"{name}.npz") as arrays:
            kept = {key: arrays[key] for key in arrays if not key.startswith("input_")}
        np.savez(f"{name}.npz", **kept)
    done = run("a.npz", "b.npz")
    assert done.code == 3
    assert "--clip LO HI" in done.out and "--tolerance 1e-09 answers up to rounding" in done.out
