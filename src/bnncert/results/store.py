"""The results file: many answers in one SQLite file.

Rows are written atomically: after a crash the file contains only complete rows.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.errors import FormatError, InputError, reason
from bnncert.model.formats.file_content import DEFAULT_LIMITS, check_regular, too_many
from bnncert.results.rows import (
    SCHEMA_VERSION,
    Evidence,
    InputRecord,
    InstanceKey,
    Kind,
    NetworkRecord,
    OtherAnswer,
    Row,
    check_cells,
    checked_answer,
    create_tables,
    finite_number,
    plain_tables,
    stated_version,
    stored_floats,
    stored_object,
    stored_point,
    stored_sizes,
    stored_targets,
)

#: The first bytes of every SQLite file that is not empty.
SQLITE_MAGIC = b"SQLite format 3\0"

#: Seconds to wait while another process writes to the same file.
BUSY_SECONDS = 60.0

_KEY_COLUMNS = tuple(f.name for f in fields(InstanceKey))
_ROW_COLUMNS = tuple(f.name for f in fields(Row) if f.name not in ("key", "rowid"))
_INPUT_COLUMNS = ("input_hash", "label", "shape", "dtype", "point")
_OTHER_COLUMNS = tuple(f.name for f in fields(OtherAnswer) if f.name != "rowid")

#: Columns of the evidence that reports do not read with the rows, and the values used instead.
_EVIDENCE = {"per_target": "'[]'", "counterexample": "NULL", "counterexample_json": "NULL"}


def is_database(path: Path) -> bool:
    """Return whether a file begins as a results file does."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


class ResultsFile:
    """A results file, open for reading and writing; it is created if it does not exist.

    Several processes may have the same file open: each row is written in its own transaction, and
    the first answer to a question is kept.  With `writable` False, nothing is written or created.

    Raises InputError if the file cannot be opened or written, or is not a results file; it is then
    not changed.
    """

    def __init__(self, path: str | Path, *, writable: bool = True) -> None:
        self.path = Path(path)
        self._writable = writable
        self._known: set[str] = set()
        self._refuse_other_files()
        with self._one_line():
            # Never mode=ro: after a kill, SQLite must undo an incomplete row before it can read.
            mode = "rwc" if writable else "rw"
            self._connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                timeout=BUSY_SECONDS,
                isolation_level=None,
                uri=True,
            )
        try:
            with self._one_line():
                if writable:
                    # A rollback journal, not a WAL: the results stay one file that can be copied.
                    self._connection.execute("PRAGMA synchronous = FULL")
                    # One transaction: of two processes, one creates the tables, one finds them.
                    with self._transaction():
                        tables = self._tables()
                        if tables:
                            self._check_version(tables)
                            # A write that changes nothing: SQLite opens a read-only file without
                            # an error, which should occur now and not after hours of work.
                            self._connection.execute("UPDATE meta SET value = value")
                        else:
                            create_tables(self._connection)
                else:
                    self._connection.execute("PRAGMA query_only = ON")
                    self._check_version(self._tables())
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; all added rows have been written."""
        self._connection.close()

    def has(self, key: InstanceKey) -> bool:
        """Return whether this question is answered in the file."""
        with self._one_line():
            if not self._writable and not self._tables():
                return False
            query = "SELECT 1 FROM results WHERE key = ?"
            return self._connection.execute(query, (key.digest,)).fetchone() is not None

    def get(self, keys: Iterable[InstanceKey]) -> dict[InstanceKey, Row]:
        """Return the answers to those of the questions that the file answers."""
        wanted = {key.digest: key for key in keys}
        if len(wanted) == 1:
            chosen = self._select("WHERE key = ?", tuple(wanted))
        else:
            chosen = self._select("", (), wanted=wanted)
        return {row.key: row for row in chosen}

    def answered(self) -> set[str]:
        """Return the digests of all questions that the file answers."""
        with self._one_line():
            if "results" not in self._tables():
                return set()
            return {key for (key,) in self._connection.execute("SELECT key FROM results")}

    def rows(self, *, evidence: bool = True) -> list[Row]:
        """Return every row, in the order of writing.

        Without `evidence`, the answers of the targets and the counterexamples are not read: rows
        are then small in memory, and :meth:`evidence` reads the rest.
        """
        self._check_count("results", "rows")
        return list(self._select("ORDER BY rowid", (), {} if evidence else _EVIDENCE))

    def evidence(self, row: Row) -> Evidence:
        """Read the evidence of a row of this file."""
        with self._one_line():
            found = self._connection.execute(
                f"SELECT {', '.join(_EVIDENCE)} FROM results WHERE rowid = ?", (row.rowid,)
            ).fetchone()
            if found is None:
                raise InputError(f"{self.path}: changed while it was read; try again")
        where = f"{self.path}: row {row.rowid}"
        stored = self.find_input(row.key.input_hash)
        return Evidence(
            targets=stored_targets(found[0], f"{where}, per_target"),
            found=stored_object(found[2], f"{where}, counterexample_json"),
            point=None if stored is None else stored.point,
            shape=() if stored is None else stored.shape,
            counterexample=stored_floats(found[1], f"{where}, counterexample"),
        )

    def add(self, *rows: Row) -> int:
        """Write rows to the disk together; return how many questions had no answer before."""
        return self._insert(
            "results",
            [
                {"key": row.key.digest}
                | {name: getattr(row.key, name) for name in _KEY_COLUMNS}
                | {name: getattr(row, name) for name in _ROW_COLUMNS}
                for row in rows
            ],
        )

    def replace_other(self, answer: OtherAnswer) -> None:
        """Write an answer of another kind to the disk, instead of an older one if there is one."""
        values = {"key": answer.key, **{name: getattr(answer, name) for name in _OTHER_COLUMNS}}
        self._insert("other_answers", [values], clash="REPLACE")

    def other_answers(self) -> list[OtherAnswer]:
        """Return the answers of other kinds, if the file has them, in the order of writing."""
        self._check_count("other_answers", "answers")
        return [
            checked_answer(cells, f"{self.path}: answer {cells['rowid']}")
            for cells in self._all("other_answers", ("rowid", *_OTHER_COLUMNS))
        ]

    def mark_labels_given(self, keys: Iterable[InstanceKey]) -> None:
        """Record that the labels of existing rows were given with the data."""
        found = [(key.digest,) for key in keys]
        if not found:
            return
        with self._one_line(), self._transaction():
            self._connection.executemany(
                "UPDATE results SET labels = 'given' WHERE key = ? AND labels <> 'given'", found
            )

    def add_title(self, title: str) -> None:
        """Record the title of an experiment, after those that the file has already."""
        line = " ".join(title.split())
        known = self.titles()
        if not line or line in known:
            return
        with self._one_line(), self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO meta VALUES ('title', ?)", ("\n".join([*known, line]),)
            )

    def titles(self) -> list[str]:
        """Return the titles of the experiments whose answers are in the file."""
        with self._one_line():
            if "meta" not in self._tables():
                return []
            query = "SELECT value FROM meta WHERE name = 'title'"
            found = self._connection.execute(query).fetchone()
        return [line for line in str(found[0]).splitlines() if line] if found else []

    def add_networks(self, records: Iterable[NetworkRecord]) -> None:
        """Record the networks of model hashes; existing records are kept."""
        rows = []
        for record in records:
            shapes = {"sizes": record.sizes, "input_shape": record.input_shape}
            rows.append(asdict(record) | {k: json.dumps(v) for k, v in shapes.items()})
        self._insert("networks", rows)

    def add_inputs(self, records: Iterable[InputRecord]) -> None:
        """Record the inputs of input hashes; existing records are kept."""
        rows = []
        for record in records:
            short = record.point.astype("<f4")
            exact = np.array_equal(short.astype(np.float64), record.point)
            values = short if exact else record.point.astype("<f8")
            rows.append(
                {
                    "input_hash": record.input_hash,
                    "label": record.label,
                    "shape": json.dumps(record.shape),
                    "dtype": "<f4" if exact else "<f8",
                    "point": values.tobytes(),
                }
            )
        self._insert("inputs", rows)

    def networks(self) -> list[NetworkRecord]:
        """Return the networks of the model hashes, if the file has them."""
        names = tuple(f.name for f in fields(NetworkRecord))
        records = []
        for values in self._all("networks", names):
            where = f"{self.path}: network {str(values['model_hash'])[:12]}"
            sizes = stored_sizes(values.pop("sizes"), where)
            shape = stored_sizes(values.pop("input_shape"), where)
            for name, value in values.items():
                kind = str if name in ("model_hash", "name", "source") else float | int | None
                if not isinstance(value, kind):
                    raise FormatError(f"{where}: {name} is {str(value)[:40]!r}")
            for name in ("input_lo", "input_hi", "pixel_step", "zero_fraction"):
                values[name] = finite_number(values[name])
            if (values["pixel_step"] or 0) <= 0:
                values["pixel_step"] = None
            records.append(NetworkRecord(sizes=sizes, input_shape=shape, **values))
        return records

    def inputs(self) -> list[InputRecord]:
        """Return the inputs of the input hashes, if the file has them."""
        return [self._input(cells) for cells in self._all("inputs", _INPUT_COLUMNS)]

    def find_input(self, input_hash: str) -> InputRecord | None:
        """Return the input of one hash, or None if the file does not have it."""
        found = self._all("inputs", _INPUT_COLUMNS, "WHERE input_hash = ?", (input_hash,))
        return next((self._input(cells) for cells in found), None)

    def _input(self, cells: dict[str, Any]) -> InputRecord:
        """Return an input from its checked cells."""
        where = f"{self.path}: input {str(cells['input_hash'])[:12]}"
        check_cells({name: cells[name] for name in ("input_hash", "label")}, where)
        shape = stored_sizes(cells["shape"], where)
        point = stored_point(cells["point"], cells["dtype"], shape, where)
        return InputRecord(cells["input_hash"], cells["label"], shape, point)

    def relative(self, path: str | Path) -> str:
        """Return a path relative to the folder of this file, so that both can be moved together."""
        try:
            return os.path.relpath(Path(path).resolve(), self.path.resolve().parent)
        except ValueError:
            # The paths are on different drives (Windows).
            return str(Path(path).resolve())

    def _check_count(self, table: str, words: str) -> None:
        """Raise if a table has more rows than the limits allow."""
        with self._one_line():
            if table in self._tables():
                (count,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                if count > DEFAULT_LIMITS.rows:
                    raise too_many(self.path, f"{count} {words}", DEFAULT_LIMITS.rows, "rows")

    def _insert(self, table: str, rows: list[dict[str, Any]], clash: str = "IGNORE") -> int:
        """Write rows as one transaction; return how many were written."""
        if not rows:
            return 0
        names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        with self._one_line(), self._transaction():
            query = f"INSERT OR {clash} INTO {table} ({names}) VALUES ({marks})"
            cells = [tuple(row.values()) for row in rows]
            return self._connection.executemany(query, cells).rowcount

    def _all(
        self, table: str, names: tuple[str, ...], clause: str = "", values: tuple[Any, ...] = ()
    ) -> Iterator[dict[str, Any]]:
        with self._one_line():
            if table not in self._tables():
                return
            found = self._connection.execute(
                f"SELECT {', '.join(names)} FROM {table} {clause} ORDER BY rowid", values
            )
            for record in found:
                yield dict(zip(names, record, strict=True))

    def _select(
        self,
        clause: str,
        values: tuple[Any, ...],
        left_out: dict[str, str] | None = None,
        wanted: Container[str] | None = None,
    ) -> Iterator[Row]:
        """Yield rows, those of the `wanted` questions or all.

        The columns `left_out` are constants instead of stored values.
        """
        names = ("rowid", *_KEY_COLUMNS, *_ROW_COLUMNS)
        with self._one_line():
            if "results" not in self._tables():
                return
            columns = ", ".join((left_out or {}).get(name, name) for name in ("key", *names))
            found = self._connection.execute(f"SELECT {columns} FROM results {clause}", values)
            for digest, *record in found:
                if wanted is None or digest in wanted:
                    yield self._row(dict(zip(names, record, strict=True)))

    def _row(self, cells: dict[str, Any]) -> Row:
        """Return a row from its checked cells."""
        check_cells(cells, f"{self.path}: row {cells['rowid']}")
        cells["lower"], cells["upper"] = map(finite_number, (cells["lower"], cells["upper"]))
        key = InstanceKey(**{name: cells.pop(name) for name in _KEY_COLUMNS})
        return Row(key=key, **cells)

    def _refuse_other_files(self) -> None:
        """Raise if the file is not a database.

        The first bytes are checked here because SQLite opens some short files as empty databases.
        """
        if self._writable:
            if self.path.is_dir():
                raise InputError(f"{self.path}: cannot be written (Is a directory)")
            if not self.path.parent.is_dir():
                raise InputError(f"{self.path}: cannot be written (No such directory)")
            if not self.path.exists():
                return
        check_regular(self.path)
        try:
            with self.path.open("rb") as file:
                start = file.read(len(SQLITE_MAGIC))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror})") from error
        if start not in (b"", SQLITE_MAGIC):
            raise self._foreign()

    def _foreign(self) -> InputError:
        """Return the error for a file that is not a results file."""
        untouched = "; it was not changed" if self._writable else ""
        return FormatError(f"{self.path}: not a bnncert results file{untouched}")

    def _tables(self) -> set[str]:
        """Return the tables; a results file that has them keeps them."""
        if not self._known:
            self._known = plain_tables(self._connection)
        return self._known

    def _check_version(self, tables: set[str]) -> None:
        """Raise if these are not the tables of a results file of this version."""
        if not tables and not self._writable:
            # A kill between creating the file and creating its tables leaves an empty file.
            return
        version = stated_version(self._connection, tables)
        if version is None:
            raise self._foreign()
        if version != SCHEMA_VERSION:
            raise FormatError(
                f"{self.path}: results of schema version {version}; this bnncert reads version "
                f"{SCHEMA_VERSION}; use the bnncert that wrote it, or answer the questions again "
                "into a new file"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run statements as one transaction, which is undone after Ctrl-C or on a full disk."""
        # IMMEDIATE: the wait for another writer is here, before anything is changed.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Convert errors of SQLite to one line that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            wanted = "written" if self._writable else "read"
            raise InputError(f"{self.path}: cannot be {wanted} ({error})") from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            # Names and messages of SQLite may also be broken text.
            raise FormatError(
                f"{self.path}: not a readable results file ({reason(error)})"
            ) from error


@dataclass(frozen=True, eq=False)
class Recorded:
    """The rows of a file in the order of writing, its networks by hash, and its titles."""

    path: Path
    rows: tuple[Row, ...]
    networks: dict[str, NetworkRecord]
    #: The titles of the experiments; empty if the rows come from `bnncert run`.
    titles: tuple[str, ...] = ()
    #: Explanations, weight faults and counts, in the order of writing.
    others: tuple[OtherAnswer, ...] = ()

    @property
    def model_hashes(self) -> list[str]:
        """The networks of all rows and answers, in the order of their first one."""
        asked = (row.key.model_hash for row in self.rows)
        return list(dict.fromkeys([*asked, *(other.model_hash for other in self.others)]))

    @property
    def count(self) -> int:
        """The number of answers of all kinds."""
        return len(self.rows) + len(self.others)

    def of_kind(self, kind: Kind) -> list[OtherAnswer]:
        """Return the answers of one other kind, in the order of writing."""
        return [other for other in self.others if other.kind == kind]

    def network(self, model_hash: str) -> NetworkRecord:
        """Return the description of a network; without one, its name is the start of its hash."""
        return self.networks.get(model_hash) or NetworkRecord(model_hash, model_hash[:12])

    def evidence(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Evidence]]:
        """Read the evidence of these rows, one after the other."""
        with ResultsFile(self.path, writable=False) as results:
            for row in rows:
                yield row, results.evidence(row)

    def inputs(self, hashes: Iterable[str]) -> dict[str, InputRecord]:
        """Read the inputs of these hashes, as far as the file has them."""
        with ResultsFile(self.path, writable=False) as results:
            found = {name: results.find_input(name) for name in hashes}
        return {name: record for name, record in found.items() if record is not None}


def read_recorded(path: Path) -> Recorded:
    """Read a results file; raise InputError if it is not a known one, or contains no answer."""
    with ResultsFile(path, writable=False) as results:
        rows = tuple(results.rows(evidence=False))
        others = tuple(results.other_answers())
        if not rows and not others:
            raise InputError(f"{path}: holds no results yet")
        networks = {record.model_hash: record for record in results.networks()}
        return Recorded(path, rows, networks, tuple(results.titles()), others)
