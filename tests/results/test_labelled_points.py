"""A share of robust inputs is an accuracy only where the true classes are known."""

from __future__ import annotations

import csv
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bnncert.report.csv_export import write_csv
from bnncert.report.latex_export import write_latex
from bnncert.report.page.document import write_page
from bnncert.results.rows import LabelSource, Row, label_source
from bnncert.results.store import ResultsFile, read_recorded
from tests.cli.diamond import DIAMOND, Run, write_network
from tests.cli.test_question import POINTS, TRUE_CLASSES, one_line
from tests.in_process import command_line
from tests.results.test_store import ROW

OUT = Path("r.sqlite")
ASK = ("net.npz", "--radius", "0.1", "--method", "interval", "--out", str(OUT), "--data")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    write_network(tmp_path / "net.npz", DIAMOND, input_lo=-2.0, input_hi=2.0)
    np.savez("mnist.npz", x_test=POINTS, y_test=TRUE_CLASSES, x_train=POINTS, y_train=[0, 0, 1])
    np.save("plain.npy", POINTS)
    return command_line(monkeypatch, capfd, "run")


def report_texts() -> list[str]:
    recorded = read_recorded(OUT)
    write_page(recorded, Path("r.html"))
    files = [*write_csv(recorded, Path("csv")), *write_latex(recorded, Path("tex"))]
    return [Path("r.html").read_text(encoding="utf-8"), *(f.read_text() for f in files)]


def test_the_labels_of_the_same_part_are_used(run: Run) -> None:
    outcome = run(*ASK, "mnist.npz:x_test")
    assert outcome.code == 0
    _, head, line, *_ = outcome.out.splitlines()
    assert head.endswith("certified accuracy")
    # One of three points is misclassified.
    assert line.split()[3:6] == ["3", "1", "2"] and line.endswith("66.7 %")
    with ResultsFile(OUT) as results:
        assert {row.labels for row in results.rows()} == {"given"}
    assert "Accuracy against radius" in report_texts()[0]


def test_without_labels_nothing_is_called_accuracy(run: Run) -> None:
    outcome = run(*ASK, "plain.npy")
    assert outcome.code == 0
    assert "certified agreement" in outcome.out
    assert "agreement with the network's own answer" in outcome.out
    with ResultsFile(OUT) as results:
        assert {row.labels for row in results.rows()} == {"own"}
    page, *tables = report_texts()
    assert "Agreement with the network&#x27;s own answer against radius" in page
    for text in (outcome.out, page.partition("<script")[0], *tables):
        # The class of the chart is not a word that is shown.
        assert "accuracy" not in text.lower().replace('class="accuracy"', "")
    assert any("agreement with the network's own answer" in text for text in tables)
    with Path("csv/summary.csv").open() as file:
        assert [line["labels"] for line in csv.DictReader(file)] == ["own"]


def test_labels_that_come_later_are_recorded(run: Run) -> None:
    run(*ASK, "plain.npy")
    Path("y.txt").write_text("0\n0\n1\n")
    outcome = run(*ASK, "plain.npy", "--labels", "y.txt")
    assert "3 of 3 instances are in" in outcome.out
    assert "certified accuracy" in outcome.out
    # They stay known, whoever asks again.
    assert "certified accuracy" in run(*ASK, "plain.npy").out


def test_labels_beside_the_points_can_be_left_out(run: Run) -> None:
    outcome = run(*ASK, "mnist.npz:x_test", "--labels", "own")
    assert "agreement" in outcome.out and "100.0 %" in outcome.out


def test_labels_that_do_not_fit_are_refused(run: Run) -> None:
    Path("y.txt").write_text("0\n0\n")
    assert "y.txt: 2 labels for 3 points" in one_line(run(*ASK, "plain.npy", "--labels", "y.txt"))
    Path("y.txt").write_text("0\n0\n7\n")
    message = one_line(run(*ASK, "plain.npy", "--labels", "y.txt"))
    assert "y.txt: label 2 is 7; the network has classes 0 to 2" in message
    Path("y.txt").write_text("0\n-1\n0\n")
    assert "label 1 is -1" in one_line(run(*ASK, "plain.npy", "--labels", "y.txt"))
    assert not OUT.exists()


def test_a_wrong_source_of_labels_in_a_file_is_named(run: Run) -> None:
    run(*ASK, "plain.npy")
    with sqlite3.connect(OUT) as connection:
        connection.execute("UPDATE results SET labels = 'guessed'")
    connection.close()
    with pytest.raises(Exception, match=r"r.sqlite: row 1: labels is 'guessed'"):
        read_recorded(OUT)


def test_labels_of_two_sources_have_none_in_common() -> None:
    def rows(*labels: LabelSource) -> list[Row]:
        return [replace(ROW, labels=source) for source in labels]

    assert label_source(rows("own", "given")) == "unknown"
    assert label_source(rows("own", "own")) == "own"
    assert label_source([]) == "unknown"


def test_an_experiment_reads_the_same_labels(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("y.json").write_text("[0, 2, 1]")
    config = (
        "networks: [{name: a, file: net.npz}]\n"
        "data: {file: plain.npy, labels: y.json}\n"
        "radii: 0.1\n"
        "methods: interval\n"
    )
    Path("a.yaml").write_text(config)
    experiment = command_line(monkeypatch, capfd, "experiment", "--processes", "0")
    assert experiment("a.yaml", "--out", OUT).code == 0
    with ResultsFile(OUT) as results:
        assert [row.key.label for row in results.rows()] == [0, 2, 1]
        assert {row.labels for row in results.rows()} == {"given"}
    OUT.unlink()
    assert experiment("a.yaml", "--out", OUT, "--labels", "own").code == 0
    with ResultsFile(OUT) as results:
        assert {row.labels for row in results.rows()} == {"own"}
    Path("a.yaml").write_text(config.replace("y.json", "z.json"))
    assert "a.yaml:2: z.json: no such file" in one_line(experiment("a.yaml"))
