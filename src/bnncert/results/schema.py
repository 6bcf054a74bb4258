"""The tables of a results file, the version of their layout, and checks of their cells.

SQLite allows values of any type in any column.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError
from bnncert.model.formats.file_content import parse_json

#: What a file states: its format, and the version of its tables.
FORMAT = "bnncert results"
SCHEMA_VERSION = "8"

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # One row for each verdict or bound: the question, the answer, and later additions to both.
    """CREATE TABLE results (
        key TEXT NOT NULL UNIQUE, model_hash TEXT NOT NULL, input_index INTEGER NOT NULL,
        input_hash TEXT NOT NULL, label INTEGER NOT NULL, norm TEXT NOT NULL, radius REAL NOT NULL,
        clip TEXT NOT NULL, rivals TEXT NOT NULL, method TEXT NOT NULL, timeout REAL,
        ties TEXT NOT NULL, sign_zero TEXT NOT NULL, seed INTEGER NOT NULL,
        predicted INTEGER NOT NULL, status TEXT NOT NULL, lower REAL, upper REAL,
        seconds REAL NOT NULL, stage TEXT NOT NULL, per_target TEXT NOT NULL, counterexample BLOB,
        counterexample_json TEXT, version TEXT NOT NULL, finished_at TEXT NOT NULL,
        question TEXT NOT NULL DEFAULT 'verify', certificate TEXT,
        labels TEXT NOT NULL DEFAULT 'unknown', grid TEXT, within REAL,
        data TEXT NOT NULL DEFAULT '', scale TEXT NOT NULL DEFAULT '', value REAL
    )""",
    # The networks and inputs of the hashes.
    """CREATE TABLE networks (
        model_hash TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, sizes TEXT NOT NULL,
        input_shape TEXT NOT NULL, input_lo REAL, input_hi REAL, pixel_step REAL,
        zero_fraction REAL NOT NULL
    )""",
    """CREATE TABLE inputs (
        input_hash TEXT PRIMARY KEY, label INTEGER NOT NULL, shape TEXT NOT NULL,
        dtype TEXT NOT NULL, point BLOB NOT NULL
    )""",
    # Explanations, weight faults and counts.
    """CREATE TABLE other_answers (
        key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, model_hash TEXT NOT NULL,
        input_name TEXT NOT NULL, input_hash TEXT NOT NULL, label INTEGER NOT NULL,
        region TEXT NOT NULL, settings TEXT NOT NULL, status TEXT NOT NULL, summary TEXT NOT NULL,
        seconds REAL NOT NULL, payload TEXT NOT NULL, version TEXT NOT NULL,
        finished_at TEXT NOT NULL, certificate TEXT, labels TEXT NOT NULL
    )""",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Make a results file of an empty one."""
    for statement in _TABLES:
        connection.execute(statement)
    stated = [("format", FORMAT), ("schema_version", SCHEMA_VERSION)]
    connection.executemany("INSERT INTO meta VALUES (?, ?)", stated)


def plain_tables(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the plain tables of a file.

    Tables with computed columns, and views, are left out: reading them may never end or fill the
    memory.
    """
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = "SELECT hidden FROM pragma_table_xinfo(?)"
    return {
        name
        for (name,) in found
        if not any(hidden for (hidden,) in connection.execute(columns, (name,)))
    }


def stated_version(connection: sqlite3.Connection, tables: set[str]) -> str | None:
    """Return the version that a file with these tables states; None if it is another file."""
    if not {"meta", "results"} <= tables:
        return None
    try:
        meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    except sqlite3.OperationalError:
        # A table of that name with other columns belongs to another program.
        return None
    return meta.get("schema_version", "") if meta.get("format") == FORMAT else None


STATUSES = ("robust", "not_robust", "unknown", "timeout", "misclassified")
QUESTIONS = ("verify", "bound")
LABEL_SOURCES = ("given", "own", "unknown")

#: The choices of a column, and for other columns their type and its name in words.
_CHOICES = {"status": STATUSES, "question": QUESTIONS, "labels": LABEL_SOURCES}
_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(
        (
            *("model_hash", "input_hash", "norm", "clip", "rivals", "method", "ties", "stage"),
            *("sign_zero", "version", "finished_at", "per_target", "data", "scale"),
        ),
        (str, "text"),
    ),
    **dict.fromkeys(("certificate", "counterexample_json"), (str | None, "text")),
    **dict.fromkeys(("input_index", "label", "seed", "predicted"), (int, "a whole number")),
    **dict.fromkeys(("timeout", "lower", "upper"), (float | int | None, "a number")),
}


def _is_length(value: Any) -> bool:
    return isinstance(value, float | int) and 0 <= value < math.inf


def _is_grid(value: Any) -> bool:
    """Whether a cell is the text of a grid, which begins with its step and a comma."""
    if not isinstance(value, str) or "," not in value:
        return False
    try:
        return 0 < float(value.partition(",")[0]) < math.inf
    except ValueError:
        return False


#: Columns whose values have a condition of their own.
_TESTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("radius", "seconds"), _is_length),
    "within": lambda value: value is None or _is_length(value),
    "value": lambda value: value is None or finite_number(value) is not None,
    "grid": lambda value: value is None or _is_grid(value),
}


def check_cells(cells: Mapping[str, Any], where: str) -> None:
    """Raise if a cell has a value of the wrong kind; absent columns are not checked."""
    for name, value in cells.items():
        if name in _CHOICES and value not in _CHOICES[name]:
            raise FormatError(f"{where}: {name} is {repr(value)[:40]}")
        if name in _TYPES and not isinstance(value, _TYPES[name][0]):
            raise FormatError(f"{where}: {name} is not {_TYPES[name][1]}")
        if name == "counterexample" and (
            not isinstance(value, bytes | None) or len(value or b"") % 8
        ):
            raise FormatError(f"{where}: {name} is not an array of float64")
        if name in _TESTS and not _TESTS[name](value):
            raise FormatError(f"{where}: {name} is {repr(value)[:40]}")


def stored_json(text: Any, where: str) -> Any:
    """Return the JSON in a cell, or None if it is not JSON."""
    if not isinstance(text, str | bytes):
        return None
    try:
        return parse_json(text, where)
    except FormatError:
        return None


def stored_sizes(text: Any, where: str) -> tuple[int, ...]:
    """Return the sizes in a cell: a JSON list of positive integers."""
    values = stored_json(text, where)
    if isinstance(values, list) and all(type(v) is int and v > 0 for v in values):
        return tuple(values)
    raise FormatError(f"{where}: {str(text)[:40]!r} is not a JSON list of sizes")


def stored_point(blob: Any, dtype: Any, shape: tuple[int, ...], where: str) -> FloatArray:
    """Return the point in a cell, whose size is that of its shape."""
    if dtype not in ("<f4", "<f8"):
        raise FormatError(f"{where}: values of type {str(dtype)[:40]!r}; expected '<f4' or '<f8'")
    if not isinstance(blob, bytes) or len(blob) != math.prod(shape) * int(dtype[2]):
        raise FormatError(f"{where}: not an array of shape {list(shape)}")
    return np.frombuffer(blob, dtype=dtype).astype(np.float64)


def stored_targets(text: Any, where: str) -> list[dict[str, Any]]:
    """Return the answers of the targets in a cell: a JSON list of objects."""
    tree = stored_json(text, where)
    if not isinstance(tree, list) or not all(isinstance(part, dict) for part in tree):
        raise FormatError(f"{where}: not a JSON list of answers")
    return tree


def stored_object(text: Any, where: str) -> dict[str, Any]:
    """Return the JSON object in a cell; empty if the cell is."""
    if text is None:
        return {}
    tree = stored_json(text, where)
    if not isinstance(tree, dict):
        raise FormatError(f"{where}: not a JSON object")
    return tree


def stored_floats(blob: Any, where: str) -> FloatArray | None:
    """Return the array of float64 in a cell; None if the cell is empty."""
    if blob is None:
        return None
    try:
        return np.frombuffer(blob, dtype="<f8").astype(np.float64)
    except (TypeError, ValueError):
        raise FormatError(f"{where}: not an array of <f8") from None


def finite_number(value: Any) -> float | None:
    """Return a stored value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
