"""`bnncert diff`: text, JSON, the page, exit codes and files that are not results."""

from __future__ import annotations

import html.parser
import json
import sqlite3
from pathlib import Path

import pytest

from bnncert.cli.diff import MOST_ROWS
from tests.cli.diamond import Run, read_json


@pytest.fixture
def files(folder: Path, run: Run) -> Path:
    """Return the working directory, with two results files about the same questions."""
    asked = ("run", "net.npz", "--data", "x.npy", "--radius", "0.1,0.4")
    assert run(*asked, "--method", "interval", "--out", "a.sqlite").code == 0
    assert run(*asked, "--method", "auto", "--out", "b.sqlite").code == 0
    return folder


def change(file: str, text: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(text)
    connection.close()


def test_a_file_and_itself(files: Path, run: Run) -> None:
    answer = run("diff", "a.sqlite", "a.sqlite", "-o", "c.html")
    assert (answer.code, answer.err) == (0, "")
    assert "2 instances are in both, 0 only in A, 0 only in B" in answer.out
    assert answer.out.endswith("no answer, bound or time has changed\n")
    assert "There are no contradictions." in Path("c.html").read_text()


def test_changes(files: Path, run: Run) -> None:
    change("a.sqlite", "UPDATE results SET status = 'unknown', lower = -3, seconds = 9")
    change("b.sqlite", "UPDATE results SET status = 'robust', lower = 3, seconds = 1")
    answer = run("diff", "a.sqlite", "b.sqlite", "--json", "c.json", "-o", "c.html")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert "answers: 2 became decided" in lines
    assert "lower bounds: 2 became tighter" in lines
    assert "times: 2 became shorter" in lines
    assert "in both: decided 0 in A, 2 in B; 18.0 s in A, 2.0 s in B (0.11 times as long)" in lines
    assert any(line.split()[-2:] == ["unknown", "robust"] for line in lines)
    tree = read_json(files / "c.json")
    assert [p["answer"] for p in tree["changed_answers"]] == ["gained", "gained"]
    assert tree["contradictions"] == [] and tree["seconds"] == [18.0, 2.0]
    backwards = run("diff", "b.sqlite", "a.sqlite", "--json", "-")
    assert json.loads(backwards.out)["changed_answers"][0]["answer"] == "lost"
    assert "answers: 2 became undecided" in backwards.err


def test_contradictions_are_first_and_have_their_exit_code(files: Path, run: Run) -> None:
    change("a.sqlite", "UPDATE results SET status = 'robust'")
    change("b.sqlite", "UPDATE results SET status = 'not_robust' WHERE radius = 0.4")
    answer = run("diff", "a.sqlite", "b.sqlite", "-o", "c.html", "--json", "c.json")
    assert answer.code == 1
    first = answer.out.splitlines()
    assert first[0] == "CONTRADICTIONS: 1 robust in one row and falsified in another"
    assert "robust (A, interval)" in first[2] and "not robust (B, auto)" in first[2]
    page = Path("c.html").read_text()
    assert page.index("CONTRADICTIONS") < page.index("instances are in both")
    (found,) = read_json(files / "c.json")["contradictions"]
    assert (found["kind"], found["proved"]["file"]) == ("answers", "A")


def test_rows_of_one_file(files: Path, run: Run) -> None:
    change("b.sqlite", "DELETE FROM results WHERE radius = 0.1")
    answer = run("diff", "a.sqlite", "b.sqlite")
    assert answer.code == 0 and "only in A: 1" in answer.out.splitlines()


def test_long_tables_are_cut_on_the_terminal_only(files: Path, run: Run) -> None:
    count = MOST_ROWS + 5
    radii = ",".join(str(k / 1000) for k in range(1, count + 1))
    asked = ("run", "net.npz", "--data", "x.npy", "--radius", radii, "--method", "interval")
    assert run(*asked, "--out", "many.sqlite").code == 0
    answer = run("diff", "a.sqlite", "many.sqlite", "-o", "c.html")
    assert f"only in B: {count}" in answer.out
    assert "5 more; -o PAGE.html and --json FILE" in answer.out
    # All rows of both tables, and their heads.
    assert Path("c.html").read_text().count("<tr>") == 2 + count + 2


class _Tags(html.parser.HTMLParser):
    """Collects the names of all tags, and the references to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.references: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]


def test_the_page_is_one_file_and_names_stay_text(files: Path, run: Run) -> None:
    change("a.sqlite", "UPDATE networks SET name = '<script>alert(1)</script>'")
    change("a.sqlite", "UPDATE results SET lower = -3")
    assert run("diff", "a.sqlite", "b.sqlite", "-o", "c.html").code == 0
    tags = _Tags()
    tags.feed(Path("c.html").read_text())
    assert "table" in tags.tags and "script" not in tags.tags
    assert tags.references == []


def test_bad_input(files: Path, run: Run) -> None:
    for name in ("net.npz", "missing.sqlite"):
        for words in (("a.sqlite", name), (name, "a.sqlite")):
            answer = run("diff", *words)
            assert answer.code == 2 and answer.out == "" and answer.err.count("\n") == 1
            assert answer.err.startswith(f"bnncert: {name}: ")
    assert "not a bnncert results file" in run("diff", "a.sqlite", "net.npz").err
    assert "ends in .html" in run("diff", "a.sqlite", "b.sqlite", "-o", "c.txt").err
    assert "this command reads it" in run("diff", "a.sqlite", "b.sqlite", "-o", "a.sqlite").err
