"""`bnncert compare` of two networks: text, JSON, files, exit codes and bad input."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.questions.compare.comparison_answer import NetworkComparison
from tests.brute_force import TinyNetwork
from tests.cli.diamond import DIAMOND, Run, read_json, write_network


@pytest.fixture
def pair(folder: Path, run: Run) -> Path:
    """Return the working directory, with a network, its export and a changed one."""
    assert run("convert", "net.npz", "net.onnx").code == 0
    biases = (np.array([0.5, 0.0]), DIAMOND.biases[1])
    changed = TinyNetwork(DIAMOND.weights, biases, "plus")
    write_network(folder / "changed.npz", changed, input_lo=-2.0, input_hi=2.0)
    return folder


def test_a_network_and_its_export(pair: Path, run: Run) -> None:
    answer = run("compare", "net.npz", "net.onnx", "--certificate", "c.bnncert")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("A = net.npz, B = net.onnx: the data box; time limit 60 s")
    assert lines[1].split() == ["layer", "neurons", "of", "A", "of", "B", "differ"]
    assert lines[2].split() == ["layer", "1", "2", "2", "0"]
    assert lines[4].startswith("identical: the normal forms are equal, in ")
    assert lines[5].startswith("certificate: c.bnncert (")
    checked = run("check", "c.bnncert", "--model", "net.npz", "--model", "net.onnx", "--json", "-")
    assert checked.code == 0 and json.loads(checked.out)["verdict"] == "networks_equal"
    assert json.loads(checked.out)["other"] == "net.onnx"
    alone = run("check", "c.bnncert", "--model", "net.npz")
    assert alone.code == 1 and "name both (--model A --model B)" in alone.out


def test_a_difference_with_its_files(pair: Path, run: Run) -> None:
    files = ("--certificate", "c.bnncert", "--save-counterexample", "d.npy", "--json", "d.json")
    answer = run("compare", "net.npz", "changed.npz", *files, "-v")
    assert (answer.code, answer.err) == (1, "")
    assert "first difference: layer 1, neuron 0: the bias is 0 in A and 0.5 in B" in answer.out
    assert "different: class " in answer.out and "scores of B at the input: " in answer.out
    point = np.load("d.npy")
    nets = [bnncert.load(name) for name in ("net.npz", "changed.npz")]
    one, two = (int(net.classify(point)[0]) for net in nets)
    tree = read_json(pair / "d.json")
    assert tree["difference"]["classes"] == [one, two] and one != two
    assert tree["difference"]["input"] == point.tolist()
    assert np.array_equal(point.astype(np.float32), point)
    assert tree["network_hashes"] == [net.content_hash for net in nets]
    assert tree["status"] == "different" and tree["layers"][0]["differing"] == 1
    checked = run("check", "c.bnncert", "--model", "net.npz", "--model", "changed.npz")
    assert checked.code == 0
    assert f"the first network gives class {one} and the second one class {two}" in checked.out


def test_a_ball_in_which_the_networks_agree(pair: Path, run: Run) -> None:
    ball = ("--input", "x.npy", "--radius", "0.25")
    answer = run("compare", "net.npz", "changed.npz", *ball, "-q")
    assert answer.code == 0 and answer.out.count("\n") == 1
    assert answer.out.startswith("equal: the same class for every input of the L-inf ball of")
    wider = run("compare", "net.npz", "changed.npz", "--input", "x.npy", "--radius", "1", "-q")
    assert wider.code == 1 and wider.out.startswith("different: class ")


def test_a_box_and_a_grid(pair: Path, run: Run) -> None:
    """On the grid of integers from -2 on, x0 + x1 is no number in [-0.5, 0)."""
    grid = run("compare", "net.npz", "changed.npz", "--grid", "1", "--json", "-")
    assert grid.code == 0 and json.loads(grid.out)["status"] == "equal"
    assert "grid of step 1 from -2" in json.loads(grid.out)["scope"]
    box = run("compare", "net.npz", "changed.npz", "--clip", "0", "1", "--json", "-")
    assert box.code == 0 and json.loads(box.out)["region"]["lo"] == [0.0, 0.0]


def test_all_inputs_of_a_data_set(pair: Path, run: Run) -> None:
    points = np.array([[1.0, 0.0], [0.1, -0.2], [1.0, -1.25], [-1.0, 0.5], [0.0, -0.4]])
    np.save("points.npy", points)
    answer = run("compare", "net.npz", "changed.npz", "--data", "points.npy", "--json", "d.json")
    nets = [bnncert.load(name) for name in ("net.npz", "changed.npz")]
    wanted = np.flatnonzero(nets[0].classify(points) != nets[1].classify(points)).tolist()
    assert answer.code == 1 and wanted == [1, 2, 4]
    assert f"different: the classes of {len(wanted)} of 5 inputs" in answer.out
    classes = [int(net.classify(points[1])[0]) for net in nets]
    assert f"input 1: class {classes[0]} of A, {classes[1]} of B" in answer.out
    tree = read_json(pair / "d.json")
    assert tree["inputs"]["differing"] == wanted and tree["inputs"]["count"] == 5
    same = run("compare", "net.npz", "net.onnx", "--data", "points.npy", "-q")
    assert same.code == 0 and same.out.startswith("identical")


def test_bad_input(pair: Path, run: Run) -> None:
    three = TinyNetwork((np.ones((2, 3)), DIAMOND.weights[1]), DIAMOND.biases, "plus")
    two_classes = TinyNetwork(
        (DIAMOND.weights[0], DIAMOND.weights[1][:2]), (np.zeros(2), np.zeros(2)), "plus"
    )
    write_network(pair / "three.npz", three)
    write_network(pair / "classes.npz", two_classes)
    write_network(pair / "far.npz", two_classes, input_lo=5.0, input_hi=6.0)
    write_network(
        pair / "near.npz", replace(two_classes, sign_zero="minus"), input_lo=0.0, input_hi=1.0
    )
    (pair / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    for words, text in (
        (("missing.npz",), "missing.npz: no such file"),
        (("broken.npz",), "broken.npz: "),
        (("three.npz",), "three.npz: 3 inputs, but net.npz has 2"),
        (("classes.npz",), "classes.npz: 2 classes, but net.npz has 3"),
        (("changed.npz", "--radius", "1"), "--radius belongs to --input, which was not given"),
        (("changed.npz", "--input", "x.npy"), "--radius is missing"),
        (("changed.npz", "--input", "x.npy", "--radius", "-1"), "--radius is '-1'"),
        (("changed.npz", "--clip", "1", "0"), "--clip"),
        (("changed.npz", "--method", "none"), "none"),
        (("changed.npz", "--timeout", "0"), "timeout is 0"),
        (("changed.npz", "--save-counterexample", "d.png"), "beside the centre of a ball"),
        (("changed.npz", "--certificate", "net.npz"), "this command reads it"),
        (("changed.npz", "--data", "x.npy", "--json", "x.npy"), "this command reads it"),
    ):
        answer = run("compare", "net.npz", *words)
        assert answer.code == 2 and answer.out == "", words
        assert answer.err.count("\n") == 1 and text in answer.err, (words, answer.err)
    apart = run("compare", "far.npz", "near.npz")
    assert apart.code == 2 and "have no input in common" in apart.err


def test_results_files_are_not_networks(pair: Path, run: Run) -> None:
    asked = ("run", "net.npz", "--data", "x.npy", "--radius", "0.1", "--out", "a.sqlite")
    assert run(*asked).code == 0
    for words in (("a.sqlite", "net.npz"), ("net.npz", "a.sqlite"), ("a.sqlite", "a.sqlite")):
        answer = run("compare", *words)
        assert (answer.code, answer.out) == (2, "")
        wanted = "bnncert: a.sqlite: not a network; bnncert diff compares two results files\n"
        assert answer.err == wanted


def test_ctrl_c_prints_and_writes_what_is_known(
    pair: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted(NetworkComparison("unknown", "", "the data box", (), (), 0.5))

    monkeypatch.setattr("bnncert.questions.compare.compare.compare", interrupted)
    # Ctrl-C ends the process without an exception.
    monkeypatch.setattr("bnncert.cli.program._end_interrupted", lambda: sys.exit(130))
    answer = run("compare", "net.npz", "changed.npz", "--json", "d.json")
    assert answer.code == 130
    assert "interrupted after 0.50 s: the search is not finished" in answer.out
    assert "unknown: no difference found on the data box" in answer.out
    assert read_json(pair / "d.json")["interrupted"] is True
