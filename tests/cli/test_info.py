"""`bnncert info`: what is in a network file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.brute_force import TinyNetwork
from tests.cli.diamond import Run, assert_one_line, read_json, write_network


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


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user who is refused something"
)
def test_a_protected_file_is_refused(folder: Path, run: Run) -> None:
    (folder / "mine.json").write_text("precious")
    (folder / "mine.json").chmod(0o400)
    assert_one_line(run("info", "net.npz", "--json", "mine.json"), "mine.json", "denied")
    (folder / "net.npz").chmod(0)
    assert_one_line(run("info", "net.npz"), "net.npz", "denied")


def test_thresholds_are_written_as_a_table(folder: Path, run: Run) -> None:
    """Each row decides its neuron: by the sum, and by the number of inputs that agree."""
    net = TinyNetwork(
        (np.array([[1.5, -2.0]]), np.array([[1], [-1], [0]]), np.array([[1, 1, 0], [0, 1, -1]])),
        (np.array([0.75]), np.array([0.5, -1.0, 3.0]), np.zeros(2)),
        "plus",
    )
    write_network(folder / "net.npz", net)
    answer = run("info", "net.npz", "--thresholds", "table.csv")
    assert answer.code == 0 and answer.out.endswith("thresholds: table.csv\n")
    assert (folder / "table.csv").read_text().splitlines() == [
        "layer,name,neuron,weights,threshold,agreeing,note",
        "1,W0,0,2,-0.75,,",
        # y + 1/2 >= 0 iff y = 1; -y - 1 >= 0 iff y = -1; 3 >= 0 always.
        "2,W1,0,1,1,1,",
        "2,W1,1,1,1,1,",
        "2,W1,2,0,0,0,",
    ]
    assert_one_line(run("info", "net.npz", "--thresholds", "no/t.csv"), "No such directory")
