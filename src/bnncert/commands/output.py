"""What the commands show and write about a result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

import bnncert
from bnncert.atomic import write_atomically
from bnncert.errors import InputError
from bnncert.network import Network
from bnncert.regions import Region
from bnncert.report.tables import (
    number,
    result_table,
    status_text,
)
from bnncert.verdict import Result


def refuse_unwritable(*targets: Path | None) -> None:
    """Find out before a long run that its result could not be written after it."""
    for target in targets:
        if target is None:
            continue
        reason = ""
        if target.is_dir():
            reason = "Is a directory"
        elif not target.parent.is_dir():
            reason = "No such directory"
        elif not os.access(target if target.exists() else target.parent, os.W_OK):
            reason = "Permission denied"
        if reason:
            raise InputError(f"{target}: cannot be written ({reason})")


def json_path(target: str | None) -> Path | None:
    """Return the file that `--json` names, if it is not the standard output."""
    return None if target in (None, "-") else Path(str(target))


def write_json(target: str | None, tree: dict[str, Any]) -> None:
    """Write the answer as `--json` asks."""
    if target is None:
        return
    text = json.dumps(tree, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    write_atomically(target, text)


def result_tree(
    network: Network, result: Result, region: Region | None, extra: dict[str, Any]
) -> dict[str, Any]:
    """Return a result and what it is about, for JSON."""
    return {
        "bnncert": bnncert.__version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
        "region": None if region is None else region.to_dict(),
        **extra,
        **result.to_dict(),
    }


def show_result(console: Console, title: str, result: Result) -> None:
    """Print a line on the question, a table of the targets, and the verdict."""
    console.print(title, soft_wrap=True)
    console.print(result_table(result))
    summary = f" in {result.seconds:.2f} s"
    if np.isfinite(result.lower):
        summary += f", margin at least {number(result.lower)}"
    found = result.counterexample
    if found is not None:
        summary += (
            f": counterexample for {found.target}, margin {number(float(found.value))}, replayed "
            f"in {' and '.join(found.replayed_in)} arithmetic"
        )
    console.print(Text.assemble(status_text(result.status), summary), soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
