"""`bnncert faults`: the table, the files, the limits and what is refused."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.kernel import check
from bnncert.kernel.rules.fault_questions import FaultScope
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.questions.faults import fault_search
from bnncert.questions.faults.faults_answer import FaultsResult
from tests.cli.diamond import POINT, Run, assert_one_line


def test_a_table_with_a_certificate_and_json(folder: Path, run: Run) -> None:
    answer = run("faults", "net.npz", *POINT, "--certificate", "a.bnncert", "--json", "a.json")
    assert answer.code == 0
    tree = json.loads((folder / "a.json").read_text())
    assert [row["name"] for row in tree["rows"]] == [
        *("layer 1", "output", "anywhere", "one neuron of layer 1", "one score of the output"),
        *("layer 1", "anywhere"),
    ]
    first = tree["rows"][0]
    assert first["exact"] and len(first["bits"]) == first["falsified"] == first["certified"] + 1
    assert first["bits"][0].keys() == {"layer", "neuron", "input", "old", "new"}
    assert "weights     layer 1" in answer.out and answer.out.count("certificate: a.bnncert") == 1
    checked = run("check", "a.bnncert", "--model", "net.npz")
    assert checked.code == 0
    row = re.search("flipped weights in layer 1: ([^;]*);", checked.out)
    assert row is not None and f"some {first['falsified']} " in row[1]


def test_verbose_lists_all_faults_and_quiet_only_the_table(folder: Path, run: Run) -> None:
    quiet, loud = (run("faults", "net.npz", *POINT, flag).out for flag in ("-q", "-v"))
    assert "-> " not in quiet and "certified" in quiet
    assert loud.count("faults for class") + loud.count("fault for class") > 1


def test_a_class_that_differs_without_faults(folder: Path, run: Run) -> None:
    answer = run("faults", "net.npz", *POINT, "--label", "1", "--certificate", "b.bnncert")
    assert answer.code == 1 and "the class is another one without any fault" in answer.out
    checked = run("check", "b.bnncert", "--model", "net.npz")
    assert checked.code == 0 and "weights anywhere: the class differs without any" in checked.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max", "-1"), ("limit is -1", ">= 0")),
        (("--layer", "0"), ("layer is 0", "1 to 1")),
        (("--layer", "3"), ("layer is 3", "the output, 2")),
        (("--radius", "-1"), ("--radius",)),
        (("--question-timeout", "0"), ("question timeout",)),
        (("--method", "unheard-of"), ("unheard-of",)),
        (("--rivals", "9"), ("rival is 9",)),
        (("--clip", "5", "6"), ("empty",)),
    ],
)
def test_what_cannot_be_asked(
    folder: Path, run: Run, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(run("faults", "net.npz", *POINT, *options), *words)


def test_an_input_is_needed(folder: Path, run: Run) -> None:
    assert_one_line(run("faults", "net.npz"), "--input is missing")


def test_layers_without_bits_of_their_own_are_refused() -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    pooled = replace(net, layers=(replace(net.layers[0], name="conv1 (max-pool)"),))
    with pytest.raises(bnncert.InputError, match=r"layer 1 \(conv1 \(max-pool\)\).*dense layers"):
        bnncert.faults(pooled, bnncert.Ball("linf", [0.5, 0.25], 0), label=0)


def test_the_time_limit_is_kept() -> None:
    network, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(1), 0.0, -1, 1)
    since = time.monotonic()
    found = bnncert.faults(network, ball, 2, timeout=0.5)
    assert time.monotonic() - since < 10.0
    assert all(row.certified is None or row.certified >= 0 for row in found.rows)


def test_without_time_nothing_is_claimed(tmp_path: Path) -> None:
    network, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(1), 4 / 127.5, -1, 1)
    file = tmp_path / "faults.bnncert"
    found = bnncert.faults(network, ball, 2, timeout=1e-3, certificate=file)
    assert all(row.certified is None and row.falsified is None for row in found.rows)
    assert found.certificate is None and found.no_certificate == "nothing is decided"
    assert not file.exists()


def test_an_undecided_ball_still_has_faults_that_change_the_class() -> None:
    network, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(1), 0.5 / 127.5, -1, 1)
    ways: dict[str, Any] = {"method": "interval", "layers": [3]}
    found = bnncert.faults(network, ball, 2, **ways)
    row = found.row("weights", "layer", "output")
    assert row.certified is None and row.falsified is not None and row.falsified <= 89


def test_ctrl_c_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fault_search.FaultSearch, "_certify", stop)
    point = bnncert.Ball("linf", [0.5, 0.25], 0)
    with pytest.raises(Interrupted) as caught:
        bnncert.faults(net, point, label=0, certificate=tmp_path / "known.bnncert")
    found: FaultsResult = caught.value.answer
    assert found.row("weights", "layer", 1).falsified == 1
    assert found.certificate is not None
    assert (
        "layer 1: the class holds without any, some 1 is not"
        in check(found.certificate, net).statement
    )
    assert all(row.certified == 0 for row in found.rows)


def test_scopes_of_chosen_layers() -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    found = fault_search.scopes_of(net, [2])
    assert found == [FaultScope("weights", "layer", 1), FaultScope("weights", "neuron", 1)]
