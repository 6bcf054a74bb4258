"""`bnncert monotone` and `bnncert fair` on a small table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from tests.cli.diamond import Run, read_json

TABLE: dict[str, Any] = {
    "features": [
        {"name": "income", "lo": 0, "hi": 9, "step": 1},
        {"name": "debt", "lo": 0, "hi": 9, "step": 1},
        {"name": "sex", "lo": 0, "hi": 1, "step": 1},
        {"name": "north", "lo": 0, "hi": 1, "step": 1},
        {"name": "south", "lo": 0, "hi": 1, "step": 1},
    ],
    "one_hot": {"region": ["north", "south"]},
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a network that grants a loan if income - debt + sex >= 2."""
    monkeypatch.chdir(tmp_path)
    network = bnncert.Network.from_arrays(
        [[[1, -1, 1, 0, 0], [1, 0, 0, 0, 0]], [[-1, 0], [1, 0]]],
        [[-2, -5], [0, 0]],
        input_lo=0,
        input_hi=9,
    )
    network.save(tmp_path / "net.json")
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    np.save(tmp_path / "records.npy", np.array([[3.0, 1, 0, 1, 0], [9.0, 1, 0, 0, 1]]))
    return tmp_path


def test_monotone_with_a_certificate(table: Path, run: Run) -> None:
    question = ("monotone", "net.json", "--table", "table.json", "--feature", "income")
    answer = run(*question, "--certificate", "proof.bnncert", "--json", "out.json")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("net.json, increasing in income; time limit 60 s")
    assert lines[1].startswith(
        "holds: class 1 is monotonically increasing in income (steps of 1), in"
    )
    assert lines[2].startswith("certificate: proof.bnncert (")
    tree = read_json(table / "out.json")
    assert (tree["status"], tree["pair"], tree["count"]) == ("holds", None, 2)
    assert [part["name"] for part in tree["parts"]] == [
        "income by 1, north = 1",
        "income by 1, south = 1",
    ]
    assert run("check", "proof.bnncert", "--model", "net.json").code == 0


def test_a_pair_of_inputs_is_named(table: Path, run: Run) -> None:
    question = ("fair", "net.json", "--table", "table.json", "--protect", "sex")
    answer = run(*question, "--json", "out.json", "-v")
    assert answer.code == 1
    assert "fails: the class depends on sex (steps of 1), in" in answer.out
    pair = read_json(table / "out.json")["pair"]
    first, second = pair["first"], pair["second"]
    assert pair["changed"] == [2] and first[2] == 0 and second[2] == 1
    assert pair["classes"] == [0, 1]
    assert [x[0] - x[1] + x[2] >= 2 for x in (first, second)] == [False, True]
    assert first[3] + first[4] == 1
    assert "  sex 0: class 0 (scores 1, -1)" in answer.out.splitlines()
    assert "  both replayed in exact arithmetic" in answer.out.splitlines()


def test_the_class_is_decreasing_in_debt(table: Path, run: Run) -> None:
    question = ("monotone", "net.json", "--table", "table.json", "--feature", "debt")
    assert "fails: class 1 is not monotonically increasing" in run(*question).out
    assert "holds" in run(*question, "--decreasing", "-q").out
    assert "holds: score 1" in run(*question, "--decreasing", "--score", "1").out
    assert "holds" in run(*question, "--label", "0").out


def test_groups_values_and_several_attributes(table: Path, run: Run) -> None:
    question = ("fair", "net.json", "--table", "table.json")
    assert "holds" in run(*question, "--protect", "region").out
    assert "which of north, south is 1" in run(*question, "--protect", "north,south").out
    answer = run(*question, "--protect", "region", "--protect", "sex=0,1", "--json", "-")
    tree = json.loads(answer.out)
    assert tree["status"] == "fails"
    assert tree["changes"][1] == {
        "features": [2],
        "kind": "values",
        "step": None,
        "values": [[0.0], [1.0]],
    }


def test_the_ball_around_a_record(table: Path, run: Run) -> None:
    question = ("fair", "net.json", "--table", "table.json", "--protect", "sex")
    near = ("--input", "records.npy", "--radius", "1", "--index")
    assert "fails" in run(*question, *near, "0").out
    assert "holds" in run(*question, *near, "1").out
    # What changes takes all of its values, whatever the radius is.
    answer = run(*question, "--input", "records.npy", "--index", "0", "--radius", "0")
    assert "holds" in answer.out


def test_names_of_a_csv_file_and_real_inputs(table: Path, run: Run) -> None:
    (table / "names.csv").write_text("income,debt,sex,north,south\n1,2,3,4,5\n")
    question = ("monotone", "net.json", "--table", "names.csv", "--feature", "debt")
    assert "in debt (real values)" in run(*question).out
    assert "in debt (steps of 2)" in run(*question, "--step", "2").out
    assert "in debt (steps of 1)" in run(*question, "--grid", "1").out
    assert (
        "in input 1 (steps of 1)"
        in run("monotone", "net.json", "--feature", "1", "--grid", "1", "--clip", "0", "9").out
    )


BAD = {
    "there is no feature 'wage'": ("--protect", "wage"),
    "sex is protected twice": ("--protect", "sex", "--protect", "2"),
    "value 7 of feature sex is outside": ("--protect", "sex=0,7"),
    "expected values as in sex=0,1": ("--protect", "sex=a"),
    "has no values of its own": ("--protect", "region=0,1"),
    "protect the whole group": ("--protect", "north"),
    "not a multiple of the grid's step": ("--protect", "income", "--step", "1.5"),
    "the step of feature sex is 2": ("--protect", "sex", "--step", "2"),
    "--radius is missing": ("--protect", "sex", "--input", "records.npy"),
    "holds 2 points; choose one with --index": (
        *("--protect", "sex", "--input", "records.npy", "--radius", "1"),
    ),
    "--radius is -1": ("--protect", "sex", "--input", "records.npy", "--radius", "-1"),
    "net.json: cannot be written": ("--protect", "sex", "--certificate", "net.json"),
    "in a one-hot group twice": ("--protect", "sex", "--one-hot", "3,4"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_questions_are_one_line(table: Path, run: Run, message: str) -> None:
    answer = run("fair", "net.json", "--table", "table.json", *BAD[message])
    assert answer.code == 2
    assert message in answer.err and len(answer.err.splitlines()) == 1


BAD_TABLES = {
    "expected an object with features": [],
    "table.json: feature 1: expected an object with a name": {"features": [{"name": "a"}, {}]},
    "feature 0: unknown field 'low'": {"features": [{"name": "a", "low": 0}]},
    "feature 0: lo is '1'; expected a finite number": {"features": [{"name": "a", "lo": "1"}]},
    "feature 0: lo 2, hi 1, step nan are no values": {
        "features": [{"name": "a", "lo": 2, "hi": 1}]
    },
    "table.json: 1 columns; the network has 5 inputs": {"features": [{"name": "a"}]},
    "column 1 is called 'a' as another one": {"features": [{"name": "a"}] * 5},
    "one_hot group 'g' is not a list": {**TABLE, "one_hot": {"g": ["north", "east"]}},
    "feature debt has no step while others have one": {
        **TABLE,
        "features": [
            {k: v for k, v in f.items() if k != "step" or f["name"] != "debt"}
            for f in TABLE["features"]
        ],
    },
}


@pytest.mark.parametrize("message", BAD_TABLES)
def test_bad_tables_are_one_line(table: Path, run: Run, message: str) -> None:
    (table / "table.json").write_text(json.dumps(BAD_TABLES[message]))
    answer = run("monotone", "net.json", "--table", "table.json", "--feature", "0")
    assert answer.code == 2
    assert message in answer.err and len(answer.err.splitlines()) == 1


def test_monotone_refuses_what_has_no_order(table: Path, run: Run) -> None:
    question = ("monotone", "net.json", "--table", "table.json", "--feature")
    assert "has no order" in run(*question, "region").err
    assert "has no order" in run(*question, "north").err
    assert "label is 5; the network has labels 0 to 1" in run(*question, "debt", "--label", "5").err
    assert "about one of them" in run(*question, "debt", "--label", "1", "--score", "1").err


def test_a_network_without_a_data_box_needs_bounds(table: Path, run: Run) -> None:
    bnncert.Network.from_arrays([[[1, 1]], [[1], [-1]]], [[0], [0, 0]]).save(table / "open.json")
    answer = run("fair", "open.json", "--protect", "0")
    assert answer.code == 2 and "no data box is stated; give lo of input 0" in answer.err
    assert run("fair", "open.json", "--protect", "0", "--clip", "-1", "1").code == 1


def test_the_time_limit_leaves_bounds(table: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.choice([-1.0, 1.0], shape) for shape in ((60, 20), (60, 60), (3, 60))]
    biases = [rng.normal(0, 1, 60), np.zeros(60), np.zeros(3)]
    hard = bnncert.Network.from_arrays(weights, biases, input_lo=-1, input_hi=1)
    result = bnncert.monotone(hard, 0, label=0, increasing=True, timeout=1e-3)
    assert result.status == "timeout" and result.seconds < 1.5
    assert "undecided whether class 0 is monotonically increasing" in result.summary


def test_ctrl_c_keeps_what_is_known(table: Path) -> None:
    network = bnncert.load(table / "net.json")
    box = bnncert.Box([0, 0, 0, 0, 0], [9, 9, 1, 1, 1], grid=1)
    calls: list[str] = []

    def stop(text: str, done: int, total: int) -> None:
        calls.append(text)
        if text.startswith("part 2"):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        bnncert.monotone(network, 0, box, one_hot=[(3, 4)], progress=stop)
    result = caught.value.answer
    assert result.status == "unknown" and result.count == 2
    assert [part.status for part in result.parts][:1] == ["holds"]


def test_a_pair_of_images_is_shortened_unless_verbose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = [[[1, *[0] * 50]], [[-1], [1]]]
    bnncert.Network.from_arrays(weights, [[-0.5], [0, 0]], input_lo=0, input_hi=1).save("wide.json")
    question = ("fair", "wide.json", "--protect", "0", "--grid", "1")
    short, full = run(*question).out, run(*question, "-v").out
    assert "and 10 more (all of them with -v or --json)" in short and "input 50 " not in short
    assert "input 50 " in full and " more (" not in full
