"""`bnncert convert`: the same network in another format."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from tests.brute_force import TinyNetwork
from tests.cli.diamond import DIAMOND, Run, assert_one_line, possible_scores, write_network


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


#: Inputs 0 and 1 of a first layer with batch normalisation: gamma, beta, mean, variance, epsilon.
NORMALISED = {
    "W0": [[1, -1], [1, 1], [-1, 2]],
    "F0_0_normalise": [[1.5, -0.5, 2], [0.25, 0.1, -0.3], [0, 1, 0.5], [2, 3, 5], [1e-5] * 3],
    "W1": [[1, 1, -1], [-1, 1, 0]],
    "F1_0_shift": [0.5, 0.25],
    "F1_1_normalise": [[1, 0.5], [0, 1], [0.5, 0], [2, 3], [1e-5] * 2],
    "input_lo": -1,
    "input_hi": 1,
}


def test_irrational_numbers_are_kept_as_they_are(folder: Path, run: Run) -> None:
    Path("a.json").write_text(json.dumps(NORMALISED))
    network = bnncert.load("a.json")
    lo, hi = network.layers[0].enclosure
    assert np.all(lo < hi) and np.all(network.output.error > 0)
    for source, target in pairwise(("a.json", "b.npz", "c.json")):
        assert run("convert", source, target).out == f"{target}: {network.content_hash}\n"
    written = json.loads(Path("c.json").read_text())
    assert written["F0_0_normalise"] == NORMALISED["F0_0_normalise"]
    # ONNX has epsilon as float32.
    answer = run("convert", "a.json", "d.onnx")
    assert answer.code == 2 and not Path("d.onnx").exists()
    assert answer.err.strip().endswith("as ONNX needs it; write .json or .npz")


def test_integer_thresholds_are_the_same_at_all_pixels(folder: Path, run: Run) -> None:
    Path("a.json").write_text(json.dumps(NORMALISED))
    assert run("convert", "a.json", "pixels.json", "--grid", "1px").code == 0
    network, integers = bnncert.load("a.json"), bnncert.load("pixels.json")
    assert np.all(integers.layers[0].bias % 1 == 0.5)
    pixels = np.array([(a, b) for a in range(256) for b in range(256)], dtype=np.float64)
    signs = network.last_signs(-1 + 2 * (pixels / 255))
    np.testing.assert_array_equal(integers.last_signs(pixels), signs)
    assert len(np.unique(signs, axis=0)) > 3
    # The table has the integers themselves: 1 iff w.k >= threshold.
    assert run("info", "pixels.json", "--thresholds", "table.csv").code == 0
    rows = list(csv.DictReader(Path("table.csv").read_text().splitlines()))
    least = [int(row["threshold"]) for row in rows]
    sums = pixels @ np.array(integers.layers[0].weights.toarray()).T
    np.testing.assert_array_equal(np.where(sums >= least, 1, -1), signs)


def test_a_scale_defines_the_pixels(folder: Path, run: Run) -> None:
    without_box = {k: v for k, v in NORMALISED.items() if not k.startswith("input")}
    Path("a.json").write_text(json.dumps(without_box))
    answer = run("convert", "a.json", "b.json", "--grid", "1px")
    assert_one_line(answer, "give --scale LO HI")
    assert run("convert", "a.json", "b.json", "--grid", "1px", "--scale", "-1", "1").code == 0
    Path("c.json").write_text(json.dumps(NORMALISED))
    assert run("convert", "c.json", "d.json", "--grid", "1px").code == 0
    assert bnncert.load("b.json").content_hash == bnncert.load("d.json").content_hash


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_ties_at_pixels_stay_ties(folder: Path, run: Run, sign_zero: str) -> None:
    """Whole inputs are not rounded, so that a threshold can be a pixel level exactly."""
    net = {"W0": [[1, 1]], "b0": [-7], "W1": [[1], [-1]], "b1": [0, 0], "sign_zero": sign_zero}
    Path("a.json").write_text(json.dumps(net | {"input_lo": 0, "input_hi": 255}))
    assert run("convert", "a.json", "b.json", "--grid", "1px").code == 0
    assert bnncert.load("b.json").content_hash == bnncert.load("a.json").content_hash
    run("info", "b.json", "--thresholds", "t.csv")
    shown = {"plus": "7,,", "minus": "8,,", "either": "7.0,,either sign at the threshold"}
    assert Path("t.csv").read_text().splitlines()[1] == f"1,W0,0,2,{shown[sign_zero]}"


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, ("--grid", "2px"), "--grid is '2px'; convert takes 1px, all integer pixels"),
        ({}, ("--grid", "0.5"), "--grid is '0.5'; convert takes 1px, all integer pixels"),
        ({"W0": [[0.5, 0.25]]}, ("--grid", "1px"), "W0: neuron 0 has the weight 0.5"),
        ({"input_hi": [1, 2]}, ("--grid", "1px"), "a.json: one pixel level is not the same"),
        # 51 / 255 is 1/5, and 0.2 is not.
        ({"b0": [-0.2]}, ("--grid", "1px"), "neuron 0 is a pixel level up to the rounding"),
        ({}, ("--clip", "0", "1"), "--clip only adds a Clip to an ONNX graph"),
    ],
)
def test_what_has_no_integer_thresholds_is_refused(
    folder: Path, run: Run, changes: dict[str, Any], options: tuple[str, ...], message: str
) -> None:
    net = {"W0": [[1, 2]], "b0": [-0.3], "W1": [[1], [-1]], "b1": [0, 0]}
    box = {"input_lo": 0, "input_hi": 1}
    Path("a.json").write_text(json.dumps(net | box | changes))
    assert_one_line(run("convert", "a.json", "b.json", *options), message)
    assert not Path("b.json").exists()
