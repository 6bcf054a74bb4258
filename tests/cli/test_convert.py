"""`bnncert convert`: the same network in another format."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import bnncert
from tests.brute_force import TinyNetwork
from tests.cli.diamond import DIAMOND, Run, possible_scores, write_network


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
