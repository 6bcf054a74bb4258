"""`--results`: answers of explain, faults and count in a results file, and in its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.cli.answer_view import RecordedView
from bnncert.cli.command_question import CommandQuestion, read_question
from bnncert.cli.options import AnswerOutputs, BallShape, ModelOptions, PointOptions, ScalingOptions
from bnncert.errors import FormatError
from bnncert.report.other_answers import SHOWN_KINDS
from bnncert.results.rows import Kind
from bnncert.results.store import read_recorded
from tests.cli.diamond import Run

ANSWER = {"status": "exact", "summary": "", "seconds": 1.0, "certificate": None}


@pytest.fixture
def question(folder: Path) -> CommandQuestion:
    """Return the ball of radius 1/4 around (1, 0), on a grid, in which the class is the same."""
    shape = BallShape("linf", "0.25", grid="0.125")
    point = PointOptions(input_="x.npy")
    return read_question(ModelOptions(Path("net.npz")).read(), point, shape, ScalingOptions())


class _View(RecordedView[Any]):
    def print_answer(self, found: Any) -> None:
        raise NotImplementedError


def record(
    path: Path | None,
    kind: Kind,
    question: CommandQuestion,
    region: str,
    settings: dict[str, Any],
    tree: dict[str, Any],
) -> str:
    """Write an answer into a results file as a command does; return the line about it."""
    consoles: Any = None
    outputs = AnswerOutputs(results=path)
    view = _View(consoles, outputs, dict, kind, question, region, settings)
    found = SimpleNamespace(to_dict=lambda: tree)
    return next(view.written(found, is_interrupted=False), "")


def test_answers_of_the_functions_are_read_by_the_report(question: CommandQuestion) -> None:
    network, ball, label = question.network, question.region, question.label
    path = Path("r.sqlite")
    explained = bnncert.explain(network, ball.middle, label, certificate="set.bnncert")
    asked = (path, "explain", question, explained.domain.text, {"ties": "violation"})
    assert record(*asked, explained.to_dict()).startswith("results: r.sqlite (1 answer of ")
    tolerated = bnncert.faults(network, ball, label)
    record(path, "faults", question, question.ball_text, {}, tolerated.to_dict())
    counted = bnncert.count(network, ball, label, samples=100)
    added = record(path, "count", question, question.ball_text, {}, counted.to_dict())
    assert "(3 answers of" in added

    recorded = read_recorded(path)
    assert [other.input_name for other in recorded.others] == ["x.npy"] * 3
    (one,), rows, (total,) = (shown.lines(recorded) for shown in SHOWN_KINDS)
    kept = " ".join(map(str, explained.kept))
    assert one.facts == {"inputs": 2, "kept": len(explained.kept), "open": 0, "kept_inputs": kept}
    assert one.answer.certificate == "set.bnncert"
    assert [row.facts["certified"] for row in rows] == [row.certified for row in tolerated.rows]
    assert [row.cells[-1] for row in rows] == [list(map(str, row.bits)) for row in tolerated.rows]
    assert [total.facts[name] for name in ("lower", "upper", "total")] == ["0", "0", "25"]
    assert total.facts["estimate"] is not None
    (stored,) = recorded.inputs({one.answer.input_hash}).values()
    assert np.array_equal(stored.point, ball.middle)
    assert recorded.network(one.answer.model_hash).name == "net.npz"


def test_the_same_question_has_one_answer(question: CommandQuestion) -> None:
    path, tree = Path("r.sqlite"), ANSWER
    for asked in (question, question, replace(question, label=1), replace(question, rivals=(1,))):
        record(path, "count", asked, "a ball", {}, tree)
    smaller = read_question(
        question.network, PointOptions(input_="x.npy"), BallShape("linf", "0.125"), ScalingOptions()
    )
    # The same words for another region, and other settings.
    record(path, "count", smaller, "a ball", {}, tree)
    record(path, "count", question, "a ball", {"ties": "robust"}, tree)
    assert len(read_recorded(path).others) == 5


def test_whole_points_are_left_out(question: CommandQuestion) -> None:
    tree = {
        **ANSWER,
        **{"witness": [0.5] * 2, "region": {"center": [1]}},
        "rows": [{"certified": 3, "counterexample": {"input": [0.5] * 2}}],
    }
    record(Path("r.sqlite"), "faults", question, "a ball", {}, tree)
    (other,) = read_recorded(Path("r.sqlite")).others
    assert other.tree == {**ANSWER, "rows": [{"certified": 3}]}


def test_certificates_are_named_from_the_folder_of_the_file(question: CommandQuestion) -> None:
    for name in ("results", "proofs"):
        Path(name).mkdir()
    tree = {**ANSWER, "certificate": "proofs/a.bnncert"}
    path = Path("results/r.sqlite")
    record(path, "count", question, "a ball", {}, tree)
    (other,) = read_recorded(path).others
    assert other.certificate == "../proofs/a.bnncert"


def test_without_a_file_nothing_is_written(question: CommandQuestion, folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert record(None, "count", question, "a ball", {}, ANSWER) == ""
    assert sorted(folder.iterdir()) == before


def test_another_file_is_refused_before_the_work(question: CommandQuestion) -> None:
    Path("notes.txt").write_text("text")
    with pytest.raises(FormatError, match=r"notes\.txt: not a bnncert results file; it was not"):
        record(Path("notes.txt"), "count", question, "a ball", {}, {})
    assert Path("notes.txt").read_text() == "text"


def test_faults_of_several_inputs_in_one_report(folder: Path, run: Run) -> None:
    np.save("x.npy", np.array([[1.0, 0.0], [1.5, 0.25]]))
    asked = ("faults", "net.npz", "--input", "x.npy", "--results", "r.sqlite")
    first = run(*asked, "--index", "0")
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines()[-1] == "results: r.sqlite (1 answer of explain, faults and count)"
    assert run(*asked, "--index", "1").code == 0
    # A repeated question replaces the older answer.
    again = run(*asked, "--index", "0")
    assert again.out.splitlines()[-1].startswith("results: r.sqlite (2 answers of ")
    assert run("report", "r.sqlite", "-o", "page.html").code == 0
    page = Path("page.html").read_text("utf-8")
    assert "Weight faults" in page and "x.npy [0]" in page and "x.npy [1]" in page
    recorded = read_recorded(Path("r.sqlite"))
    assert {one.answer.status for one in SHOWN_KINDS[1].lines(recorded)} == {"exact"}


def test_files_of_another_kind_are_refused_by_the_command(folder: Path, run: Run) -> None:
    Path("notes.txt").write_text("text")
    answer = run("faults", "net.npz", "--input", "x.npy", "--results", "notes.txt")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "bnncert: notes.txt: not a bnncert results file; it was not changed\n"


def test_explanations_of_images_in_one_report(folder: Path, run: Run) -> None:
    asked = ("--radius", "0.25px", "--results", "r.sqlite", "--certificate", "0.bnncert")
    answer = run("explain", "demo:sparse", "demo:0", *asked)
    assert (answer.code, answer.err) == (0, "")
    small = run("explain", "net.npz", "x.npy", "--results", "r.sqlite")
    assert "results: r.sqlite (2 answers of " in small.out
    assert run("report", "r.sqlite", "-o", "page.html").code == 0
    page = Path("page.html").read_text("utf-8")
    # The point of the small network is not a picture.
    assert page.count("<img class=kept") == 1
    assert 'href="./0.bnncert"' in page and ">x.npy</th>" in page
    assert "mnist_sparse.npz" in page and "net.npz" in page


def test_counts_in_a_report(folder: Path, run: Run) -> None:
    asked = ("count", "net.npz", "x.npy", "--grid", "0.5", "--results", "r.sqlite")
    answer = run(*asked, "--radius", "1")
    assert (answer.code, answer.err) == (0, "")
    assert run(*asked, "--radius", "0.5", "--samples", "0").code == 0
    assert run("report", "r.sqlite", "-o", "page.html").code == 0
    assert "Counts" in Path("page.html").read_text("utf-8")
    recorded = read_recorded(Path("r.sqlite"))
    first, second = (line.facts for line in SHOWN_KINDS[2].lines(recorded))
    assert (first["total"], second["total"]) == ("25", "9")
    assert first["exact"] and int(first["lower"]) > int(second["lower"])
    assert first["estimate"] is not None and second["estimate"] is None
