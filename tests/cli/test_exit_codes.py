"""The exit codes are those of the table in docs/questions.md, for every question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bnncert.cli.exit_codes import CODES, ExitCode
from tests.cli.diamond import BALL, DIAMOND, HARD, POINT, Run, query, write_network

#: A grid on which balls around (1, 0) have points with another class.
GRID = ("--grid", "0.5")

NARROW, WIDE = ("--radius", "0.25"), ("--radius", "0.75")

#: The label that the point does not have.
WRONG = ("--label", "1")

ANSWERS = (
    (0, "verify net.npz", (*BALL,)),
    (1, "verify net.npz", (*POINT, *WIDE)),
    (1, "verify net.npz", (*BALL, *WRONG)),
    (3, "verify net.npz", (*POINT, "--radius", "0.49", "--method", "attack")),
    (0, "verify net.npz unsat.vnnlib", ()),
    (1, "verify net.npz sat.vnnlib", ()),
    (3, "verify net.npz sat.vnnlib", ("--method", "interval")),
    (0, "bound net.npz", (*BALL,)),
    (1, "bound net.npz", (*POINT, *WIDE, "--method", "attack")),
    (3, "bound net.npz", (*POINT, *WIDE)),
    (0, "radius net.npz", (*POINT,)),
    (1, "radius net.npz", (*POINT, *WRONG)),
    (3, "radius net.npz", (*POINT, "--method", "attack", "--max", "0.25")),
    (0, "radius net.npz", (*POINT, "--exact", *GRID)),
    (1, "radius net.npz", (*POINT, "--exact", *GRID, *WRONG)),
    (0, "explain net.npz", (*POINT, *WIDE)),
    (3, "explain net.npz", (*POINT, *WIDE, "--method", "interval")),
    (0, "faults net.npz", (*POINT,)),
    (1, "faults net.npz", (*POINT, *WRONG)),
    (0, "count net.npz", (*POINT, *WIDE, *GRID)),
    (0, "compare net.npz net.npz", ()),
    (1, "compare net.npz tied.npz", ()),
    (3, "compare net.npz shifted.npz", ("--method", "interval")),
    (0, "fair net.npz", ("--protect", "1=-0.5,0.5", *BALL)),
    (1, "fair net.npz", ("--protect", "1", *BALL)),
    (3, "fair net.npz", ("--protect", "1", *BALL, "--method", "interval")),
    (0, "monotone net.npz", ("--feature", "0", "--label", "0", *BALL)),
    (1, "monotone net.npz", ("--feature", "1", "--label", "0", *BALL)),
)


@pytest.mark.parametrize(
    ("code", "command", "options"),
    ANSWERS,
    ids=[f"{code} {command} {' '.join(options)}" for code, command, options in ANSWERS],
)
def test_an_answer_has_its_code(
    folder: Path, run: Run, code: int, command: str, options: tuple[str, ...]
) -> None:
    Path("sat.vnnlib").write_text(query("0.75"), encoding="utf-8")
    Path("unsat.vnnlib").write_text(query("0.25"), encoding="utf-8")
    shifted = replace(DIAMOND, biases=(np.zeros(2), np.array([1.25, 0.0, 0.5])))
    write_network(folder / "shifted.npz", shifted, input_lo=-2.0, input_hi=2.0)
    answer = run(*command.split(), *options)
    assert answer.code == code, answer
    # Neither the amount of output nor JSON changes it.
    assert run(*command.split(), *options, "-q", "--json", "a.json").code == code


@pytest.mark.parametrize("command", ["count", "explain", "faults"])
def test_a_time_limit_leaves_a_question_undecided(run: Run, command: str) -> None:
    grid = ("--grid", "1px") if command == "count" else ()
    assert run(command, *HARD, *grid, "--timeout", "0.2").code == 3


def test_a_folder_of_images_holds_if_each_of_them_does(folder: Path, run: Run) -> None:
    from bnncert.regions.pictures import png_bytes

    images = folder / "images"
    images.mkdir()
    write_network(folder / "net.npz", DIAMOND, input_lo=0.0, input_hi=1.0)
    pixels = {"a": (255, 0), "b": (200, 40)}
    for name, values in pixels.items():
        (images / f"{name}.png").write_bytes(png_bytes(np.array([values], dtype=np.uint8)))
    asked = ("verify", "net.npz", "images", "--radius")
    assert run(*asked, "0.1").code == 0
    assert run(*asked, "0.4").code == 1
    assert run(*asked, "0.4", "--method", "interval").code == 3
    assert run("radius", "net.npz", "images").code == 0
    assert run("radius", "net.npz", "images", "--label", "1").code == 1


def test_batches_end_well_whatever_their_answers_are(folder: Path, run: Run) -> None:
    asked = ("run", "net.npz", "--data", "x.npy", "--radius", "0.25,0.75", "--out", "r.sqlite")
    assert run(*asked).code == 0


def test_help_and_the_page_state_the_codes(run: Run) -> None:
    for command in ("verify", "radius", "fair"):
        assert f"Exit codes:\n  {CODES}." in run(command, "--help").out
    assert "Exit codes" not in run("info", "--help").out
    assert "3 undecided" in run("--help").out
    page = Path(__file__).resolve().parents[2] / "docs" / "questions.md"
    rows = page.read_text("utf-8").split("## Exit codes")[1].splitlines()
    stated = [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]
    assert stated == [*(str(int(code)) for code in (0, 1, 3, 2)), "130"]
    assert {int(code) for code in stated} == {*ExitCode, 130}
