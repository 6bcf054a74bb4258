"""The results file: rows as they were, one writer or two, and every way in which a disk says no."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import Ball, InputError, Network
from bnncert.engine.verdict import Counterexample, Result, TargetResult
from bnncert.report.page.document import write_page
from bnncert.results.rows import FORMAT, InputRecord, InstanceKey, NetworkRecord, Row, stored_floats
from bnncert.results.store import ResultsFile, read_recorded

KEY = InstanceKey(
    model_hash="m" * 64,
    input_index=3,
    input_hash="i" * 64,
    label=0,
    norm="linf",
    radius=0.1,
    clip="-1.0,1.0",
    rivals="all",
    method="auto",
    timeout=None,
    ties="violation",
    sign_zero="plus",
    seed=0,
)
ROBUST = Result("robust", (TargetResult("class 1", "robust", 1.5, stage="lp", rival=1),), 0.5, "lp")
ROW = Row.of(KEY, 0, ROBUST)


def numbered(index: int) -> Row:
    return replace(ROW, key=replace(KEY, input_index=index))


# --- rows ------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:
        assert not results.has(KEY)
        assert results.get([KEY]) == {}
        assert results.add(ROW)
        assert results.has(KEY)
    with ResultsFile(tmp_path / "r.sqlite") as results:
        other = replace(KEY, input_index=KEY.input_index + 1)
        assert results.get([KEY]) == results.get([other, KEY]) == {KEY: ROW}
        assert results.rows() == [ROW]
    assert (ROW.status, ROW.stage, ROW.lower, ROW.upper) == ("robust", "lp", 1.5, None)


def test_the_file_is_one_file_with_a_synchronous_disk(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:
        results.add(ROW)
        assert results._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert [p.name for p in tmp_path.iterdir()] == ["r.sqlite"]


def test_the_first_answer_stays(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:
        assert results.add(ROW)
        assert not results.add(replace(ROW, status="unknown"))
        assert [row.status for row in results.rows()] == ["robust"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_hash", "n" * 64),
        ("input_index", 4),
        ("input_hash", "j" * 64),
        ("label", 1),
        ("norm", "l2"),
        ("radius", float(np.nextafter(0.1, 1))),
        ("clip", "none"),
        ("rivals", "1"),
        ("method", "milp"),
        ("timeout", 1.0),
        ("ties", "robust"),
        ("sign_zero", "minus"),
        ("seed", 1),
        ("question", "bound"),
        ("grid", "1.0,0.0"),
        ("within", 0.5),
        ("value", 0.5),
    ],
)
def test_every_part_of_the_question_counts(tmp_path: Path, name: str, value: Any) -> None:
    other = replace(KEY, **{name: value})
    with ResultsFile(tmp_path / "r.sqlite") as results:
        results.add(ROW)
        assert not results.has(other)
        assert results.add(replace(ROW, key=other))
        assert [getattr(row.key, name) for row in results.rows()] == [getattr(KEY, name), value]


def test_a_counterexample_is_kept_exactly(tmp_path: Path) -> None:
    point = np.array([0.1, -1 / 3])
    exact = (Fraction(1, 10), Fraction(-1, 3))
    found = Counterexample(point, exact, "class 1", Fraction(-1, 7), np.array([0.0, 1.0]))
    target = TargetResult("class 1", "not_robust", upper=-0.14, stage="milp", counterexample=found)
    row = Row.of(KEY, 0, Result("not_robust", (target,), 1.0, "milp", found))
    with ResultsFile(tmp_path / "r.sqlite") as results:
        results.add(row)
        back = results.rows()[0]
    kept = stored_floats(back.counterexample, "row")
    assert kept is not None
    assert kept.tobytes() == point.tobytes()
    tree = json.loads(back.counterexample_json or "")
    assert tuple(map(Fraction, tree["input_exact"])) == exact
    assert Fraction(tree["value_exact"]) == Fraction(-1, 7)
    assert (back.status, back.stage, back.upper) == ("not_robust", "milp", -0.14)


def test_a_wrong_centre_is_misclassified_and_not_merely_not_robust() -> None:
    network = Network.from_arrays([[[1]], [[1], [-1]]], [[0.0], [0.0, 0.0]])
    wrong = bnncert.verify(network, Ball("linf", [1.0], 0.5), 1)
    assert (wrong.status, Row.of(KEY, 0, wrong).status) == ("not_robust", "misclassified")
    near = bnncert.verify(network, Ball("linf", [1.0], 2.0), 0)
    assert (near.status, Row.of(KEY, 0, near).status) == ("not_robust", "not_robust")


# --- two at once -----------------------------------------------------------------------------

WRITER = """
import sys
from dataclasses import replace
from tests.results.test_store import KEY, ROW
from bnncert.results.store import ResultsFile

first = int(sys.argv[2])
sys.stdin.readline()
with ResultsFile(sys.argv[1]) as results:
    added = [results.add(replace(ROW, key=replace(KEY, input_index=i), predicted=first))
             for i in range(first, first + 60)]
print(sum(added))
"""


def test_two_processes_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    source = Path(bnncert.__file__).parents[1]
    root = Path(__file__).parents[2]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{root}"},
        )
        for first in (0, 30)
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=60) for process in both]
    assert [(process.returncode, err) for process, (_, err) in zip(both, ends, strict=True)] == [
        (0, ""),
        (0, ""),
    ]
    # Each of the 30 questions that both answer is counted by exactly one of them.
    assert sum(int(out) for out, _ in ends) == 90
    with ResultsFile(path) as results:
        assert sorted(row.key.input_index for row in results.rows()) == list(range(90))
        assert results._connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- what is not a results file --------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        ResultsFile(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text


@pytest.mark.parametrize("content", [b"x", b"radius,status\n0.1,robust\n" * 200, b"SQLite format"])
def test_another_kind_of_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "not a bnncert results file" in refused(path)
    assert path.read_bytes() == content


def test_a_broken_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"?" * 5000)
    before = path.read_bytes()
    assert "file is not a database" in refused(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE people (name TEXT)",
        "CREATE TABLE meta (something TEXT)",
        "CREATE TABLE meta (name TEXT, value TEXT)",
    ],
)
def test_somebody_elses_database_is_left_as_it_is(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    assert "not a bnncert results file" in refused(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", ["7", "9", "one"])
def test_another_schema_version_is_named(tmp_path: Path, version: str) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsFile(path) as results:
        meta = dict(results._connection.execute("SELECT name, value FROM meta"))
        assert meta == {"format": FORMAT, "schema_version": "8"}
        change = "UPDATE meta SET value = ? WHERE name = 'schema_version'"
        results._connection.execute(change, (version,))
    before = path.read_bytes()
    text = refused(path)
    assert f"results of schema version {version}; this bnncert reads version 8" in text
    assert text.endswith(
        "use the bnncert that wrote it, or answer the questions again into a new file"
    )
    with pytest.raises(InputError, match=f"schema version {version}"):
        ResultsFile(path, writable=False)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_one(tmp_path: Path) -> None:
    # What a kill between making the file and making its tables leaves.
    path = tmp_path / "r.sqlite"
    path.touch()
    with ResultsFile(path) as results:
        assert results.add(ROW)


# --- a disk that says no ---------------------------------------------------------------------


def test_a_missing_folder_and_a_folder_are_named(tmp_path: Path) -> None:
    assert "No such directory" in refused(tmp_path / "none" / "r.sqlite")
    assert "Is a directory" in refused(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_protected_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "protected"
    folder.mkdir(mode=0o500)
    assert "cannot be written" in refused(folder / "r.sqlite")
    assert list(folder.iterdir()) == []


def test_a_folder_that_sqlite_cannot_write_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: Any, **__: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert "cannot be written (unable to open database file)" in refused(tmp_path / "r.sqlite")


def test_a_protected_file_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsFile(path) as results:
        results.add(ROW)
    before = path.read_bytes()
    open_ = sqlite3.connect

    def connect(name: str, **options: Any) -> sqlite3.Connection:
        # What a file without the right to write does, also for root.
        return open_(name.replace("mode=rwc", "mode=ro"), **options)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        assert "attempt to write a readonly database" in refused(path)
    assert path.read_bytes() == before


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    big = "x" * 3000
    with ResultsFile(path) as results:
        pages = results._connection.execute("PRAGMA page_count").fetchone()[0]
        results._connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        written = 0

        def fill() -> None:
            nonlocal written
            for written in range(100):
                results.add(replace(numbered(written), per_target=big))

        with pytest.raises(InputError, match="database or disk is full") as caught:
            fill()
        assert str(caught.value).startswith(f"{path}: cannot be written")
        assert 1 <= written < 10
        # Still usable: the row that did not fit is not there, not even in part.
        assert [row.key.input_index for row in results.rows()] == list(range(written))
    with ResultsFile(path) as results:
        assert results.add(numbered(written))
        assert len(results.rows()) == written + 1


def test_an_interrupt_inside_a_transaction_undoes_it(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:

        def interrupted() -> None:
            with results._transaction():
                results._connection.execute("INSERT INTO meta VALUES ('half', 'a row')")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert results.add(ROW)
        names = {name for (name,) in results._connection.execute("SELECT name FROM meta")}
        assert names == {"format", "schema_version"}


def test_a_file_that_stays_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.results.store.BUSY_SECONDS", 0.1)
    path = tmp_path / "r.sqlite"
    with ResultsFile(path) as results:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="database is locked"):
            results.add(ROW)
        other.execute("ROLLBACK")
        other.close()
        assert results.add(ROW)


# --- networks, inputs and broken cells -------------------------------------------------------


def test_what_the_hashes_stand_for(tmp_path: Path) -> None:
    network = Network.from_arrays(
        [[[1, 0]], [[1], [-1]]], [[0.0], [0.0, 0.0]], input_lo=-1.0, input_hi=[1.0, 2.0]
    )
    record = NetworkRecord.of(network, "mine", "nets/mine.npz")
    points = {"short": np.array([0.5, -0.25]), "long": np.array([0.1, 1 / 3])}
    with ResultsFile(tmp_path / "r.sqlite") as results:
        results.add_networks([record, record])
        results.add_networks([replace(record, name="later")])
        results.add_inputs(InputRecord(name, 1, (1, 2), p) for name, p in points.items())
        assert results.networks() == [record]
        stored = {r.input_hash: r for r in results.inputs()}
        types = dict(results._connection.execute("SELECT input_hash, dtype FROM inputs"))
    assert (record.sizes, record.zero_fraction) == ((2, 1, 2), 0.25)
    # A box that differs from input to input has no one number.
    assert (record.input_lo, record.input_hi) == (-1.0, None)
    assert types == {"short": "<f4", "long": "<f8"}
    for name, point in points.items():
        assert stored[name].point.tobytes() == point.tobytes()
        assert (stored[name].shape, stored[name].label) == ((1, 2), 1)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        ResultsFile(tmp_path / "r.sqlite", writable=False)
    (tmp_path / "r.sqlite").touch()
    with ResultsFile(tmp_path / "r.sqlite", writable=False) as results:
        assert results.rows() == []
    assert (tmp_path / "r.sqlite").read_bytes() == b""


BROKEN = {
    "text that is not UTF-8": "UPDATE results SET stage = CAST(x'ff41fe' AS TEXT)",
    "seconds that are text": "UPDATE results SET seconds = 'long'",
    "a status of no kind": "UPDATE results SET status = 'fine'",
    "sizes nested too deeply": "UPDATE networks SET sizes = '" + "[" * 5000 + "'",
    "a shape of no size": "UPDATE inputs SET shape = '[1000]'",
    "a type of no kind": "UPDATE inputs SET dtype = 'object'",
    "a view that never ends": (
        "ALTER TABLE results RENAME TO other; CREATE VIEW results AS WITH RECURSIVE r(key) AS "
        "(SELECT 1 UNION ALL SELECT key + 1 FROM r) SELECT key FROM r"
    ),
    "a column that fills the memory": (
        "ALTER TABLE results ADD COLUMN more TEXT AS (hex(zeroblob(900000000)))"
    ),
    "broken text in the layout": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = CAST(x'ff41fe' AS TEXT), "
        "tbl_name = CAST(x'ff41fe' AS TEXT) WHERE name = 'networks'"
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_cells_are_one_line(tmp_path: Path, case: str) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsFile(path) as results:
        results.add(ROW)
        results.add_networks([NetworkRecord("m", "n", "s", (2, 2), (2,), None, None, None, 0.5)])
        results.add_inputs([InputRecord(KEY.input_hash, 0, (2,), np.zeros(2))])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(BROKEN[case])
    with pytest.raises(InputError, match=f"^{path}: "), ResultsFile(path) as results:
        results.rows(), results.networks(), results.inputs()
    with pytest.raises(InputError, match=f"^{path}: "):
        write_page(read_recorded(path), tmp_path / "page.html")


def test_rows_record_where_their_points_come_from(tmp_path: Path) -> None:
    row = replace(ROW, data="/data/points.npz:x", scale="--scale 0.0 1.0")
    with ResultsFile(tmp_path / "r.sqlite") as results:
        results.add(row)
        (back,) = results.rows()
    assert (back.data, back.scale) == (row.data, row.scale)
    # The same question from another file is the same question.
    with ResultsFile(tmp_path / "r.sqlite") as results:
        assert not results.add(replace(row, data="elsewhere.npz"))
