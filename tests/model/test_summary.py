"""Networks, regions, problems and results in print."""

from __future__ import annotations

import numpy as np
import pytest

import bnncert
from bnncert.problem import robustness


def network(hidden: int = 1) -> bnncert.Network:
    """Return 3 inputs, some layers of 2 neurons, 2 classes."""
    weights = [np.array([[1.0, 0.0, -1.0], [1.0, 1.0, 0.0]])]
    weights += [np.array([[1.0, 1.0], [1.0, -1.0]])] * hidden
    return bnncert.Network.from_arrays(
        weights, [np.full(2, 0.5)] * len(weights), input_lo=-1.0, input_hi=1.0
    )


def test_a_network_is_a_table_of_layers() -> None:
    made = network()
    assert repr(made) == "Network(3-2-2, <arrays>)"
    lines = str(made).splitlines()
    assert lines[0] == "Network 3-2-2, <arrays>"
    assert lines[2].split() == ["1", "dense", "2", "3", "-1,", "1", "33", "%", "plus"]
    assert lines[3].split() == ["output", "dense", "2", "2", "-1,", "1", "0", "%"]
    assert lines[4] == "inputs of shape 3 in [-1, 1]"
    assert made._repr_html_().count("<tr>") == 3


def test_deep_networks_stay_short() -> None:
    assert len(str(network(hidden=40)).splitlines()) <= 13


@pytest.mark.parametrize(
    ("region", "text"),
    [
        (
            bnncert.Ball("l2", np.zeros(3), 0.5, -1.0, 1.0),
            "Ball(l2, radius 0.5, data box [-1, 1], 3 inputs)",
        ),
        (bnncert.Ball("linf", np.zeros(3), 0.5), "Ball(linf, radius 0.5, 3 inputs)"),
        (
            bnncert.L0Ball(np.zeros(3), 2, -1.0, 1.0, within=0.25),
            "L0Ball(at most 2 changes, by at most 0.25, data box [-1, 1], 3 inputs)",
        ),
        (
            bnncert.Box([0.0, 0.0], [1.0, 0.0], grid=bnncert.Grid(0.5)),
            "Box([0, 1], 1 of the inputs can change, 2 inputs, grid of step 0.5 from 0)",
        ),
    ],
)
def test_regions_say_what_they_are(region: bnncert.Region, text: str) -> None:
    assert repr(region) == text


def test_problems_and_results() -> None:
    made = network()
    ball = bnncert.Ball("linf", np.zeros(3), 0.1)
    label = int(made.classify(np.zeros(3))[0])
    problem = robustness(made, ball, label)
    assert repr(problem) == (
        f"Problem({made!r}, {ball!r}, label {label}, 1 target (class {1 - label}))"
    )
    result = bnncert.verify(made, ball, label)
    assert repr(result).startswith(f"Result({result.status.replace('_', ' ')} by auto in ")
    lines = str(result).splitlines()
    assert lines[1].split()[:2] == ["target", "answer"]
    assert lines[2].split()[:2] == ["class", str(1 - label)]
    assert f"class {1 - label}" in result._repr_html_()
