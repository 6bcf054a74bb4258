"""Results of many verifications in one SQLite file: a row for each instance, never half of one."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.batch.stored_rows import check_cells, plain_tables, stored_point, stored_sizes
from bnncert.errors import FormatError, InputError
from bnncert.formats.archive import reason
from bnncert.formats.reading import check_regular
from bnncert.network import Network
from bnncert.regions import Norm
from bnncert.verdict import Result, Status
from bnncert.version import __version__

RowStatus: TypeAlias = Status | Literal["misclassified"]

#: What is asked: whether the property holds, or how large the margin is.
Question: TypeAlias = Literal["verify", "bound"]

#: Where the label of an input comes from: given with the data, or the network's own answer; files
#: before version 3 do not say it.
LabelSource: TypeAlias = Literal["given", "own", "unknown"]

#: What the file says it is; another number of the schema is another layout.
FORMAT, SCHEMA_VERSION = "bnncert results", 3

#: The first bytes of every SQLite file that is not empty.
SQLITE_MAGIC = b"SQLite format 3\0"

#: Seconds to wait while another process writes to the same file.
BUSY_SECONDS = 60.0

_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE results (
        key TEXT NOT NULL UNIQUE,
        model_hash TEXT NOT NULL,
        input_index INTEGER NOT NULL,
        input_hash TEXT NOT NULL,
        label INTEGER NOT NULL,
        norm TEXT NOT NULL,
        radius REAL NOT NULL,
        clip TEXT NOT NULL,
        targets TEXT NOT NULL,
        method TEXT NOT NULL,
        timeout REAL,
        ties TEXT NOT NULL,
        sign_zero TEXT NOT NULL,
        seed INTEGER NOT NULL,
        predicted INTEGER NOT NULL,
        status TEXT NOT NULL,
        lower REAL,
        upper REAL,
        seconds REAL NOT NULL,
        stage TEXT NOT NULL,
        per_target TEXT NOT NULL,
        counterexample BLOB,
        counterexample_json TEXT,
        version TEXT NOT NULL,
        finished_at TEXT NOT NULL
    )""",
)

#: What version 2 adds to version 1: the question, certificates, and what the hashes stand for.
_SINCE_VERSION_2 = (
    "ALTER TABLE results ADD COLUMN question TEXT NOT NULL DEFAULT 'verify'",
    "ALTER TABLE results ADD COLUMN certificate TEXT",
    """CREATE TABLE networks (
        model_hash TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        source TEXT NOT NULL,
        sizes TEXT NOT NULL,
        input_shape TEXT NOT NULL,
        input_lo REAL,
        input_hi REAL,
        pixel_step REAL,
        zero_fraction REAL NOT NULL
    )""",
    """CREATE TABLE inputs (
        input_hash TEXT PRIMARY KEY,
        label INTEGER NOT NULL,
        shape TEXT NOT NULL,
        dtype TEXT NOT NULL,
        point BLOB NOT NULL
    )""",
)

#: What version 3 adds: whether labels were given.
_SINCE_VERSION_3 = ("ALTER TABLE results ADD COLUMN labels TEXT NOT NULL DEFAULT 'unknown'",)


@dataclass(frozen=True)
class InstanceKey:
    """What makes two questions the same; all of it decides the answer."""

    model_hash: str
    input_index: int
    input_hash: str
    label: int
    norm: Norm
    radius: float
    clip: str
    targets: str
    method: str
    timeout: float | None
    ties: str
    sign_zero: str
    seed: int
    question: Question = "verify"

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: one column, because NULLs are never equal in a UNIQUE index."""
        parts = asdict(self)
        if self.question == "verify":
            # Version 1 knew no other question, and its rows still answer.
            del parts["question"]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One finished instance.

    Attributes
    ----------
    predicted
        The network's own class of the input.
    status
        The answer, or "misclassified" where the input itself is not classified as its label.
    lower, upper
        Bounds of the smallest margin; None where there is none.
    stage
        What decided it (several for several targets), empty if nothing did.
    per_target
        JSON: the answers of all targets.
    counterexample
        Its values as little-endian float64.
    counterexample_json
        JSON: its exact value, exact input where the floats are only near it, scores and target.
    certificate
        The file of the certificate, seen from the folder of the results file.
    labels
        Where the label comes from.
    """

    key: InstanceKey
    predicted: int
    status: RowStatus
    lower: float | None
    upper: float | None
    seconds: float
    stage: str
    per_target: str
    counterexample: bytes | None
    counterexample_json: str | None
    version: str
    finished_at: str
    certificate: str | None = None
    labels: LabelSource = "unknown"

    @staticmethod
    def of(
        key: InstanceKey, predicted: int, result: Result, labels: LabelSource = "unknown"
    ) -> Row:
        """Return the row of an answer."""
        found = result.counterexample
        exact = None
        if found is not None:
            tree = found.to_dict()
            del tree["input"]  # the column beside it has the same numbers
            exact = json.dumps(tree, allow_nan=False)
        return Row(
            key=key,
            predicted=predicted,
            status=_row_status(result),
            lower=result.lower if math.isfinite(result.lower) else None,
            upper=result.upper if math.isfinite(result.upper) else None,
            seconds=result.seconds,
            stage=result.deciding_stage,
            per_target=json.dumps([t.to_dict() for t in result.targets], allow_nan=False),
            counterexample=None if found is None else found.point.astype("<f8").tobytes(),
            counterexample_json=exact,
            version=__version__,
            finished_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            certificate=result.certificate,
            labels=labels,
        )

    def point(self) -> FloatArray | None:
        """Return the counterexample as an array."""
        if self.counterexample is None:
            return None
        return np.frombuffer(self.counterexample, dtype="<f8").astype(np.float64)


@dataclass(frozen=True)
class NetworkRecord:
    """What a model hash stands for.

    Attributes
    ----------
    name, source
        What it is called, and the file or recipe it came from.
    input_lo, input_hi
        The data box where it is the same for all inputs, else None.
    """

    model_hash: str
    name: str
    source: str
    sizes: tuple[int, ...]
    input_shape: tuple[int, ...]
    input_lo: float | None
    input_hi: float | None
    pixel_step: float | None
    zero_fraction: float

    @staticmethod
    def of(network: Network, name: str, source: str | None = None) -> NetworkRecord:
        """Describe a network."""
        return NetworkRecord(
            model_hash=network.content_hash,
            name=name,
            source=network.source if source is None else source,
            sizes=network.sizes,
            input_shape=network.input_shape,
            input_lo=_one_number(network.input_lo),
            input_hi=_one_number(network.input_hi),
            pixel_step=network.pixel_step,
            zero_fraction=network.zero_fraction,
        )


@dataclass(frozen=True, eq=False)
class InputRecord:
    """What an input hash stands for: a flat point, its class and its shape."""

    input_hash: str
    label: int
    shape: tuple[int, ...]
    point: FloatArray


_KEY_COLUMNS = tuple(f.name for f in fields(InstanceKey))
_ROW_COLUMNS = tuple(f.name for f in fields(Row) if f.name != "key")


class ResultsFile:
    """A results file, open for reading and writing; made if it does not exist.

    Several processes may have the same file open: rows are written in transactions of their own,
    and the first answer to a question stays.  A file of an older version is brought to
    version 3.

    Parameters
    ----------
    writable
        False: nothing is written or made, and a file of an older version is read as it is.

    Raises
    ------
    InputError
        If the file cannot be opened or written, or is something else; it is then left as it is.
    """

    def __init__(self, path: str | Path, *, writable: bool = True) -> None:
        self.path = Path(path)
        self._writable = writable
        wanted = "written" if writable else "read"
        if self.path.is_dir():
            raise InputError(f"{self.path}: cannot be {wanted} (Is a directory)")
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: cannot be {wanted} (No such directory)")
        if not writable and not self.path.exists():
            raise InputError(f"{self.path}: no such file")
        self._refuse_other_files()
        with self._one_line():
            if writable:
                self._connection = sqlite3.connect(
                    self.path, timeout=BUSY_SECONDS, isolation_level=None
                )
            else:
                # Not mode=ro: after a kill, SQLite must undo a half-written row before it reads.
                self._connection = sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=rw",
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    uri=True,
                )
        try:
            with self._one_line():
                if writable:
                    # A rollback journal, not a WAL: the results stay one file that can be copied.
                    self._connection.execute("PRAGMA synchronous = FULL")
                    with self._transaction():
                        self._prepare()
                else:
                    self._connection.execute("PRAGMA query_only = ON")
                    self._check_version(self._tables())
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is in it already."""
        self._connection.close()

    def has(self, key: InstanceKey) -> bool:
        """Whether this question is answered in the file."""
        with self._one_line():
            if not self._writable and not self._tables():
                return False
            query = "SELECT 1 FROM results WHERE key = ?"
            return self._connection.execute(query, (key.digest,)).fetchone() is not None

    def get(self, key: InstanceKey) -> Row | None:
        """Return the answer to this question, or None."""
        return next(self._select("WHERE key = ?", (key.digest,)), None)

    def rows(self) -> list[Row]:
        """Return every row, in the order of writing."""
        return list(self._select("ORDER BY rowid", ()))

    def add(self, row: Row) -> bool:
        """Write a row to the disk; False if another process has answered the question before."""
        values = {"key": row.key.digest, **asdict(row.key)}
        values.update({name: getattr(row, name) for name in _ROW_COLUMNS})
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._one_line(), self._transaction():
            cursor = self._connection.execute(
                f"INSERT OR IGNORE INTO results ({names}) VALUES ({marks})", tuple(values.values())
            )
            return cursor.rowcount == 1

    def mark_labels_given(self, keys: Iterable[InstanceKey]) -> None:
        """Say of rows that are there already that their labels were given with the data."""
        found = [(key.digest,) for key in keys]
        if not found:
            return
        with self._one_line(), self._transaction():
            self._connection.executemany(
                "UPDATE results SET labels = 'given' WHERE key = ? AND labels <> 'given'", found
            )

    def add_networks(self, records: Iterable[NetworkRecord]) -> None:
        """Say what model hashes stand for; what the file says already stays."""
        self._add_all(
            "networks",
            [
                {
                    **{f.name: getattr(record, f.name) for f in fields(record)},
                    "sizes": json.dumps(record.sizes),
                    "input_shape": json.dumps(record.input_shape),
                }
                for record in records
            ],
        )

    def add_inputs(self, records: Iterable[InputRecord]) -> None:
        """Say what input hashes stand for; what the file says already stays."""
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
        self._add_all("inputs", rows)

    def networks(self) -> list[NetworkRecord]:
        """Return what the model hashes stand for, as far as the file says it."""
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
            records.append(NetworkRecord(sizes=sizes, input_shape=shape, **values))
        return records

    def inputs(self) -> list[InputRecord]:
        """Return what the input hashes stand for, as far as the file says it."""
        records = []
        for values in self._all("inputs", ("input_hash", "label", "shape", "dtype", "point")):
            where = f"{self.path}: input {str(values['input_hash'])[:12]}"
            check_cells({name: values[name] for name in ("input_hash", "label")}, where)
            shape = stored_sizes(values["shape"], where)
            point = stored_point(values["point"], values["dtype"], shape, where)
            records.append(InputRecord(values["input_hash"], values["label"], shape, point))
        return records

    def relative(self, path: str | Path) -> str:
        """Return a path as seen from this file's folder, so that both can be moved together."""
        try:
            return os.path.relpath(Path(path).resolve(), self.path.resolve().parent)
        except ValueError:
            # Another drive of Windows.
            return str(Path(path).resolve())

    def _add_all(self, table: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        with self._one_line(), self._transaction():
            self._connection.executemany(
                f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})",
                [tuple(row.values()) for row in rows],
            )

    def _all(self, table: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        with self._one_line():
            if table not in self._tables():
                return
            found = self._connection.execute(
                f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid"
            )
            for record in found:
                yield dict(zip(names, record, strict=True))

    def _select(self, clause: str, values: tuple[Any, ...]) -> Iterator[Row]:
        with self._one_line():
            present = {
                record[1] for record in self._connection.execute("PRAGMA table_info(results)")
            }
            if not present:
                return
            # What older versions lack, as upgrading them would have filled it.
            absent = {
                "question": "'verify' AS question",
                "certificate": "NULL AS certificate",
                "labels": "'unknown' AS labels",
            }
            columns = ", ".join(
                name if name in present else absent.get(name, name)
                for name in (*_KEY_COLUMNS, *_ROW_COLUMNS)
            )
            found = self._connection.execute(f"SELECT {columns} FROM results {clause}", values)
            for record in found:
                count = len(_KEY_COLUMNS)
                key = InstanceKey(**dict(zip(_KEY_COLUMNS, record[:count], strict=True)))
                rest = dict(zip(_ROW_COLUMNS, record[count:], strict=True))
                check_cells({**asdict(key), **rest}, f"{self.path}: row {key.input_index}")
                yield Row(key=key, **rest)

    def _refuse_other_files(self) -> None:
        """Look at the first bytes: SQLite takes some short files for empty databases."""
        if self.path.exists():
            check_regular(self.path)
        try:
            with self.path.open("rb") as file:
                start = file.read(len(SQLITE_MAGIC))
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror})") from error
        if start not in (b"", SQLITE_MAGIC):
            raise InputError(f"{self.path}: not a bnncert results file; it was left as it is")

    def _prepare(self) -> None:
        """Check that the file is one of ours, or make it one if it is empty.

        Runs in one transaction, so that of two processes one makes the tables and one finds them.
        """
        tables = self._tables()
        if not tables:
            for statement in (*_SCHEMA, *_SINCE_VERSION_2, *_SINCE_VERSION_3):
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("format", FORMAT), ("schema_version", str(SCHEMA_VERSION))],
            )
            return
        version = self._check_version(tables)
        missing = (*_SINCE_VERSION_2, *_SINCE_VERSION_3) if version == "1" else _SINCE_VERSION_3
        for statement in missing if version != str(SCHEMA_VERSION) else ():
            self._connection.execute(statement)
        # Also where nothing changes: SQLite opens what it may only read without a word, and it is
        # better to know now than after an hour.
        self._connection.execute(
            "UPDATE meta SET value = ? WHERE name = 'schema_version'", (str(SCHEMA_VERSION),)
        )

    def _tables(self) -> set[str]:
        return plain_tables(self._connection)

    def _check_version(self, tables: set[str]) -> str:
        """Return the version of the file, or refuse it."""
        if not tables and not self._writable:
            # What a kill between making the file and making its tables leaves: no rows.
            return str(SCHEMA_VERSION)
        meta = self._meta() if {"meta", "results"} <= tables else {}
        if meta.get("format") != FORMAT:
            raise InputError(f"{self.path}: not a bnncert results file; it was left as it is")
        version = meta.get("schema_version", "")
        if version not in map(str, range(1, SCHEMA_VERSION + 1)):
            raise InputError(
                f"{self.path}: results of schema version {version}; this bnncert reads and "
                f"writes version {SCHEMA_VERSION}; give another file"
            )
        return version

    def _meta(self) -> dict[str, str]:
        try:
            return dict(self._connection.execute("SELECT name, value FROM meta").fetchall())
        except sqlite3.OperationalError:
            # A table of that name with other columns: somebody else's file.
            return {}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, also when Ctrl-C or a full disk comes in between."""
        # IMMEDIATE, so that waiting for another writer happens here, where it is safe.
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
        """Turn what SQLite says into one line that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            wanted = "written" if self._writable else "read"
            raise InputError(f"{self.path}: cannot be {wanted} ({error})") from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            # Names and messages of SQLite itself may be broken text, too.
            raise InputError(
                f"{self.path}: not a readable results file ({reason(error)}); it was left as it is"
            ) from error


def label_source(rows: Iterable[tuple[LabelSource, int, int]]) -> LabelSource:
    """Return where the labels of rows come from, each as (what is recorded, label, own answer).

    Own answers never differ from the label: where a row of unknown source does, labels were given.
    """
    known = list(rows)
    given = any(s == "unknown" and label != predicted for s, label, predicted in known)
    found = {"given" if given and source == "unknown" else source for source, _, _ in known}
    return found.pop() if len(found) == 1 else "unknown"


def _row_status(result: Result) -> RowStatus:
    return "misclassified" if result.is_misclassified else result.status


def _one_number(values: FloatArray | None) -> float | None:
    """Return the value that all entries share, or None."""
    if values is None:
        return None
    flat = np.atleast_1d(values).reshape(-1)
    return float(flat[0]) if np.all(flat == flat[0]) else None
