"""The content of a results file: rows, answers of other kinds, and the networks and inputs.

The runner and the commands write these types, and the reports read them.  The tables have their
fields as columns; the cells are checked when they are read, because SQLite allows values of any
type in any column.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.verdict import Result, Status
from bnncert.errors import FormatError
from bnncert.model.formats.file_content import parse_json
from bnncert.model.network import Network
from bnncert.regions import ChangeNorm
from bnncert.version import __version__

if TYPE_CHECKING:
    import sqlite3

#: The answer of a verification, or "misclassified" if the input itself has another class than its
#: label.
RowStatus: TypeAlias = Status | Literal["misclassified"]

#: The question: whether the property holds, or how large the margin is.
Question: TypeAlias = Literal["verify", "bound"]

#: Where the label of an input comes from: given with the data, or the network's own answer; rows
#: of both kinds together are "unknown".
LabelSource: TypeAlias = Literal["given", "own", "unknown"]


@dataclass(frozen=True)
class InstanceKey:
    """A question.  Two instances are the same if all of these fields are equal."""

    model_hash: str
    input_index: int
    input_hash: str
    label: int
    norm: ChangeNorm
    radius: float
    clip: str
    rivals: str
    method: str
    timeout: float | None
    ties: str
    sign_zero: str
    seed: int
    question: Question = "verify"
    #: The grid as `STEP,ORIGIN` in input units; None: all real inputs count.
    grid: str | None = None
    #: By how much an input of an L0 ball may change; None: anything in the data box.
    within: float | None = None
    #: The value of a shape of change; None is its default.
    value: float | None = None

    @property
    def instance(self) -> tuple[int, str, int]:
        """The number, hash and label of the input."""
        return self.input_index, self.input_hash, self.label

    @property
    def grid_step(self) -> float | None:
        """The step of the grid, or None."""
        return None if self.grid is None else float(self.grid.partition(",")[0])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all fields: one column, because NULLs are never equal in a UNIQUE index."""
        stated = {f.name: getattr(self, f.name) for f in fields(self)}
        # Fields with their default values are left out, so that a new field changes no digest.
        parts = {f.name: stated[f.name] for f in fields(self) if stated[f.name] != f.default}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One finished instance."""

    key: InstanceKey
    #: The network's own class of the input.
    predicted: int
    #: The answer, or "misclassified" if the input itself is not classified as its label.
    status: RowStatus
    #: Bounds of the smallest margin, or None.
    lower: float | None
    upper: float | None
    seconds: float
    #: The stages that decided it (there may be one for each target), or an empty text.
    stage: str
    #: JSON: the answers of all targets.
    per_target: str
    #: The values of the counterexample as little-endian float64.
    counterexample: bytes | None
    #: JSON: its exact value, its exact input if the floats are only near it, scores and target.
    counterexample_json: str | None
    version: str
    finished_at: str
    #: The file of the certificate, relative to the folder of the results file.
    certificate: str | None = None
    #: Where the label comes from.
    labels: LabelSource = "unknown"
    #: The file of the points, and the options that state their scale; empty if not recorded.
    data: str = ""
    scale: str = ""
    #: The number of the row in its file; 0 if it does not come from a file.
    rowid: int = field(default=0, compare=False)

    @staticmethod
    def of(
        key: InstanceKey, predicted: int, result: Result, labels: LabelSource = "unknown"
    ) -> Row:
        """Return the row of an answer."""
        found = result.counterexample
        exact = None
        if found is not None:
            tree = found.to_dict()
            # The column `counterexample` has the same numbers.
            del tree["input"]
            exact = json.dumps(tree, allow_nan=False)
        return Row(
            key=key,
            predicted=predicted,
            status="misclassified" if result.is_misclassified else result.status,
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


@dataclass(frozen=True)
class NetworkRecord:
    """The network of a model hash."""

    model_hash: str
    #: The name for the reader, and the file or recipe of the network.
    name: str
    source: str = ""
    sizes: tuple[int, ...] = ()
    input_shape: tuple[int, ...] = ()
    #: The data box if it is the same for all inputs, else None.
    input_lo: float | None = None
    input_hi: float | None = None
    pixel_step: float | None = None
    zero_fraction: float | None = None

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
    """The input of an input hash: a flat point, its class and its shape."""

    input_hash: str
    label: int
    shape: tuple[int, ...]
    point: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of one row: the answers of the targets, the input and the counterexample."""

    targets: list[dict[str, Any]]
    found: dict[str, Any]
    point: FloatArray | None
    shape: tuple[int, ...]
    counterexample: FloatArray | None


def label_source(rows: Iterable[Row]) -> LabelSource:
    """Return where the labels of all rows come from; "unknown" if they differ."""
    found = {row.labels for row in rows}
    return found.pop() if len(found) == 1 else "unknown"


def _one_number(values: FloatArray | None) -> float | None:
    """Return the value of all entries if they are equal, or None."""
    if values is None:
        return None
    flat = np.atleast_1d(values).reshape(-1)
    return float(flat[0]) if np.all(flat == flat[0]) else None


#: The kinds of answers, named after their commands.
Kind: TypeAlias = Literal["explain", "faults", "count"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class OtherAnswer:
    """One answer to a question about one input."""

    kind: Kind
    model_hash: str
    #: The input as the command names it, such as `demo:0` or `FILE [3]`.
    input_name: str
    input_hash: str
    #: The class that is asked about.
    label: int
    #: The inputs that the answer is about, in words.
    region: str
    #: JSON: everything else that distinguishes two questions.
    settings: str
    #: The answer as one word and as one sentence.
    status: str
    summary: str
    seconds: float
    #: JSON: the answer as the command's `--json` has it.
    payload: str
    version: str
    finished_at: str
    #: The file of the certificate, relative to the folder of the results file.
    certificate: str | None = None
    labels: LabelSource = "unknown"
    #: The number of the answer in its file; 0 if it does not come from a file.
    rowid: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """SHA-256 of the question; the name of the input is not a part of it."""
        parts = (self.kind, self.model_hash, self.input_hash, self.label, self.region)
        return hashlib.sha256(json.dumps([*parts, self.settings]).encode()).hexdigest()

    @property
    def tree(self) -> dict[str, Any]:
        """The answer as data."""
        return stored_object(self.payload, f"answer {self.rowid}, payload")


def made_answer(
    settings: Mapping[str, Any], payload: Mapping[str, Any], **fields: Any
) -> OtherAnswer:
    """Return an answer that is given now, from its settings and its payload as data."""
    return OtherAnswer(
        settings=json.dumps(settings, sort_keys=True, allow_nan=False),
        payload=json.dumps(payload, allow_nan=False),
        version=__version__,
        finished_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **fields,
    )


def checked_answer(cells: dict[str, Any], where: str) -> OtherAnswer:
    """Return an answer from the cells of a file; raise if one has a value of the wrong kind."""
    if cells["kind"] not in KINDS:
        raise FormatError(f"{where}: kind is {repr(cells['kind'])[:40]}")
    # The answer is any word here, and not one of the verdicts.
    check_cells({name: cells[name] for name in cells if name != "status"}, where)
    for name in ("status", "summary", "region", "settings", "input_name", "payload"):
        if not isinstance(cells[name], str):
            raise FormatError(f"{where}: {name} is not text")
    stored_object(cells["payload"], f"{where}, payload")
    return OtherAnswer(**cells)


# -- tables -------------------------------------------------------------------------------

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
    import sqlite3

    try:
        meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    except sqlite3.OperationalError:
        # A table of that name with other columns belongs to another program.
        return None
    return meta.get("schema_version", "") if meta.get("format") == FORMAT else None


# -- cells --------------------------------------------------------------------------------

#: The choices of a column, and for other columns their type and its name in words.
_CHOICES = {
    "status": (*get_args(Status), "misclassified"),
    "question": get_args(Question),
    "labels": get_args(LabelSource),
}
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
