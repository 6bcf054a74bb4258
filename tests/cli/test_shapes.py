"""`--norm brightness`, `contrast`, `patch` and `shift` in the commands, and bad input."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import bnncert
from tests.cli.diamond import Run, assert_one_line, read_json
from tests.in_process import CODE

ASK = ("--input", "x.npy", "--label", "0")


@pytest.fixture(autouse=True)
def network(folder: Path) -> None:
    """A network that has class 0 where the sum of 2 x 2 pixels is at least 0."""
    net = bnncert.Network.from_arrays(
        [[[1, 1, 1, 1]], [[1], [-1]]],
        [[0], [0, 0]],
        input_lo=-1,
        input_hi=1,
        input_shape=(2, 2),
        pixel_step=0.125,
    )
    net.save(folder / "net.npz")
    np.save(folder / "x.npy", np.array([1.0, 0.75, 0.25, 0.25]).reshape(2, 2))


@pytest.mark.parametrize(
    ("options", "status", "place"),
    [
        (("brightness", "--radius", "4px"), "robust", ""),
        (("brightness", "--radius", "0.75"), "not_robust", "brightness offset -0.625"),
        (("brightness", "--radius", "5px", "--grid", "1px"), "not_robust", "of -5 grid steps"),
        (("contrast", "--radius", "1"), "robust", ""),
        (("contrast", "--radius", "1", "--value=-1"), "not_robust", "contrast factor 0."),
        (("patch", "--radius", "1"), "robust", ""),
        (("patch", "--radius", "2"), "not_robust", "at row 0, column 0"),
        (("patch", "--radius", "2", "--value", "0.5"), "robust", ""),
        (("shift", "--radius", "1"), "robust", ""),
        (("shift", "--radius", "1", "--value=-1"), "not_robust", "shift by 1 pixel"),
    ],
)
def test_verify_decides_a_shape_with_a_certificate(
    folder: Path, run: Run, options: tuple[str, ...], status: str, place: str
) -> None:
    outputs = ("--json", "out.json", "--certificate", "c.bnncert")
    answer = run("verify", "net.npz", *ASK, "--norm", *options, *outputs)
    assert answer.code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status and tree["region"]["norm"] == options[0]
    if place:
        assert place in tree["counterexample"]["place"] and place in answer.out
    if "--grid" in options:
        assert "has none" in answer.out and not Path("c.bnncert").exists()
    else:
        checked = run("check", "c.bnncert", "--model", "net.npz")
        assert checked.code == 0 and checked.out.startswith("accepted")


@pytest.mark.parametrize(
    ("options", "lower", "upper"),
    [
        (("brightness",), 0.5625, 0.5625),
        (("contrast",), 1.0, None),
        (("patch",), 1.0, 2.0),
        (("shift", "--value=-1"), 0.0, 1.0),
        (("brightness", "--max", "2px"), 0.25, None),
    ],
)
def test_radius_finds_the_size_of_a_shape(
    folder: Path, run: Run, options: tuple[str, ...], lower: float, upper: float | None
) -> None:
    answer = run("radius", "net.npz", *ASK, "--norm", *options, "--json", "out.json")
    assert answer.code == 0
    tree = read_json(folder / "out.json")
    assert tree["lower"] == pytest.approx(lower, rel=1e-12)
    assert tree["upper"] == (None if upper is None else pytest.approx(upper, rel=1e-12))


def test_run_and_report_take_shapes(folder: Path, run: Run) -> None:
    points = ("--data", "x.npy", "--out", "r.sqlite", "--certificate", "proofs")
    for norm, radii, more in (
        ("patch", "1,2", ("--value", "0.5")),
        ("patch", "1,2", ()),
        ("brightness", "1px,6px", ()),
    ):
        assert run("run", "net.npz", *points, "--norm", norm, "--radius", radii, *more).code == 0
    with sqlite3.connect(folder / "r.sqlite") as connection:
        rows = connection.execute("SELECT norm, radius, value, status, certificate FROM results")
        found = {row[:4]: row[4] for row in rows}
    connection.close()
    assert found.keys() == {
        ("patch", 1.0, 0.5, "robust"),
        ("patch", 2.0, 0.5, "robust"),
        ("patch", 1.0, None, "robust"),
        ("patch", 2.0, None, "not_robust"),
        ("brightness", 0.125, None, "robust"),
        ("brightness", 0.75, None, "not_robust"),
    }
    for file in found.values():
        assert run("check", file, "--model", "net.npz").code == 0
    again = run("run", "net.npz", *points, "--norm", "patch", "--radius", "1,2")
    assert "2 of 2 instances are in" in again.out
    page = run("report", "r.sqlite", "-o", "r.html", "--csv", "csv", "--latex", "latex")
    assert page.code == 0, page.err
    text = (folder / "r.html").read_text("utf-8")
    assert "patch of value 0.5" in text and "side in pixels" in text


def test_run_checks_the_image_itself_if_only_some_classes_count(folder: Path, run: Run) -> None:
    points = ("--data", "x.npy", "--out", "r.sqlite", "--rivals", "runner-up")
    for norm, radius in (
        ("brightness", "1px"),
        ("contrast", "0.5"),
        ("patch", "1"),
        ("shift", "1"),
    ):
        answer = run("run", "net.npz", *points, "--norm", norm, "--radius", radius)
        assert answer.code == 0 and "1 instances in" in answer.out, answer.err
    with sqlite3.connect(folder / "r.sqlite") as connection:
        found = connection.execute("SELECT status FROM results").fetchall()
    connection.close()
    assert found == [("robust",)] * 4


def test_experiment_takes_shapes(folder: Path, run: Run) -> None:
    configuration = {
        "networks": [{"name": "net", "file": "net.npz"}],
        "data": "x.npy",
        "norms": ["patch", "contrast"],
        "radii": [1],
        "value": 0.5,
        "methods": ["auto"],
    }
    (folder / "c.json").write_text(json.dumps(configuration))
    answer = run("experiment", "c.json", "--out", "r.sqlite", "--processes", "0")
    assert answer.code == 0 and "2 of 2 instances" in answer.out
    assert "patch value 0.5" in answer.out
    for change, message in (
        ({"norms": ["linf"]}, "value belongs to norm contrast or patch or shift, not to linf"),
        ({"radii": ["1px"]}, "norm patch expects the side of the patch in pixels"),
        ({"radii": [3]}, "larger than the image of 2 x 2 pixels"),
        ({"grid": 0.125, "norms": ["shift"]}, "norm shift has no grid"),
        ({"methods": ["sdp"]}, "method sdp has no contrast"),
        ({"question": "bound"}, "a bound takes one region, not patch"),
    ):
        (folder / "c.json").write_text(json.dumps(configuration | change))
        wrong = run("experiment", "c.json", "--out", "r.sqlite", "--processes", "0")
        assert_one_line(wrong, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("patch", "--radius", "3"), "larger than the image of 2 x 2 pixels"),
        (("patch", "--radius", "-1"), "expects a whole number of pixels >= 0"),
        (("patch", "--radius", "1px"), "expects the side of the patch in pixels"),
        (("patch", "--radius", "1", "--value", "7"), "expected a number in the data box [-1, 1]"),
        (("patch", "--radius", "1", "--within", "1"), "--within belongs to --norm l0"),
        (("shift", "--radius", "2"), "moves all of the image"),
        (("shift", "--radius", "1", "--grid", "1px"), "norm shift has no grid"),
        (("contrast", "--radius", "1.5"), "contrast expects at most 1"),
        (("contrast", "--radius", "x"), "expects the largest difference between the factor and 1"),
        (("brightness", "--radius", "-1"), "expected finite numbers >= 0"),
        (("brightness", "--radius", "1", "--value", "0"), "--value belongs to --norm contrast"),
        (("brightness", "--radius", "1", "--method", "milp"), "method milp is not for brightness"),
        (("linf", "--radius", "1", "--value", "0"), "--value belongs to --norm contrast"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_one_line(run("verify", "net.npz", *ASK, "--norm", *options), message)


def test_a_network_without_an_image_is_refused(folder: Path, run: Run) -> None:
    net = bnncert.Network.from_arrays(
        [[[1, 1, 1, 1]], [[1], [-1]]], [[0], [0, 0]], input_lo=-1, input_hi=1
    )
    net.save(folder / "flat.npz")
    np.save(folder / "flat.npy", np.ones(4))
    options = ("--input", "flat.npy", "--norm", "shift", "--radius", "1")
    answer = run("verify", "flat.npz", *options)
    assert_one_line(answer, "a shift needs an image; the network's inputs have the shape 4")


def test_radius_refuses_what_an_exact_radius_does_not_need(run: Run) -> None:
    for option in (("--exact",), ("--tolerance", "0.1")):
        answer = run("radius", "net.npz", *ASK, "--norm", "brightness", *option)
        assert_one_line(answer, f"{option[0]} is not used with --norm brightness")
