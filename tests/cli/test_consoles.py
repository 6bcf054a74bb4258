"""-q and -v, the default time limit, units of radii, and the layout of JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.cli.files import json_text
from bnncert.regions.radii import INPUT_UNITS, RadiusUnit
from tests.cli.diamond import BALL, POINT, Run, query, read_json, write_network
from tests.cli.diamond import DIAMOND as NET

VERIFY = ("verify", "net.npz", *BALL)


@pytest.fixture
def pixels(folder: Path) -> Path:
    """Return the folder with a network that states its pixel step: 0.125."""
    write_network(folder / "px.npz", NET, input_lo=-2.0, input_hi=2.0, pixel_step=0.125)
    return folder


# --- quiet and verbose -------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["program", "command"])
@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet_prints_the_answer_only(folder: Path, run: Run, place: str, flag: str) -> None:
    words = (flag, *VERIFY) if place == "program" else (*VERIFY, flag)
    answer = run(*words)
    assert (answer.code, answer.err) == (0, "")
    assert re.fullmatch(r"robust in [\d.]+ s, margin at least 2\.5\n", answer.out)


def test_quiet_answers_of_the_other_commands_are_one_line(folder: Path, run: Run) -> None:
    np.savez(folder / "data.npz", x=np.array([[1.0, 0.0], [1.5, 0.0]]), y=np.array([0, 0]))
    (folder / "q.vnnlib").write_text(query("0.625"))
    batch = ("run", "net.npz", "--data", "data.npz", "--radius", "0.25", "--out", "r.sqlite")
    for words, expected, code in (
        (("bound", "net.npz", *BALL), r"robust in [\d.]+ s, margin at least 2\.5", 0),
        (("radius", "net.npz", *POINT), r"certified radius 0\.4\d+, falsified radius 0\.5\d*", 0),
        (("verify", "net.npz", "q.vnnlib"), "sat", 1),
        (("verify", "net.npz", *POINT, "--radius", "0.6", "--method", "lp"), r"unknown in .*", 3),
        (batch, r"2 instances in r\.sqlite", 0),
    ):
        answer = run("-q", *words)
        assert (answer.code, answer.err) == (code, ""), words
        assert re.fullmatch(expected + "\n", answer.out), (words, answer.out)


def test_quiet_does_not_silence_errors(folder: Path, run: Run) -> None:
    answer = run("-q", "verify", "no.npz", *BALL)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("bnncert: ") and "no.npz" in answer.err


def test_quiet_and_verbose_contradict_each_other(folder: Path, run: Run) -> None:
    answer = run("-q", *VERIFY, "-v")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == ("bnncert: --quiet and --verbose contradict each other; give one\n")


def test_verbose_shows_the_stages_and_every_verification(folder: Path, run: Run) -> None:
    assert re.search(r"^time: \w+ \d\.\d\d s", run(*VERIFY, "-v").out, re.MULTILINE)
    assert "time:" not in run(*VERIFY).out
    answer = run("radius", "net.npz", *POINT, "--max", "1", "--verbose")
    calls = answer.out.splitlines()[-2].split()[3]
    probes = re.findall(r"^ *[\d.]+  auto +(?:robust|not robust) +\d", answer.out, re.MULTILINE)
    assert len(probes) == int(calls) > 1


# --- time limits -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["verify", "bound", "radius"])
def test_the_first_line_states_the_time_limit(folder: Path, run: Run, command: str) -> None:
    words = (command, "net.npz", *(POINT if command == "radius" else BALL))
    for extra, expected in (
        ((), "; time limit 60 s (--timeout none lifts it)"),
        (("--timeout", "7.5"), "; time limit 7.5 s"),
        (("--timeout", "none"), "; no time limit"),
    ):
        answer = run(*words, *extra)
        assert answer.code == 0
        assert answer.out.splitlines()[0].endswith(expected)


def test_a_run_has_the_limit_for_each_instance_and_an_older_one_continues(
    folder: Path, run: Run
) -> None:
    np.savez(folder / "data.npz", x=np.array([[1.0, 0.0], [1.5, 0.0]]), y=np.array([0, 0]))
    words = ("run", "net.npz", "--data", "data.npz", "--radius", "0.25", "--out")
    first = run(*words, "new.sqlite")
    limit = "time limit 60 s for each instance (--timeout none lifts it)"
    assert first.out.splitlines()[0] == f"2 instances; {limit}"
    # Earlier versions had no limit: their rows are those of `none`.
    assert run(*words, "old.sqlite", "--timeout", "none", "--count", "1").code == 0
    again = run(*words, "old.sqlite")
    assert again.out.splitlines()[:2] == [
        "2 instances; no time limit",
        "1 of 2 instances are in old.sqlite already",
    ]
    # With a limit of its own it is another question.
    other = run(*words, "old.sqlite", "--timeout", "9")
    assert "already" not in other.out


@pytest.mark.parametrize("text", ["0", "-3", "nan", "None", "soon", ""])
def test_other_limits_are_refused(folder: Path, run: Run, text: str) -> None:
    answer = run(*VERIFY, "--timeout", text)
    assert (answer.code, answer.out) == (2, "")
    assert f"timeout is {text}; expected a number of seconds > 0, or none" in answer.err


# --- units -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("2px", "2 px"), ("0.25", "0.25"), ("1.5px", "1.5 px"), ("0.1", "0.1")],
)
@pytest.mark.parametrize("command", ["verify", "bound"])
def test_a_radius_is_shown_as_it_was_given(
    pixels: Path, run: Run, command: str, asked: str, shown: str
) -> None:
    answer = run(command, "px.npz", *POINT, "--radius", asked, "--json", "out.json")
    assert f"L-inf ball of radius {shown}, data in" in answer.out
    size = 0.125 * float(asked.removesuffix("px")) if "px" in asked else float(asked)
    assert read_json(pixels / "out.json")["region"]["radius"] == size


def test_found_radii_have_the_unit_of_the_largest_one(pixels: Path, run: Run) -> None:
    words = ("radius", "px.npz", *POINT, "--tolerance", "0.5px", "--json", "out.json")
    answer = run(*words, "--max", "8px")
    certified, falsified, gap = answer.out.splitlines()[2].split()[:3]
    tree = read_json(pixels / "out.json")
    assert tree["limit"] == 1.0
    assert 0 < tree["gap"] <= 0.0625
    # Rounded to the side on which they hold.
    assert 0 < float(certified.removesuffix("px")) * 0.125 <= tree["lower"] < 0.5
    assert float(falsified.removesuffix("px")) * 0.125 >= tree["upper"] >= 0.5
    assert gap.endswith("px")
    plain = run("radius", "px.npz", *POINT, "--max", "1")
    assert "px" not in plain.out.splitlines()[2]


@pytest.mark.parametrize("option", ["--max", "--tolerance"])
@pytest.mark.parametrize("text", ["far", "-1", "inf"])
def test_other_limits_of_a_search_are_refused(
    folder: Path, run: Run, option: str, text: str
) -> None:
    answer = run("radius", "net.npz", *POINT, option, text)
    assert (answer.code, answer.out) == (2, "")
    assert f"{option} is {text!r}; expected finite numbers >= 0" in answer.err


@given(st.floats(1e-9, 1e6), st.floats(1e-6, 1e3))
def test_rounded_radii_stay_on_their_side(radius: float, size: float) -> None:
    unit = RadiusUnit("px", size)
    low, high = (float(t.removesuffix("px")) for t in (unit.below(radius), unit.above(radius)))
    assert low * size <= radius * (1 + 1e-15)
    assert high * size >= radius * (1 - 1e-15)
    assert high - low <= 2e-5 * high
    assert INPUT_UNITS.below(float("inf")) == "-"


# --- JSON --------------------------------------------------------------------------------------

TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(TREES)
def test_the_text_is_the_same_json(tree: Any) -> None:
    assert json.loads(json_text(tree)) == tree


def test_an_array_of_numbers_is_one_line(folder: Path, run: Run) -> None:
    answer = run("verify", "demo:sparse", "demo:38", "--radius", "2px", "--json", "out.json")
    assert answer.code == 1
    text = (folder / "out.json").read_text()
    tree = json.loads(text)
    assert len(tree["counterexample"]["input"]) == 784
    assert len(text.splitlines()) < 400
    assert all(line.count("[") <= 1 for line in text.splitlines())
