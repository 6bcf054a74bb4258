"""The state of a training between two epochs, in one file."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bnncert.errors import FormatError, InputError
from bnncert.model.formats.archive import open_archive
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.formats.file_content import read_bytes

FORMAT = "bnncert training 1"

#: Options that were added to the format later, with the values that trainings had before.
ADDED: dict[str, Any] = {"binarise_input": False, "stride": 1}


@dataclass
class TrainingState:
    """The state on which the next epoch depends."""

    model: dict[str, Any]
    optimiser: dict[str, Any]
    #: The number of finished epochs.
    epoch: int = 0
    #: The model after the epoch with the best held-out accuracy, if one is kept.
    best: dict[str, Any] | None = None
    best_accuracy: float = -1.0
    #: Epochs since then.
    waited: int = 0
    #: One entry for each finished epoch.
    history: list[dict[str, float]] = field(default_factory=list)


def save_checkpoint(path: Path, state: TrainingState, identity: dict[str, Any]) -> None:
    """Write the state atomically."""
    # Written to memory first, because torch reports a full disk with other exceptions.
    content = io.BytesIO()
    torch.save({"format": FORMAT, "identity": json.dumps(identity), **vars(state)}, content)
    write_atomically(path, content.getvalue())


def load_checkpoint(path: Path, identity: dict[str, Any]) -> TrainingState | None:
    """Return the state in a file, None if it does not exist; raise for another training."""
    if not path.exists():
        return None
    try:
        stored = read_bytes(path)
        with open_archive(stored, path, "checkpoint"):
            # With weights_only, only tensors and plain values are unpickled.
            content = torch.load(io.BytesIO(stored), weights_only=True)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError("something else")
        # Checkpoints of earlier versions do not have the keys that were added later.
        found = {**ADDED, **json.loads(content.pop("identity"))}
        state = TrainingState(**content)
    except Exception as error:
        # torch raises many types on broken files.
        raise FormatError(
            f"{path}: not a checkpoint of a training; remove it, or name another with --checkpoint"
        ) from error
    for key, wanted in identity.items():
        if found.get(key) != wanted:
            raise InputError(
                f"{path}: belongs to a training with {key} {_show(found.get(key))}, not "
                f"{_show(wanted)}; remove it, or name another with --checkpoint"
            )
    return state


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return str(value)[:16]
