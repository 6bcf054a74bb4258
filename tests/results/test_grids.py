"""Runs and experiments about integer pixels and L0 balls: answers, resuming, and what is shown."""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.regions.radii import inputs_text, radius_text, read_radius, read_step
from bnncert.report.page.document import page_text
from bnncert.results.instance import Balls, Settings
from bnncert.results.labelled_points import Data
from bnncert.results.plan import plan_run
from bnncert.results.rows import InstanceKey
from bnncert.results.store import ResultsFile, read_recorded
from tests.cli.diamond import assert_one_line
from tests.in_process import Outcome, command_line
from tests.results.tiny import BIASES, WEIGHTS

Run = Callable[..., Outcome]

#: Around (1, 0) with pixels as large as an input unit; the answers on the reals and on the grid
#: are those of tests/commands/test_grid.py.
POINTS = np.array([[1.0, 0.0], [2.0, 0.0]])
ASK = ("run", "net.npz", "--data", "data.npz", "--out", "r.sqlite", "--radius")


@pytest.fixture(autouse=True)
def pixels(folder: Path) -> None:
    """The tiny network with a pixel step, and two points of class 0."""
    network = bnncert.Network.from_arrays(
        list(WEIGHTS), list(BIASES), input_lo=-2.0, input_hi=2.0, pixel_step=1.0
    )
    network.save(folder / "net.npz")
    np.savez(folder / "data.npz", points=POINTS, labels=np.array([0, 0]))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return what runs the command line inside this process."""
    return command_line(monkeypatch, capfd)


def statuses(path: str) -> dict[tuple[str, str | None, float, int], str]:
    with ResultsFile(path, writable=False) as results:
        rows = results.rows()
    return {(r.key.norm, r.key.grid, r.key.radius, r.key.input_index): r.status for r in rows}


def test_a_run_about_pixels_is_another_one_than_about_real_inputs(run: Run) -> None:
    real = run(*ASK, "0.9px")
    assert (real.code, real.err) == (0, "")
    assert real.out.splitlines()[2].split()[:4] == ["0.9", "px", "real", "inputs"]
    pixels = run(*ASK, "0.9px", "--grid", "1px")
    assert pixels.out.splitlines()[2].split()[:4] == ["0.9", "px", "integer", "pixels"]
    grid = "1.0,-2.0"
    assert statuses("r.sqlite") == {
        ("linf", None, 0.9, 0): "not_robust",
        ("linf", None, 0.9, 1): "robust",
        ("linf", grid, 0.9, 0): "robust",
        ("linf", grid, 0.9, 1): "robust",
    }
    again = run(*ASK, "0.9px,1px", "--grid", "1px")
    assert "2 of 4 instances are in r.sqlite already" in again.out
    assert statuses("r.sqlite")["linf", grid, 1.0, 0] == "not_robust"


def test_a_run_about_few_changed_inputs(run: Run) -> None:
    outcome = run(*ASK, "1,2", "--norm", "l0", "--within", "0.9")
    assert outcome.code == 0, outcome.err
    lines = [line.split()[:4] for line in outcome.out.splitlines()[2:4]]
    assert lines == [["1", "input", "real", "inputs"], ["2", "inputs", "real", "inputs"]]
    found = statuses("r.sqlite")
    assert (found["l0", None, 1.0, 0], found["l0", None, 2.0, 0]) == ("robust", "not_robust")
    # Another reach is another question.
    assert "already" not in run(*ASK, "1,2", "--norm", "l0", "--within", "0.8").out
    on_grid = run(*ASK, "2", "--norm", "l0", "--within", "0.9px", "--grid", "1px")
    assert on_grid.out.splitlines()[2].split()[:4] == ["2", "inputs", "integer", "pixels"]
    assert statuses("r.sqlite")["l0", "1.0,-2.0", 2.0, 0] == "robust"


CONFIG: dict[str, Any] = {
    "networks": [{"name": "diamond", "file": "net.npz"}],
    "data": "data.npz",
    "methods": ["auto"],
    "parts": [
        {"radii": ["0.9px"], "norms": ["linf", "l1"]},
        {"radii": ["0.9px"], "norms": ["linf", "l1"], "grid": "1px"},
        {"radii": [1, 2], "norms": "l0", "within": "0.9px"},
        {"radii": [1, 2], "norms": "l0", "within": 1, "grid": 1},
    ],
}


def test_an_experiment_about_pixels_resumes(folder: Path, run: Run) -> None:
    (folder / "c.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    ask = ("experiment", "c.json", "--out", "e.sqlite", "--processes", "0")
    outcome = run(*ask)
    assert outcome.code == 0, outcome.err
    table = [" ".join(line.split()) for line in outcome.out.splitlines()]
    for start in (
        "diamond verify linf 0.9 px real inputs auto 2 0 1 1 0",
        "diamond verify linf 0.9 px integer pixels auto 2 0 2 0 0",
        "diamond verify l0 within 0.9 px 1 input real inputs auto 2 0 2 0 0",
        "diamond verify l0 within 1 2 inputs integer pixels auto 2 0 1 1 0",
    ):
        assert any(line.startswith(start) for line in table), start
    planned = run(*ask, "--dry-run")
    assert "16 instances, 16 in e.sqlite already" in planned.out


def test_the_command_line_sets_the_grid_of_an_experiment(folder: Path, run: Run) -> None:
    parts = [{"radii": ["0.9px"]}, {"radii": [1], "norms": "l0", "grid": 0.5}]
    (folder / "c.json").write_text(json.dumps({**CONFIG, "parts": parts}), encoding="utf-8")
    ask = ("experiment", "c.json", "--out", "e.sqlite", "--processes", "0")
    assert run(*ask, "--grid", "1px").code == 0
    assert {key[:2] for key in statuses("e.sqlite")} == {("linf", "1.0,-2.0"), ("l0", "1.0,-2.0")}
    assert_one_line(run(*ask, "--grid", "0"), "--grid is '0'; expected a step > 0")


def test_reports_name_the_inputs_and_show_pixels(folder: Path, run: Run) -> None:
    run(*ASK, "0.9px")
    run(*ASK, "0.9px", "--grid", "1px")
    run(*ASK, "1", "--norm", "l0", "--within", "1px", "--grid", "1px")
    text = page_text(read_recorded(folder / "r.sqlite"), folder / "page.html")
    for words in (
        "net.npz, L∞, real inputs</h2>",
        "net.npz, L∞, integer pixels</h2>",
        "net.npz, L0 within 1 px, integer pixels</h2>",
        "0.9 px, real inputs (ε = 0.9)",
        "1 input, integer pixels",
    ):
        assert words in text, words
    assert run("report", "r.sqlite", "-o", "p.html", "--csv", ".", "--latex", ".").code == 0
    with open("summary.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # A chart over the radius needs two of them with different answers.
    run(*ASK, "1px", "--grid", "1px")
    run(*ASK, "2", "--norm", "l0", "--within", "1px", "--grid", "1px")
    text = page_text(read_recorded(folder / "r.sqlite"), folder / "page.html")
    for words in ("radius (px, integer pixels)", "radius (number of inputs, integer pixels)"):
        assert words in text, words
    shown = [(r["norm"], r["inputs"], r["radius_px"], r["grid_step"], r["within"]) for r in rows]
    assert shown == [
        ("linf", "real inputs", "0.9", "", ""),
        ("linf", "integer pixels", "0.9", "1.0", ""),
        ("l0", "integer pixels", "", "1.0", "1.0"),
    ]
    captions = "".join(p.read_text("utf-8") for p in sorted(folder.glob("*.tex")))
    assert "integer pixels." in captions
    assert "real inputs." in captions
    assert r"At most $k$ inputs change (L0 within 1 px, integer pixels)." in captions


def test_a_grid_is_part_of_the_key_of_a_question() -> None:
    key = InstanceKey(
        *("m", 0, "i", 1, "linf", 0.5, "-1.0,1.0", "all", "auto", None, "violation", "plus", 0)
    )
    others = [replace(key, grid="0.5,0.0"), replace(key, grid="0.25,0.0"), replace(key, within=1.0)]
    assert len({key.digest, *(other.digest for other in others)}) == 4
    assert replace(key, grid=None).digest == key.digest


def test_a_bad_grid_in_a_file_is_named(run: Run, folder: Path) -> None:
    run(*ASK, "0.9px", "--grid", "1px")
    for name, value in (("grid", "wide"), ("grid", "0.0,1.0"), ("within", -1.0)):
        with ResultsFile("r.sqlite") as results:
            results._connection.execute(f"UPDATE results SET {name} = ? WHERE rowid = 1", (value,))
        with pytest.raises(bnncert.BnncertError, match=rf"row 1: {name} is "):
            read_recorded(folder / "r.sqlite")
        with ResultsFile("r.sqlite") as results:
            results._connection.execute(f"UPDATE results SET {name} = NULL WHERE rowid = 1")


def test_pixels_start_at_the_black_of_the_network_whatever_the_clip() -> None:
    network = bnncert.load("net.npz")
    step = read_step("1px")
    balls = Balls.of(network, "net", "linf", (-1.5, 1.5), grid=step)
    region = balls.around(np.array([1.0, 0.0]), 1.0)
    assert (region.lo.tolist(), region.hi.tolist()) == ([0.0, -1.0], [1.0, 1.0])
    assert region.notes == ()


def test_balls_travel_to_other_processes() -> None:
    data = Data(POINTS, None, "points")
    network = bnncert.load("net.npz")
    for settings in (
        Settings(norm="l1", grid=read_step("1px")),
        Settings(norm="l0", grid=read_step(1), within=read_radius("1px", name="within")),
    ):
        for instance in plan_run(network, data, [1.0], settings=settings).instances:
            copy = pickle.loads(pickle.dumps(instance.ball))
            assert copy.to_dict() == instance.ball.to_dict()
            assert copy.contains(np.array([0.0, 0.0])) == instance.ball.contains(np.zeros(2))


def test_points_off_the_grid_are_counted(folder: Path, run: Run) -> None:
    np.savez(folder / "data.npz", points=POINTS + np.diag([0.25, 0.0]), labels=[0, 0])
    outcome = run(*ASK, "0.9px", "--grid", "1px")
    assert outcome.code == 0
    assert "1 input(s) are not on the grid; the balls stay around them" in outcome.out


def test_texts_of_radii_and_inputs() -> None:
    assert radius_text(0.5 * 2 / 255, "linf", 2 / 255) == "0.5 px"
    assert radius_text(0.1, "l2", None) == "0.1"
    assert [radius_text(k, "l0", 1.0) for k in (0.0, 1.0, 2.0)] == [
        "0 inputs",
        "1 input",
        "2 inputs",
    ]
    assert inputs_text(None, 2 / 255) == "real inputs"
    assert inputs_text(2 / 255, 2 / 255) == "integer pixels"
    assert inputs_text(4 / 255, 2 / 255) == "grid of 2 px"
    assert inputs_text(0.25, None) == "grid of step 0.25"


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("1", "--grid", "0"), "--grid is '0'; expected a step > 0, also as in 1px"),
        (("1", "--grid=-1px"), "--grid is '-1px'; expected a step > 0, also as in 1px"),
        (("1", "--grid", "nan"), "--grid is 'nan'; expected a step > 0, also as in 1px"),
        (("1", "--grid", "5px"), "grid step 5 is larger than the data box [-2, 2] of input 0"),
        (("nan", "--grid", "1px"), "--radius is 'nan'; expected finite numbers >= 0"),
        (("1", "--within", "1"), "--within belongs to --norm l0; the norm is linf"),
        (("3", "--norm", "l0"), "data.npz [0]: radius is 3, but there are 2 inputs"),
        (
            ("1.5", "--norm", "l0"),
            "radius is 1.5; the l0 norm expects a whole number of inputs >= 0",
        ),
        (
            ("nan", "--norm", "l0"),
            "radius is nan; the l0 norm expects a whole number of inputs >= 0",
        ),
        (("1px", "--norm", "l0"), "--norm l0 expects the number of inputs that may change"),
        (("1", "--norm", "l0", "--within", "nan"), "--within is 'nan'; expected finite numbers"),
        (("1", "--norm", "l0", "--grid", "0.75"), "input 1 = 0 is not on the grid"),
    ],
)
def test_bad_options_of_a_run_get_one_line(run: Run, more: tuple[str, ...], message: str) -> None:
    assert_one_line(run(*ASK, *more), message)
    assert not Path("r.sqlite").exists()


@pytest.mark.parametrize(
    ("part", "key", "message"),
    [
        ({"radii": 1, "grid": 0}, "grid", "grid is 0; expected a step > 0, also as in 1px"),
        ({"radii": 1, "grid": "-1px"}, "grid", "grid is -1px; expected a step > 0"),
        ({"radii": 1, "grid": "nan"}, "grid", "grid is nan; expected a step > 0"),
        ({"radii": 1, "grid": [1]}, "grid", "grid is a list; expected a step > 0"),
        ({"radii": 1, "grid": 5}, "grid", "grid step 5 is larger than the data box [-2, 2]"),
        ({"radii": 1, "within": 1}, "within", "within belongs to norm l0, not to linf"),
        ({"radii": 1, "norms": "l0", "within": -1}, "within", "within is -1; expected a number"),
        ({"norms": "l0", "radii": "1px"}, "radii", "radius is 1 px; norm l0 expects the number"),
        ({"norms": "l0", "radii": 3}, "data", "data.npz [0]: radius is 3, but there are 2 inputs"),
        (
            {"norms": "l0", "radii": 1.5},
            "data",
            "radius is 1.5; the l0 norm expects a whole number",
        ),
        (
            {"norms": "l0", "radii": 1, "methods": "sdp-tight"},
            "methods",
            "method sdp-tight has no l0 ball",
        ),
    ],
)
def test_bad_grids_of_an_experiment_name_their_line(
    folder: Path, run: Run, part: dict[str, Any], key: str, message: str
) -> None:
    text = json.dumps({**CONFIG, "parts": [part]}, indent=1)
    (folder / "c.json").write_text(text, encoding="utf-8")
    # The last mention: the part's own, where it has one.
    line = max(k for k, row in enumerate(text.splitlines(), 1) if f'"{key}":' in row)
    outcome = run("experiment", "c.json", "--processes", "0")
    assert_one_line(outcome, f"c.json:{line}: ", message)
