"""Answers of other kinds than verdicts and bounds: explanations, weight faults and counts.

They stand beside the rows of a results file.  A question of these kinds has one answer in a file: a
repeated question replaces the older answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias, get_args

from bnncert.errors import FormatError
from bnncert.results.experiment_cells import check_cells, stored_object
from bnncert.results.rows import LabelSource
from bnncert.version import __version__

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
