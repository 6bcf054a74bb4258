"""Results files, certificates and configurations of earlier versions open, check and resume.

The files in tests/data/earlier were written by version 0.1.0 with results files of schema version 2
and, later, 3.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bnncert
from bnncert.kernel import check
from bnncert.results.store import ResultsFile
from tests.in_process import Outcome, command_line
from tests.results.test_other_answers import explanation

EARLIER = Path(__file__).resolve().parents[1] / "data" / "earlier"
VERSIONS = ("version2", "version3")


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Return what runs the command line in a folder with the earlier files."""
    for path in EARLIER.iterdir():
        if path.suffix == ".gz":
            (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.is_file():
            shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return command_line(monkeypatch, capsys)


@pytest.mark.parametrize("path", sorted((EARLIER / "certificates").iterdir()), ids=lambda p: p.name)
def test_certificates_are_accepted(path: Path) -> None:
    report = check(path, bnncert.load(EARLIER / "network.npz"))
    index, _, radius, _ = path.name.removeprefix("old-").split("-")
    robust = {("0", "0.05"), ("1", "0.3")}
    assert report.verdict == ("robust" if (index, radius) in robust else "not_robust")


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_read_as_they_were_written(command: Callable[..., Outcome], version: str) -> None:
    with ResultsFile(f"{version}.sqlite", writable=False) as results:
        rows = results.rows()
    found = [(row.key.input_index, row.key.radius, row.status) for row in rows]
    assert sorted(found) == [
        (0, 0.05, "robust"),
        (0, 0.3, "not_robust"),
        (1, 0.05, "robust"),
        (1, 0.3, "robust"),
        (2, 0.05, "misclassified"),
        (2, 0.3, "misclassified"),
        (3, 0.05, "robust"),
        (3, 0.3, "not_robust"),
        (4, 0.05, "not_robust"),
        (4, 0.3, "not_robust"),
        (5, 0.05, "robust"),
        (5, 0.3, "not_robust"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_resumes(command: Callable[..., Outcome], version: str) -> None:
    name = f"{version}.sqlite"
    asked = ("run", "network.npz", "--data", "points.npz:x", "--timeout", "20", "--out", name)
    outcome = command(*asked, "--radius", "0.05,0.3")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"12 of 12 instances are in {name} already" in outcome.out
    more = command(*asked, "--radius", "0.05,0.1")
    assert f"6 of 12 instances are in {name} already" in more.out


@pytest.mark.parametrize("version", VERSIONS)
def test_an_experiment_resumes(command: Callable[..., Outcome], version: str) -> None:
    name = f"{version}-experiment.sqlite"
    outcome = command("experiment", "experiment.yaml", "--out", name, "--workers", "0")
    assert outcome.code == 0, outcome.err
    assert f"28 of 28 instances in {name}" in outcome.out
    planned = command("experiment", "experiment.yaml", "--out", name, "--dry-run")
    assert f"28 instances, 28 in {name} already" in planned.out


@pytest.mark.parametrize("version", VERSIONS)
def test_a_report_is_made(command: Callable[..., Outcome], version: str) -> None:
    for name, network in ((version, "before.npz"), (f"{version}-experiment", "tiny")):
        outcome = command("report", f"{name}.sqlite", "-o", f"{name}.html", "--csv", name)
        assert outcome.code == 0, outcome.err
        assert network in Path(f"{name}.html").read_text("utf-8")


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_other_kinds_are_added(command: Callable[..., Outcome], version: str) -> None:
    name = f"{version}.sqlite"
    with ResultsFile(name, writable=False) as results:
        assert results.other_answers() == []
        before = results.rows()
    with ResultsFile(name) as results:
        results.replace_other(explanation())
        assert results.other_answers() == [explanation()]
        assert results.rows() == before
