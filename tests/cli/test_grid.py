"""`--grid`: answers about grid points, and bad steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.diamond import DIAMOND, Run, assert_one_line, read_json, write_network
from tests.in_process import CODE

QUESTION = ("--input", "x.npy", "--label", "0", "--radius")


@pytest.fixture(autouse=True)
def network(folder: Path) -> None:
    """The network of the folder with pixels as large as an input unit, and a point."""
    write_network(folder / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0, pixel_step=1.0)
    np.save(folder / "x.npy", np.array([1.0, 0.0]))


@pytest.mark.parametrize(
    ("radius", "real", "grid"),
    [
        ("0.4", "robust", "robust"),
        ("0.9px", "not_robust", "robust"),
        ("1px", "not_robust", "not_robust"),
    ],
)
def test_the_reals_and_the_grid_may_differ(
    folder: Path, run: Run, radius: str, real: str, grid: str
) -> None:
    for more, status in (((), real), (("--grid", "1px"), grid)):
        answer = run("verify", "net.npz", *QUESTION, radius, *more, "--json", "out.json")
        assert answer.code == CODE[status]
        tree = read_json(folder / "out.json")
        assert tree["status"] == status
        stated = {"step": 1.0, "origin": -2.0} if more else None
        assert tree["region"].get("grid") == stated
        if more and status == "not_robust":
            point = np.array(tree["counterexample"]["input"])
            assert np.array_equal(point, np.rint(point))


def test_bounds_are_those_of_the_grid_points(folder: Path, run: Run) -> None:
    asked = ("bound", "net.npz", *QUESTION, "0.9", "--method", "bab", "--grid", "1")
    answer = run(*asked, "--json", "out.json")
    assert answer.code == 0
    assert all(
        t["lower"] == 2.5 or t["lower"] == 3 for t in read_json(folder / "out.json")["targets"]
    )
    first = answer.out.splitlines()[0]
    assert "L-inf ball of radius 0.9, data in [-2, 2], grid of step 1 from -2" in first


def test_a_centre_off_the_grid_is_said(folder: Path, run: Run) -> None:
    np.save("x.npy", np.array([1.25, 0.0]))
    answer = run("verify", "net.npz", *QUESTION, "0.5", "--grid", "1")
    assert "not on the grid, the first is input 0 = 1.25 between 1 and 2" in answer.out


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("0", "--grid is '0'; expected a step > 0, also as in 1px"),
        ("-1", "--grid is '-1'; expected a step > 0, also as in 1px"),
        ("nan", "--grid is 'nan'; expected a step > 0, also as in 1px"),
        ("inf", "--grid is 'inf'; expected a step > 0, also as in 1px"),
        ("5px", "x.npy: grid step 5 is larger than the data box [-2, 2] of input 0"),
        ("1delta", "--grid is '1delta'; expected a step > 0, also as in 1px"),
        ("wide", "--grid is 'wide'; expected a step > 0, also as in 1px"),
        ("5", "x.npy: grid step 5 is larger than the data box [-2, 2] of input 0"),
        ("1e-12", "x.npy: grid step 1e-12 of input 0 is too fine for inputs of size 2 in float32"),
    ],
)
def test_bad_steps_get_one_line(folder: Path, run: Run, grid: str, message: str) -> None:
    answer = run("verify", "net.npz", *QUESTION, "1", f"--grid={grid}")
    assert (answer.code, answer.out, answer.err) == (2, "", f"bnncert: {message}\n")


def test_a_query_states_its_own_inputs(folder: Path, run: Run) -> None:
    (folder / "q.vnnlib").write_text("(declare-const X_0 Real)", encoding="utf-8")
    for more in (("--grid", "1px"), ("--within", "1")):
        assert_one_line(
            run("verify", "net.npz", "q.vnnlib", *more),
            f"{more[0]} describes a ball around a point, but q.vnnlib states the whole query",
        )


def test_the_smallest_perturbation_needs_a_centre_on_the_grid(folder: Path, run: Run) -> None:
    np.save("x.npy", np.array([1.25, 0.0]))
    asked = ("radius", "net.npz", "--input", "x.npy", "--label", "0", "--exact")
    assert_one_line(run(*asked, "--grid", "1"), "x.npy", "the grid of step 1 has no value")
    assert_one_line(run(*asked, "--grid", "0"), "--grid is '0'; expected a step > 0")
    assert_one_line(run(*asked), "needs a grid (--grid 1px) or norm l0")


def test_a_point_that_is_not_a_number_is_refused(folder: Path, run: Run) -> None:
    np.save("x.npy", np.array([np.nan, 0.0]))
    assert_one_line(run("verify", "net.npz", *QUESTION, "1", "--grid", "1"), "x.npy", "nan")


def test_a_certificate_states_the_grid(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", *QUESTION, "0.9", "--grid", "1", "--certificate", "p")
    assert answer.code == 0
    checked = run("check", "p", "--model", "net.npz")
    assert checked.code == 0
    assert "on the grid of step 1 from -2 in float32" in checked.out


def test_a_certificate_states_the_few_changes(folder: Path, run: Run) -> None:
    asked = ("verify", "net.npz", "--norm", "l0", *QUESTION, "1", "--within", "0.9")
    assert run(*asked, "--certificate", "p").code == 0
    assert run("check", "p", "--model", "net.npz").code == 0


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (("1",), "not_robust"),
        (("1", "--within", "0.9"), "robust"),
        (("2", "--within", "0.9"), "not_robust"),
        (("2", "--within", "0.9px", "--grid", "1px"), "robust"),
        (("0",), "robust"),
    ],
)
def test_few_inputs_change(folder: Path, run: Run, more: tuple[str, ...], status: str) -> None:
    answer = run("verify", "net.npz", "--norm", "l0", *QUESTION, *more, "--json", "out.json")
    assert answer.code == CODE[status]
    tree = read_json(folder / "out.json")
    assert tree["status"] == status
    assert (tree["region"]["norm"], tree["region"]["radius"]) == ("l0", int(more[0]))
    if status == "not_robust":
        point = np.array(tree["counterexample"]["input"])
        assert np.count_nonzero(point != [1.0, 0.0]) <= int(more[0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("1.5",), "x.npy: radius is 1.5; the l0 norm expects a whole number of inputs >= 0"),
        (("-1",), "x.npy: radius is -1; the l0 norm expects a whole number of inputs >= 0"),
        (("nan",), "x.npy: radius is nan; the l0 norm expects a whole number of inputs >= 0"),
        (("3",), "x.npy: radius is 3, but there are 2 inputs that can change"),
        (("1px",), "--radius is '1px'; --norm l0 expects the number of inputs that may change"),
        (
            ("1", "--within", "far"),
            "--within is 'far'; expected finite numbers >= 0, also as in 8/255, 1px or 0.25delta",
        ),
        (
            ("1", "--grid", "0.75"),
            "x.npy: input 1 = 0 is not on the grid; an l0 ball needs its centre there",
        ),
    ],
)
def test_bad_numbers_of_changes_get_one_line(
    folder: Path, run: Run, more: tuple[str, ...], message: str
) -> None:
    answer = run("verify", "net.npz", "--norm", "l0", *QUESTION, *more)
    assert (answer.code, answer.out, answer.err) == (2, "", f"bnncert: {message}\n")


def test_within_belongs_to_l0(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", *QUESTION, "1", "--within", "1")
    assert answer.err == "bnncert: --within belongs to --norm l0; the norm is linf\n"
