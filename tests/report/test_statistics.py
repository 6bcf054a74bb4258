"""Counts of answers, the same in all tables, and the answers of all methods together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bnncert.report.page.document import page_text, page_title
from bnncert.report.page.outcomes import first_sentences, lead_section
from bnncert.report.statistics import count_answers, counts, panels, together
from bnncert.report.summary import experiment_table, summarise
from bnncert.results.instance import Balls, Instance, Settings
from bnncert.results.rows import Row
from bnncert.results.store import ResultsFile, read_recorded
from tests.report.results_sketch import NETWORK, write_results
from tests.results.test_store import KEY, ROW

ROWS = [
    replace(ROW, key=replace(KEY, input_index=0), status="robust", seconds=1.0),
    replace(ROW, key=replace(KEY, input_index=1), status="not_robust", seconds=2.0),
    replace(ROW, key=replace(KEY, input_index=2), status="timeout", seconds=6.0),
    replace(ROW, key=replace(KEY, input_index=3), status="misclassified", seconds=100.0),
]


def test_misclassified_inputs_are_counted_but_their_time_is_not() -> None:
    count = count_answers(0.1, "auto", ROWS)
    assert (count.instances, count.misclassified) == (4, 1)
    assert (count.robust, count.not_robust, count.undecided) == (1, 1, 1)
    assert (count.mean_seconds, count.max_seconds) == (3.0, 6.0)
    assert (count.certified, count.not_falsified) == (0.25, 0.5)
    none = count_answers(0.1, "auto", ROWS[3:])
    assert (none.mean_seconds, none.max_seconds) == (0.0, 0.0)


def test_all_tables_of_one_file_show_the_same_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:
        for row in ROWS:
            results.add(row)
        rows = results.rows()
    (on_terminal,) = summarise(rows)
    (panel,) = panels(read_recorded(tmp_path / "r.sqlite"))
    (in_report,) = counts(panel)
    assert replace(on_terminal, series=in_report.series) == in_report

    def instance(row: Row) -> Instance:
        balls = Balls("linf", None, None)
        return Instance(row.key, np.zeros(1), balls, 0, Settings(), "net", "0.1")

    Console(width=200).print(experiment_table([(instance(row), row) for row in rows]))
    cells = capsys.readouterr().out.splitlines()[1].split()
    assert cells[7:12] == ["4", "1", "1", "1", "1"]
    assert cells[-2:] == [f"{in_report.mean_seconds:.2f}", f"{in_report.max_seconds:.2f}"]


ANSWERS = {  # image: the answers of lp, sdp and bab
    0: ("unknown", "robust", "robust"),
    1: ("unknown", "unknown", "not_robust"),
    2: ("unknown", "unknown", "timeout"),
    3: ("misclassified", "misclassified", "misclassified"),
}


def rows() -> list[dict[str, Any]]:
    return [
        {"input_index": k, "input_hash": f"i{k}", "method": method, "status": status}
        for k, answers in ANSWERS.items()
        for method, status in zip(("lp", "sdp", "bab"), answers, strict=True)
    ]


def test_an_input_is_decided_if_one_method_decided_it(tmp_path: Path) -> None:
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", rows(), networks=[NETWORK]))
    (panel,) = panels(recorded)
    (one,) = together(panel)
    count = one.count
    assert (count.instances, count.robust, count.not_robust) == (4, 1, 1)
    assert (count.undecided, count.misclassified, one.falsified) == (1, 1, 2)
    assert one.contradictions == ()


def test_radii_are_never_added_up(tmp_path: Path) -> None:
    more = [{**row, "radius": 1.0 * 2 / 255, "status": "unknown"} for row in rows()]
    network = [NETWORK]
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", rows() + more, networks=network))
    text = lead_section(panels(recorded))
    assert text.count("of 4") == 6 and "of 8" not in text
    assert "25.0 %</b> <small>1 of 4" in text and "100.0 %</b> <small>4 of 4" in text


def test_opposite_verdicts_are_a_warning(tmp_path: Path) -> None:
    wrong = [*rows(), {"input_index": 1, "input_hash": "i1", "method": "milp", "status": "robust"}]
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", wrong, networks=[NETWORK]))
    (panel,) = panels(recorded)
    assert together(panel)[0].contradictions == (1,)
    text = lead_section([panel])
    assert "Contradiction at 0.5 px: image 1 is both robust and not robust" in text


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"labels": "given"}, "certified accuracy"),
        ({}, "certified share"),
        ({"rivals": "runner-up"}, "certified against the runner-up"),
        ({"rivals": "4"}, "certified against class 4"),
    ],
)
def test_only_a_share_over_all_classes_is_an_accuracy(
    tmp_path: Path, change: dict[str, Any], name: str
) -> None:
    results = write_results(tmp_path / "r.sqlite", [change], networks=[NETWORK])
    (panel,) = panels(read_recorded(results))
    assert panel.certified_name == name


def test_the_title_is_that_of_the_experiments(tmp_path: Path) -> None:
    path = write_results(tmp_path / "r.sqlite", rows(), networks=[NETWORK])
    assert page_title(read_recorded(path)) == "Robustness of sparse"
    with ResultsFile(path) as results:
        for title in ("First <b>", "Second\nline", "First <b>", " "):
            results.add_title(title)
        assert results.titles() == ["First <b>", "Second line"]
    recorded = read_recorded(path)
    assert page_title(recorded) == "First <b>; Second line"
    text = page_text(recorded, tmp_path / "page.html")
    assert "<h1>First &lt;b&gt;; Second line</h1>" in text


HUNDRED = ["robust"] * 93 + ["not_robust"] * 4 + ["unknown"] * 3


def some_rows(statuses: list[str], **changes: Any) -> list[dict[str, Any]]:
    return [
        {"input_index": k, "input_hash": f"i{k}", "status": status, **changes}
        for k, status in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            some_rows(HUNDRED),
            "Of 100 images, 93 are proved to keep their class within 0.5 px, 4 can be changed, "
            "3 are undecided.",
        ),
        (
            some_rows(["robust", "misclassified"], rivals="runner-up", norm="l2"),
            "Of 2 images, 1 is proved to keep its lead over the runner-up within 0.5 px (L2), "
            "0 can be changed, 0 are undecided, 1 is misclassified already.",
        ),
        (
            some_rows(["robust"] * 3) + some_rows(["robust", "not_robust", "timeout"], radius=0.5),
            "Of 3 images, 3 are proved to keep their class within 0.5 px and 1 within 63.75 px; "
            "within 63.75 px, 1 can be changed and 1 is undecided.",
        ),
    ],
)
def test_the_page_begins_with_a_plain_sentence(
    tmp_path: Path, changed: list[dict[str, Any]], sentence: str
) -> None:
    results = write_results(tmp_path / "r.sqlite", changed, networks=[NETWORK])
    recorded = read_recorded(results)
    assert first_sentences(panels(recorded)) == [sentence]
    page = page_text(recorded, tmp_path / "page.html")
    assert page.index(sentence) < page.index('id="lead"')
