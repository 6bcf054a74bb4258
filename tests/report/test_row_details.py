"""The command that asks about a row again, and why a row is undecided, in sentences."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bnncert.cli.program import app
from bnncert.regions.radii import PixelScale
from bnncert.report.page.row_data import command_parts, stage_seconds, why_undecided
from bnncert.results.rows import InstanceKey, NetworkRecord, Row
from bnncert.results.store import read_recorded
from tests.in_process import CODE

KEY = InstanceKey(
    "a" * 64,
    3,
    "i3",
    7,
    "linf",
    0.5 * 2 / 255,
    "-1.0,1.0",
    "all",
    "sdp",
    60.0,
    "violation",
    "plus",
    0,
)
ROW = Row(KEY, 7, "robust", 1.0, None, 0.1, "sdp", "[]", None, None, "0.1.0", "2025-03-01")
NETWORK = NetworkRecord(
    "a" * 64, "net", "/home/someone/my net.npz", input_lo=-1.0, input_hi=1.0, pixel_step=2 / 255
)


def command(row: Row, network: NetworkRecord = NETWORK) -> str:
    before, after = command_parts(network, row)
    return f"{before}{row.key.input_index} --label {row.key.label}{after}"


def test_names_have_no_folders_and_are_quoted() -> None:
    row = replace(ROW, data="/home/someone/some data.npz:x_test", scale="--scale 0.0 1.0")
    assert command(row) == (
        "bnncert verify 'my net.npz' --input 'some data.npz:x_test' --scale 0.0 1.0 --index 3 "
        "--label 7 --norm linf --radius 0.5px --rivals all --method sdp --timeout 60"
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/usr/lib/bnncert/data/mnist_sparse.npz", "demo:sparse"),
        ("demo:dense", "demo:dense"),
        ("random:3-2-2 zeros=0 seed=1", "MODEL"),
        ("", "MODEL"),
    ],
)
def test_bundled_names_and_files_that_are_not_known(source: str, name: str) -> None:
    text = command(replace(ROW, data="demo"), replace(NETWORK, source=source))
    assert text == command(replace(ROW, data="demo:3"), replace(NETWORK, source=source))
    assert text.startswith(f"bnncert verify {name} --input demo:3 --label 7 ")
    assert "--input POINTS --index 3" in command(ROW)


def test_options_that_differ_from_the_defaults() -> None:
    key = replace(
        KEY,
        **{"norm": "l0", "radius": 2.0, "within": 0.1, "grid": f"{2 / 255!r},-1.0", "seed": 4},
        **{"method": "milp", "ties": "robust", "sign_zero": "either"},
        **{"clip": "0.0,1.0", "timeout": None, "rivals": "3"},
    )
    after = command(replace(ROW, key=key)).partition("--label 7 ")[2]
    assert after == (
        "--norm l0 --radius 2 --within 12.75px --grid 1px --rivals 3 --method milp "
        "--timeout none --ties robust --seed 4 --sign-zero either --clip 0.0 1.0"
    )
    # lp reads no seed, and only `bound` takes options of a method.
    assert "--seed" not in command(replace(ROW, key=replace(KEY, method="lp", seed=4)))
    for method, option in (
        ("sdp-tight solver=clarabel", "--method sdp-tight --solver clarabel"),
        ("milp form=soft", "--method milp --form soft"),
    ):
        bound = command(replace(ROW, key=replace(key, method=method)))
        assert bound.startswith("bnncert bound ") and option in bound and "--ties" not in bound


def test_the_command_gives_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 784)).astype(np.uint8)
    np.savez("some points.npz", x=pixels, y=np.array([1, 2, 3]))
    asked = "run demo:sparse --count 2 --radius 0.1px --method interval --out r.sqlite --data"
    runner = CliRunner()
    for data in ("demo", "some points.npz"):
        assert runner.invoke(app, [*asked.split(), data]).exit_code == 0
    recorded = read_recorded(Path("r.sqlite"))
    assert [row.data for row in recorded.rows] == ["demo"] * 2 + ["some points.npz"] * 2
    for row in recorded.rows[1:3]:
        text = command(row, recorded.network(row.key.model_hash))
        _, *arguments = shlex.split(text)
        done = runner.invoke(app, [*arguments, "--json", "again.json"])
        again = json.loads(Path("again.json").read_text())
        assert done.exit_code == CODE[again["status"]], done.output
        status = "misclassified" if again["misclassified"] else again["status"]
        assert (status, again["lower"], again["label"]) == (row.status, row.lower, row.key.label)


def test_a_scale_of_pixels_is_stated_by_options() -> None:
    assert PixelScale.between(-1, 1).options == "--scale -1.0 1.0"
    colours = PixelScale.normalised([0.4914, 0.4822, 0.4465], [0.247, 0.243, 0.261])
    assert colours.options == "--normalise 0.4914,0.4822,0.4465 0.247,0.243,0.261"


TARGETS: list[dict[str, Any]] = [
    {"target": "class 1", "status": "robust", "lower": 3.0, "upper": None, "stage": "sdp"}
    | {"seconds": 1.0, "details": {"seconds": {"presolve": 0.5, "sdp": 1.0}}},
    {"target": "class 2", "status": "timeout", "lower": -1 / 3, "upper": 4.0, "stage": "sdp"}
    | {"seconds": 9.0, "details": {"seconds": {"presolve": 0.5, "attack": 8.0, "sdp": 1.0}}}
    | {"note": "the time limit was reached"},
    {"target": "class 3", "status": "timeout", "lower": -0.25, "upper": None, "stage": "sdp"}
    | {"seconds": 9.0, "details": {"seconds": {"presolve": 0.5, "attack": 8.0}}},
]
TARGETS[1]["details"]["presolve"] = [{"layer": 1, "neurons": 500, "open": 120}]


def test_an_undecided_row_has_reasons() -> None:
    row = replace(ROW, status="timeout", seconds=10.5, key=replace(KEY, method="auto"))
    assert why_undecided(row, TARGETS, "0.25 px", 2 / 255) == [
        "2 of 3 rivals are open. Hardest: class 2; its margin is between -0.333334 and 4.",
        "Unstable neurons: 120 of 500 in layer 1.",
        # The attack worked on two classes at once.
        "It took 10.50 s with a limit of 60 s: attack 8.00 s, sdp 2.00 s.",
        "The time limit was reached.",
        "The same input is certified at the smaller radius 0.25 px.",
        "What may help: more time (--timeout 240); integer pixels only (--grid 1px), if real "
        "inputs are not needed; a smaller radius.",
    ]


def test_advice_depends_on_the_question() -> None:
    unknown = replace(ROW, status="unknown", key=replace(KEY, method="lp", norm="l0"))
    assert why_undecided(unknown, [], "", 2 / 255) == [
        "No method returned an answer before the time limit.",
        "It took 0.10 s with a limit of 60 s.",
        "What may help: a complete method (--method auto); a smaller radius.",
    ]


def test_decided_rows_and_bounds_need_no_reason() -> None:
    assert why_undecided(ROW, TARGETS, "", None) == []
    bound = replace(ROW, status="unknown", key=replace(KEY, question="bound"))
    assert why_undecided(bound, TARGETS, "", None) == []


def test_broken_details_are_ignored() -> None:
    odd = [{"status": "timeout", "details": {"seconds": [], "presolve": [1]}, "lower": "x"}]
    row = replace(ROW, status="timeout")
    assert "no bound of its margin is known" in why_undecided(row, odd, "", None)[0]
    assert stage_seconds(odd, 1.0) == {"undecided": (0.0, 1)}
