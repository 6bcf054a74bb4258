"""Results of many verifications in one SQLite file: a row for each instance, never half of one."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np

import bnncert
from bnncert.errors import InputError
from bnncert.formats.description import FloatArray
from bnncert.regions import Norm
from bnncert.verdict import Result, Status

RowStatus: TypeAlias = Status | Literal["misclassified"]

#: What the file says it is; another number of the schema is another layout.
FORMAT, SCHEMA_VERSION = "bnncert results", 1

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

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: one column, because NULLs are never equal in a UNIQUE index."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


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

    @staticmethod
    def of(key: InstanceKey, predicted: int, result: Result) -> Row:
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
            version=bnncert.__version__,
            finished_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def point(self) -> FloatArray | None:
        """Return the counterexample as an array."""
        if self.counterexample is None:
            return None
        return np.frombuffer(self.counterexample, dtype="<f8").astype(np.float64)


_KEY_COLUMNS = tuple(f.name for f in fields(InstanceKey))
_ROW_COLUMNS = tuple(f.name for f in fields(Row) if f.name != "key")


class ResultsFile:
    """A results file, open for reading and writing; made if it does not exist.

    Several processes may have the same file open: rows are written in transactions of their own,
    and the first answer to a question stays.

    Raises
    ------
    InputError
        If the file cannot be opened or written, or is something else; it is then left as it is.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError(f"{self.path}: cannot be written (Is a directory)")
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: cannot be written (No such directory)")
        self._refuse_other_files()
        with self._one_line():
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None
            )
        try:
            with self._one_line():
                # A rollback journal, not a WAL: the results stay one file that can be copied.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._prepare()
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

    def _select(self, clause: str, values: tuple[Any, ...]) -> Iterator[Row]:
        columns = ", ".join((*_KEY_COLUMNS, *_ROW_COLUMNS))
        with self._one_line():
            found = self._connection.execute(f"SELECT {columns} FROM results {clause}", values)
            for record in found:
                count = len(_KEY_COLUMNS)
                key = InstanceKey(**dict(zip(_KEY_COLUMNS, record[:count], strict=True)))
                rest = dict(zip(_ROW_COLUMNS, record[count:], strict=True))
                yield Row(key=key, **rest)

    def _refuse_other_files(self) -> None:
        """Look at the first bytes: SQLite takes some short files for empty databases."""
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
        """Check that the file is one of ours, or make it one if it is empty."""
        # In one transaction, so that of two processes one makes the tables and one finds them.
        with self._transaction():
            tables = {
                name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")
            }
            if not tables:
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._connection.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [("format", FORMAT), ("schema_version", str(SCHEMA_VERSION))],
                )
                return
            meta = self._meta() if "meta" in tables else {}
            if meta.get("format") != FORMAT:
                raise InputError(f"{self.path}: not a bnncert results file; it was left as it is")
            version = meta.get("schema_version")
            if version != str(SCHEMA_VERSION):
                raise InputError(
                    f"{self.path}: results of schema version {version}; this bnncert reads and "
                    f"writes version {SCHEMA_VERSION}; give another file"
                )
            # SQLite opens what it may only read without a word: better now than after an hour.
            self._connection.execute("UPDATE meta SET value = value WHERE name = 'format'")

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
            raise InputError(f"{self.path}: cannot be written ({error})") from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path}: not a readable results file ({error}); it was left as it is"
            ) from error


def _row_status(result: Result) -> RowStatus:
    if result.status == "not_robust" and any(t.stage == "centre" for t in result.targets):
        return "misclassified"
    return result.status
