"""Counts of answers: the same numbers on the terminal, in the page and in the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bnncert.regions import Ball
from bnncert.report.statistics import count_answers, counts, panels
from bnncert.report.summary import experiment_table, summarise
from bnncert.results.instance import Instance, Settings
from bnncert.results.rows import Row
from bnncert.results.store import ResultsFile, read_recorded
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
        return Instance(row.key, Ball("linf", [0.0], 0.1), 0, Settings(), "net", "0.1")

    Console(width=200).print(experiment_table([(instance(row), row) for row in rows]))
    cells = capsys.readouterr().out.splitlines()[1].split()
    assert cells[7:12] == ["4", "1", "1", "1", "1"]
    assert cells[-2:] == [f"{in_report.mean_seconds:.2f}", f"{in_report.max_seconds:.2f}"]
