"""`bnncert count`: the bounds, the files, the limits and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bnncert.questions.count import count_search as search
from tests.cli.diamond import POINT, Run, assert_one_line

GRID = ("--radius", "1", "--grid", "0.5")


def test_a_count_with_a_certificate_and_json(folder: Path, run: Run) -> None:
    answer = run("count", "net.npz", *POINT, *GRID, "--certificate", "a.cert", "--json", "a.json")
    assert answer.code == 0
    tree = json.loads((folder / "a.json").read_text())
    # Class 0 wins where x0 >= -x1 and x0 >= x1, x0 from 0 to 2 and x1 from -1 to 1 in halves.
    inside = sum(x0 >= abs(x1) for x0 in range(5) for x1 in range(-2, 3))
    assert (tree["total"], tree["lower"], tree["upper"]) == ("25", *[str(25 - inside)] * 2)
    assert tree["exact"] and tree["label"] == 0 and tree["region"]["norm"] == "linf"
    assert tree["estimate"]["samples"] == 1000 and tree["certificate"] == "a.cert"
    assert f"of 25 points, exactly {25 - inside} have another class" in answer.out
    assert answer.out.count("certificate: a.cert (") == answer.out.count("a.cert") == 1
    assert "level 0.95" in answer.out
    checked = run("check", "a.cert", "--model", "net.npz")
    assert checked.code == 0
    assert "of the 25 grid points in the linf ball of radius 1" in checked.out
    assert f"exactly {25 - inside} have another class than 0" in checked.out


def test_quiet_prints_one_line(folder: Path, run: Run) -> None:
    answer = run("count", "net.npz", "x.npy", *GRID, "-q", "--samples", "0")
    assert answer.out.strip().startswith("of 25 points, exactly")
    assert len(answer.out.strip().splitlines()) == 1


def test_the_l0_ball_and_the_label(folder: Path, run: Run) -> None:
    one = ("--norm", "l0", "--radius", "1", "--grid", "1", "--json", "-")
    tree = json.loads(run("count", "net.npz", *POINT, *one).out)
    # The points on the two lines through (1, 0).
    points = [(x0, 0) for x0 in range(-2, 3)] + [(1, x1) for x1 in (-2, -1, 1, 2)]
    changed = sum(not (x0 >= -x1 and x0 >= x1) for x0, x1 in points)
    assert (tree["total"], tree["lower"], tree["upper"]) == ("9", str(changed), str(changed))
    other = json.loads(run("count", "net.npz", *POINT, *one, "--label", "1").out)
    # No point of class 0 has class 1.
    assert int(other["lower"]) >= 9 - changed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--radius", "1"), ("--grid is missing",)),
        (("--grid", "1"), ("--radius is missing",)),
        (("--radius", "1", "--grid", "0"), ("--grid is '0'",)),
        ((*GRID, "--norm", "l2"), ("l2",)),
        ((*GRID, "--samples", "-2"), ("samples is -2",)),
        ((*GRID, "--confidence", "2"), ("confidence is 2",)),
        ((*GRID, "--seed", "-1"), ("seed is -1",)),
        ((*GRID, "--label", "9"), ("label is 9",)),
        ((*GRID, "--rivals", "9"), ("rival is 9",)),
        ((*GRID, "--within", "1"), ("--within belongs to --norm l0",)),
        ((*GRID, "--clip", "5", "6"), ("empty",)),
        (("--radius", "0.001", "--grid", "0.7"), ("empty",)),
        (("--norm", "l0", "--radius", "5", "--grid", "1"), ("radius is 5",)),
        (("--norm", "l0", "--radius", "-1", "--grid", "1"), ("radius is -1",)),
        (("--radius", "2", "--grid", "0.000001"), ("grid step", "too fine")),
        ((*GRID, "--certificate", "net.npz"), ("net.npz", "cannot be written")),
    ],
)
def test_what_cannot_be_counted(
    folder: Path, run: Run, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(run("count", "net.npz", *POINT, *options), *words)


def test_an_input_is_needed(folder: Path, run: Run) -> None:
    assert_one_line(run("count", "net.npz", *GRID), "--input is missing")


def test_ctrl_c_prints_what_is_known(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: search.CountSearch, report: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search.CountSearch, "run", stop)
    monkeypatch.setattr("bnncert.cli.program._end_interrupted", lambda: sys.exit(130))
    files = ("--json", "b.json", "--certificate", "b.bnncert")
    answer = run("count", "net.npz", *POINT, *GRID, "--samples", "50", *files)
    assert answer.code == 130 and "no certificate: the search was interrupted" in answer.out
    assert "of 25 points, at least 1 and at most 25 have another class" in answer.out
    assert "the search is not finished" in answer.out
    tree = json.loads((folder / "b.json").read_text())
    assert (tree["lower"], tree["upper"], tree["exact"]) == ("1", "25", False)
    assert tree["interrupted"] is True


def test_a_results_file_has_the_count(folder: Path, run: Run) -> None:
    answer = run("count", "net.npz", *POINT, *GRID, "--samples", "30", "--results", "r.sqlite")
    assert answer.code == 0 and "r.sqlite" in answer.out
    shown = run("report", "r.sqlite", "--csv", "tables")
    assert shown.code == 0
    texts = [path.read_text() for path in (folder / "tables").glob("*.csv")]
    assert any(",25," in text and "exact" in text for text in texts)
