"""A results file as reports need it: opened for reading only, every row checked, small in memory.

Points and the answers of single rivals stay in the file until :meth:`Recorded.evidence` asks.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.batch.store import FORMAT, SQLITE_MAGIC, LabelSource
from bnncert.batch.stored_rows import (
    check_cells,
    plain_tables,
    stored_json,
    stored_point,
    stored_sizes,
)
from bnncert.errors import FormatError, InputError
from bnncert.formats.archive import reason
from bnncert.formats.limits import DEFAULT_LIMITS, too_many
from bnncert.formats.reading import check_regular

#: Layouts of the file that this reader knows.
VERSIONS = (1, 2, 3)

#: Seconds to wait for a process that is writing at this moment.
BUSY_SECONDS = 5.0

#: Columns that every row has, in the order of :class:`Record`; older versions lack the last.
_COLUMNS = (
    *("rowid", "model_hash", "input_index", "input_hash", "label", "norm", "radius", "clip"),
    *("targets", "method", "timeout", "ties", "sign_zero", "seed", "predicted", "status"),
    *("lower", "upper", "seconds", "stage", "version", "finished_at", "question", "certificate"),
    "labels",
)
#: The first version that has a column, and what stands for it in older ones.
_SINCE = {"question": (2, "'verify'"), "certificate": (2, "NULL"), "labels": (3, "'unknown'")}


class Record(NamedTuple):
    """One row without its arrays; the names are those of the columns."""

    rowid: int
    model_hash: str
    input_index: int
    input_hash: str
    label: int
    norm: str
    radius: float
    clip: str
    targets: str
    method: str
    timeout: float | None
    ties: str
    sign_zero: str
    seed: int
    predicted: int
    status: str
    lower: float | None
    upper: float | None
    seconds: float
    stage: str
    version: str
    finished_at: str
    question: str
    certificate: str | None
    labels: LabelSource


@dataclass(frozen=True)
class NetworkNote:
    """What the file says about a network; a file of version 1 says nothing."""

    model_hash: str
    name: str
    source: str = ""
    sizes: tuple[int, ...] = ()
    input_shape: tuple[int, ...] = ()
    input_lo: float | None = None
    input_hi: float | None = None
    pixel_step: float | None = None
    zero_fraction: float | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """What stands behind one row: the rivals' answers, the input and the counterexample."""

    targets: list[dict[str, Any]]
    found: dict[str, Any]
    point: FloatArray | None
    shape: tuple[int, ...]
    counterexample: FloatArray | None


@dataclass(frozen=True, eq=False)
class Recorded:
    """The rows of a file in the order of writing, and its networks by hash."""

    path: Path
    records: tuple[Record, ...]
    networks: dict[str, NetworkNote]

    def network(self, model_hash: str) -> NetworkNote:
        """Return what is known of a network: at least the start of its hash as a name."""
        return self.networks.get(model_hash) or NetworkNote(model_hash, model_hash[:12])

    def evidence(self, records: Sequence[Record]) -> Iterator[tuple[Record, Evidence]]:
        """Read what stands behind these rows, one after the other."""
        with _reading(self.path) as connection:
            has_inputs = "inputs" in plain_tables(connection)
            for record in records:
                row = connection.execute(
                    "SELECT per_target, counterexample, counterexample_json FROM results "
                    "WHERE rowid = ?",
                    (record.rowid,),
                ).fetchone()
                if row is None:
                    raise InputError(f"{self.path}: changed while it was read; try again")
                point, shape = None, tuple[int, ...]()
                if has_inputs:
                    stored = connection.execute(
                        "SELECT point, dtype, shape FROM inputs WHERE input_hash = ?",
                        (record.input_hash,),
                    ).fetchone()
                    if stored is not None:
                        where = f"{self.path}: input {record.input_hash[:12]}"
                        blob, dtype, sizes = stored
                        shape = stored_sizes(sizes, where)
                        point = stored_point(blob, dtype, shape, where)
                where = f"{self.path}: row {record.rowid}"
                yield (
                    record,
                    Evidence(
                        targets=_targets(row[0], f"{where}, per_target"),
                        found=_json_object(row[2], f"{where}, counterexample_json"),
                        point=point,
                        shape=shape,
                        counterexample=_floats(row[1], "<f8", f"{where}, counterexample"),
                    ),
                )


def read_recorded(path: Path) -> Recorded:
    """Read a results file.

    Raises
    ------
    InputError
        If it cannot be read, is not a results file or a newer one, or holds no row.
    """
    check_regular(path)
    _refuse_other_files(path)
    with _reading(path) as connection:
        tables = plain_tables(connection)
        version = _version(connection, tables, path)
        columns = ", ".join(
            _SINCE[name][1] if name in _SINCE and version < _SINCE[name][0] else name
            for name in _COLUMNS
        )
        most = DEFAULT_LIMITS.rows
        (count,) = connection.execute("SELECT count(*) FROM results").fetchone()
        if count > most:
            raise too_many(path, f"{count} rows", most, "rows")
        found = connection.execute(f"SELECT {columns} FROM results ORDER BY rowid")
        records = tuple(_record(row, path) for row in found)
        if not records:
            raise InputError(f"{path}: holds no results yet")
        networks = {}
        if "networks" in tables:
            for row in connection.execute(
                "SELECT model_hash, name, source, sizes, input_shape, input_lo, input_hi, "
                "pixel_step, zero_fraction FROM networks"
            ):
                note = _network(row, path)
                networks[note.model_hash] = note
    return Recorded(path, records, networks)


def _refuse_other_files(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not start:
        raise InputError(f"{path}: empty, not a bnncert results file")
    if start != SQLITE_MAGIC:
        raise FormatError(f"{path}: not a bnncert results file")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open without the right to write; what SQLite says becomes one line that names the file."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        # Names and messages of SQLite itself may be broken text, too.
        raise FormatError(f"{path}: not a readable results file ({reason(error)})") from error


def _version(connection: sqlite3.Connection, tables: set[str], path: Path) -> int:
    meta: dict[str, str] = {}
    if {"meta", "results"} <= tables:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(meta)")}
        if {"name", "value"} <= columns:
            meta = dict(connection.execute("SELECT name, value FROM meta"))
    if meta.get("format") != FORMAT:
        raise FormatError(f"{path}: not a bnncert results file")
    text = str(meta.get("schema_version"))
    if text not in map(str, VERSIONS):
        raise FormatError(
            f"{path}: results of schema version {text}; this bnncert reads up to {VERSIONS[-1]}"
        )
    return int(text)


def _record(row: Sequence[Any], path: Path) -> Record:
    """Check a row: SQLite lets any column hold anything."""
    record = Record(*row)
    check_cells(record._asdict(), f"{path}: row {record.rowid}")
    if record.lower is not None and not math.isfinite(record.lower):
        record = record._replace(lower=None)
    if record.upper is not None and not math.isfinite(record.upper):
        record = record._replace(upper=None)
    return record


def _network(row: Sequence[Any], path: Path) -> NetworkNote:
    model_hash, name, source, sizes, shape, lo, hi, step, zeros = row
    where = f"{path}: network {str(model_hash)[:12]}"
    for value in (lo, hi, step, zeros):
        if value is not None and not (isinstance(value, float | int) and math.isfinite(value)):
            raise FormatError(f"{where}: {value!r} is not a number")
    return NetworkNote(
        str(model_hash),
        str(name),
        str(source),
        stored_sizes(sizes, where),
        stored_sizes(shape, where),
        *(lo, hi, step if step and step > 0 else None, zeros),
    )


def _targets(text: Any, where: str) -> list[dict[str, Any]]:
    tree = stored_json(text, where)
    if not isinstance(tree, list) or not all(isinstance(part, dict) for part in tree):
        raise FormatError(f"{where}: not a JSON list of answers")
    return tree


def _json_object(text: Any, where: str) -> dict[str, Any]:
    if text is None:
        return {}
    tree = stored_json(text, where)
    if not isinstance(tree, dict):
        raise FormatError(f"{where}: not a JSON object")
    return tree


def _floats(blob: Any, dtype: str, where: str) -> FloatArray | None:
    if blob is None:
        return None
    try:
        return np.frombuffer(blob, dtype=dtype).astype(np.float64)
    except (TypeError, ValueError):
        raise FormatError(f"{where}: not an array of {dtype}") from None
