"""Ties: what an answer at margin 0 says, and the search for a strict counterexample after it."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.deadline import Deadline
from bnncert.engine.method_run import time_for_strict
from bnncert.engine.methods import REGISTRY
from bnncert.problem.vnnlib import parse_vnnlib
from tests.brute_force import TinyNetwork, TinyQuestion, last_layers_at, scores_of
from tests.cli.diamond import write_network
from tests.clock import Clock
from tests.in_process import Outcome, command_line
from tests.report.test_page import page_of
from tests.strategies import NORMS, few, questions

Run = Callable[..., Outcome]


def stairs(label: int, at: tuple[float, float] = (-0.25, -0.75)) -> TinyNetwork:
    """The margin of the label is 2 right of both places, 0 between them, and -2 left of them.

    The neurons are sign(x - a) and sign(x - b); the label has their sum as its score, the other
    class has the score 0.
    """
    rows = np.zeros((2, 2))
    rows[label] = 1.0
    return TinyNetwork((np.ones((2, 1)), rows), (-np.array(at), np.zeros(2)), sign_zero="plus")


def around(centre: float, radius: float) -> bnncert.Ball:
    return bnncert.Ball("linf", [centre], radius)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("method", ["auto", "attack", "bab", "milp", "propagation"])
def test_where_only_ties_exist_the_answer_says_so(label: int, method: str) -> None:
    question = TinyQuestion(stairs(label), around(0.0, 0.5), label)
    assert question.truth == {1 - label: 0}
    result = question.verify(method)
    found = result.counterexample
    assert result.status == "not_robust" and found is not None
    assert found.tie and found.tied_with == 1 - label and found.value == 0
    # The lowest index wins: a tie with class 1 leaves class 0, a tie with class 0 takes class 1.
    assert (found.predicted, found.class_changes) == (0, label == 1)
    tree = found.to_dict()
    assert (tree["tie"], tree["predicted"], tree["class_changes"]) == (True, 0, label == 1)
    end = "stays 0" if label == 0 else "changes to 0"
    assert found.tie_text == (
        "a tie: classes 0 and 1 have the same score; the network's argmax (lowest index) " + end
    )
    assert question.verify(ties="robust").status == "robust"
    if method in ("auto", "bab", "propagation"):
        # A complete method has shown that there is no strict counterexample.
        assert result.lower == result.upper == 0


@pytest.mark.parametrize("label", [0, 1])
def test_a_strict_counterexample_is_preferred_to_a_tie_of_the_input_itself(label: int) -> None:
    # The margin at the centre is 0, and -2 left of -0.75.
    question = TinyQuestion(stairs(label), around(-0.5, 0.5), label)
    assert question.truth == {1 - label: -2}
    result = question.verify()
    found = result.counterexample
    assert found is not None
    if label == 1:
        # The class of the input itself is another one: nothing is left to look for.
        assert result.is_misclassified and result.is_at_centre and found.tie
        return
    assert (found.tie, found.value, found.class_changes) == (False, -2, True)
    assert not result.is_misclassified and not result.is_at_centre
    assert result.deciding_stage == "strict"
    question.check(result)


def test_an_input_that_ties_and_keeps_its_label_is_not_misclassified() -> None:
    question = TinyQuestion(stairs(0), around(-0.5, 0.125), 0)
    assert question.truth == {1: 0}
    result = question.verify()
    assert result.status == "not_robust" and result.is_at_centre
    assert not result.is_misclassified and not result.to_dict()["misclassified"]
    assert result.counterexample is not None and result.counterexample.tie
    # The search after the tie has shown that no margin is below 0.
    assert result.lower == 0


def test_a_third_class_that_scores_more_at_a_tie_is_the_counterexample() -> None:
    """Scores h, h and 3: class 1 ties with the label everywhere, class 2 scores more."""
    net = TinyNetwork(
        (np.ones((1, 1)), np.array([[1.0], [1.0], [0.0]])),
        (np.zeros(1), np.array([0.0, 0.0, 3.0])),
        "plus",
    )
    question = TinyQuestion(net, around(0.0, 1.0), 0)
    assert question.truth == {1: 0, 2: -4}
    found = question.verify().counterexample
    assert found is not None and found.target == "class 2" and not found.tie
    # With the tied class alone the tie is a tie, but the network answers with class 2.
    found = question.verify(rivals=1).counterexample
    assert found is not None and found.tie and (found.predicted, found.class_changes) == (2, True)


def test_no_strict_search_when_it_is_not_wanted_or_stated_by_the_question() -> None:
    question = TinyQuestion(stairs(0), around(-0.5, 0.5), 0)
    found = question.verify(strict=False).counterexample
    assert found is not None and found.tie
    # A VNN-LIB query states its own condition: equality meets it, and that ends the work.
    query = parse_vnnlib(
        "(declare-const X_0 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)"
        "(assert (>= X_0 -1)) (assert (<= X_0 0)) (assert (<= Y_0 Y_1))"
    )
    result = bnncert.verify(question.network, query)
    assert result.vnncomp_word == "sat" and "strict" not in result.timing.stages
    assert result.counterexample is not None and "tie" not in result.counterexample.to_dict()


def test_a_choice_of_signs_at_0_is_said_to_be_one() -> None:
    """At x = 0 both signs are allowed: with + the margin is 2, with - it is 0."""
    net = TinyNetwork(
        (np.ones((1, 1)), np.array([[1.0], [0.0]])), (np.zeros(1), np.array([1.0, 0.0])), "either"
    )
    question = TinyQuestion(net, around(0.0, 0.0), 0)
    assert {s[0] - s[1] for s in question.scores} == {2, 0}
    found = question.verify().counterexample
    assert found is not None and found.tie and found.is_one_choice
    assert found.to_dict()["one_choice"] is True
    assert found.tie_text.endswith("stays 0, for one choice of the signs at 0")
    # Away from 0 the sign is certain.
    found = bnncert.verify(question.network, around(-1.0, 0.5), 0).counterexample
    assert found is not None and found.tie and not found.is_one_choice
    assert "one_choice" not in found.to_dict()


def first_best(scores: list[Fraction]) -> int:
    return scores.index(max(scores))


@pytest.mark.parametrize("method", ["auto", "attack", "bab"])
def test_ties_and_classes_agree_with_brute_force(method: str) -> None:
    kinds: Counter[str] = Counter()
    complete = "exact" in REGISTRY.make(method).promises

    @few(30)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        question = data.draw(questions(data.draw(st.sampled_from(NORMS))))
        label = question.label
        result = question.verify(method, options=Options(restarts=8, iterations=5))
        question.check(result)
        found = result.counterexample
        if found is None:
            return
        exact = found.exact or tuple(map(Fraction, found.point.tolist()))
        rival = int(found.target.removeprefix("class "))
        possible = scores_of(question.net, last_layers_at(question.net, exact))
        answers = {(s[label] == s[rival], first_best(s)) for s in possible if s[rival] >= s[label]}
        assert (found.tie, found.predicted) in answers
        assert found.is_one_choice or len(possible) == 1
        assert found.class_changes == (found.predicted != label)
        assert (found.value == 0) == found.tie
        least = min(question.truth.values())
        if complete and not result.is_misclassified:
            assert found.tie == (least == 0)
        if complete and least == 0 and found.tie and not result.is_misclassified:
            assert result.lower == 0
        kinds["tie" if found.tie else "strict"] += 1
        kinds["misclassified"] += result.is_misclassified

    check()
    assert kinds["tie"] >= 5 and kinds["strict"] >= 5


@pytest.mark.parametrize("norm", ["brightness", "shift"])
def test_shapes_of_change_prefer_a_strict_counterexample(norm: str) -> None:
    """The image ties; darker images, or those shifted to the left, have another class."""
    net = bnncert.Network.from_arrays(
        [[[1, 0, 0, 0], [1, 0, 0, 0]], [[1, 1], [0, 0]]], [[0.25, 0.75], [0, 0]]
    )
    image = [-0.5, -0.9, -0.9, -0.9]
    region: bnncert.Region = bnncert.Brightness(image, 0.4, -1, 1)
    if norm == "shift":
        region = bnncert.ImageShift(image, 1, (1, 2, 2), -1, 1, -1.0)
    result = bnncert.verify(net, region, 0)
    assert result.counterexample is not None and result.counterexample.value == -2
    assert not result.is_misclassified
    tied = bnncert.verify(net, region, 0, strict=False).counterexample
    assert tied is not None and tied.tie


def test_the_smallest_perturbation_has_a_strict_witness_if_there_is_one() -> None:
    """One step down ties for the first input, and has another class for the second."""
    first = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    net = TinyNetwork(
        (first, np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])),
        (np.full(3, 0.25), np.array([-1.0, 0.0])),
        "plus",
    )
    grid = bnncert.Grid(0.5, -1)
    ball = bnncert.Ball("linf", [0.0, 0.0], 0.0, -1, 1, grid=grid)
    scores = {
        point: scores_of(net, last_layers_at(net, tuple(map(Fraction, point))))[0][0]
        for point in product((-0.5, 0.0, 0.5), repeat=2)
    }
    assert scores[-0.5, 0.0] == 0 and scores[0.0, -0.5] == -2 and scores[0.0, 0.0] == 2
    found = bnncert.smallest(net.build(), ball, 0)
    assert found.minimum == 1 and found.witness is not None
    assert not found.witness.tie and found.witness.value < 0


def test_the_search_is_a_share_of_the_time_and_no_longer_than_the_tie_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    for limit, elapsed, expected in (
        (60.0, 0.5, 1.0),
        (60.0, 5.0, 5.0),
        (60.0, 40.0, 5.0),
        (2.0, 0.0, 0.5),
        (None, 0.5, 1.0),
        (None, 30.0, 30.0),
    ):
        deadline = Deadline(limit)
        clock.advance(elapsed)
        assert time_for_strict(deadline).remaining() == pytest.approx(expected)


def test_the_time_limit_holds_while_a_strict_counterexample_is_looked_for() -> None:
    """The scores tie at the centre; a strict counterexample changes one sign of 100 alone."""
    rng = np.random.default_rng(0)
    first, second = rng.choice([-1.0, 1.0], (100, 50)), rng.choice([-1.0, 1.0], (100, 100))
    centre, half = rng.uniform(-1, 1, 50), np.full(100, 0.5)
    signs = np.sign(second @ np.sign(first @ centre + half) + half)
    # The margin is 98 - (99 of the signs as at the centre) + (the first sign as there).
    output = np.zeros((2, 100))
    output[0] = -signs
    output[0, 0] = signs[0]
    network = bnncert.Network.from_arrays([first, second, output], [half, half, [98.0, 0.0]])
    started = time.monotonic()
    result = bnncert.verify(network, bnncert.Ball("linf", centre, 0.3), 0, timeout=1.0)
    assert time.monotonic() - started < 2.0
    assert result.counterexample is not None and result.counterexample.tie
    # A quarter of a second, and a second for what does not end at once.
    assert 0 < result.timing.stages["strict"] < 1.25


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "160")
    return command_line(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path / "net.npz", stairs(0), input_lo=-1.0, input_hi=1.0)
    np.save(tmp_path / "x.npy", np.array([0.0]))
    np.save(tmp_path / "xs.npy", np.array([[0.0], [-0.5]]))
    return tmp_path


WORDS = "a tie: classes 0 and 1 have the same score; the network's argmax (lowest index) stays 0"


def test_commands_say_a_tie_in_words_and_in_json(run: Run, folder: Path) -> None:
    about = ("net.npz", "--input", "x.npy", "--label", "0")
    ended = run("verify", *about, "--radius", "0.5", "--json", "a.json")
    assert (
        f"counterexample for class 1, margin 0, replayed in exact arithmetic; {WORDS}" in ended.out
    )
    found = json.loads(Path("a.json").read_text())["counterexample"]
    assert (found["tie"], found["predicted"], found["class_changes"]) == (True, 0, False)
    ended = run("verify", *about, "--radius", "0.5", "--ties", "robust")
    assert ended.out.splitlines()[-1].startswith("robust in ")
    ended = run("verify", *about, "--radius", "1", "--json", "b.json")
    assert "margin -2, " in ended.out and "tie" not in ended.out
    found = json.loads(Path("b.json").read_text())["counterexample"]
    assert (found["tie"], found["predicted"], found["class_changes"]) == (False, 1, True)
    ended = run("radius", *about, "--json", "r.json")
    assert WORDS in ended.out
    assert json.loads(Path("r.json").read_text())["counterexample"]["tie"] is True
    ended = run("radius", *about, "--exact", "--grid", "0.25", "--json", "s.json")
    assert "smallest perturbation: 2 steps (0.5 in input units), class 1, margin 0" in ended.out
    assert WORDS in ended.out
    assert json.loads(Path("s.json").read_text())["witness"]["tie"] is True
    ended = run("verify", "net.npz", "--input", "x.npy", "--label", "0", "--radius", "0")
    assert "tie" not in ended.out


def test_an_open_question_says_that_its_upper_bound_is_a_tie(run: Run, folder: Path) -> None:
    about = ("net.npz", "--input", "x.npy", "--label", "0", "--radius", "0.5", "--ties", "robust")
    ended = run("verify", *about, "--method", "attack", "--timeout", "1")
    assert "open: class 1, margin at most 0 (a tie)" in ended.out
    np.save("labels.npy", np.array([0, 0]))
    asked = ("--labels", "labels.npy", *about[5:], "--method", "attack", "--timeout", "1")
    assert run("run", "net.npz", "--data", "xs.npy", *asked, "--out", "r.sqlite").code == 0
    entry = page_of(Path("r.sqlite")).unpacked("data-details")["0"]
    assert "at most 0, and no lower bound is known (the upper bound is a tie)" in entry["why"][0]


def test_results_csv_and_page_say_a_tie(run: Run, folder: Path) -> None:
    np.save("labels.npy", np.array([0, 0]))
    ended = run(
        *("run", "net.npz", "--data", "xs.npy", "--labels", "labels.npy"),
        *("--radius", "0.2,0.5", "--out", "results.sqlite"),
    )
    assert ended.code == 0, ended.err
    assert run("report", "results.sqlite", "--csv", "csv").code == 0
    with open("csv/results.csv") as file:
        rows = {(r["input_index"], r["radius"]): r for r in csv.DictReader(file)}
    # Right of -0.25 the margin is 2, down to -0.75 it is 0, left of that it is -2.
    expected = {
        ("0", "0.2"): ("robust", ""),
        ("0", "0.5"): ("not_robust", "True"),
        ("1", "0.2"): ("not_robust", "True"),
        ("1", "0.5"): ("not_robust", "False"),
    }
    assert {key: (r["status"], r["tie"]) for key, r in rows.items()} == expected
    details = page_of(Path("results.sqlite")).unpacked("data-details").values()
    said = [entry["found"]["tie"] for entry in details if "found" in entry]
    assert sorted(said) == ["", WORDS, WORDS]
