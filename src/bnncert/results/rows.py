"""The content of a results file: rows, answers of other kinds, and the networks and inputs.

The runner and the commands write these types, and the reports read them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.verdict import Result, Status
from bnncert.errors import FormatError
from bnncert.model.network import Network
from bnncert.regions import ChangeNorm
from bnncert.results.schema import check_cells, stored_object
from bnncert.version import __version__

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

    def point(self) -> FloatArray | None:
        """Return the counterexample as an array."""
        if self.counterexample is None:
            return None
        return np.frombuffer(self.counterexample, dtype="<f8").astype(np.float64)


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
    """One answer to a question about one input.

    Attributes
    ----------
    kind
        The command that gave the answer.
    model_hash, input_hash
        The network and the input; the tables `networks` and `inputs` describe them.
    input_name
        The input as the command names it, such as `demo:0` or `FILE [3]`.
    label, labels
        The class that is asked about, and where it comes from.
    region
        The inputs that the answer is about, in words.
    settings
        JSON: everything else that distinguishes two questions.
    status, summary
        The answer as one word and as one sentence.
    payload
        JSON: the answer as the command's `--json` has it.
    certificate
        The file of the certificate, relative to the folder of the results file.
    """

    kind: Kind
    model_hash: str
    input_name: str
    input_hash: str
    label: int
    region: str
    settings: str
    status: str
    summary: str
    seconds: float
    payload: str
    version: str
    finished_at: str
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
