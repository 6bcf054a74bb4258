"""What the commands show and write about a result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from bnncert.atomic import file_identity, write_atomically
from bnncert.errors import InputError
from bnncert.network import Network
from bnncert.regions import Region
from bnncert.report.tables import (
    number,
    result_table,
    status_text,
)
from bnncert.verdict import Result, VerificationInterrupt
from bnncert.version import __version__


def refuse_unwritable(*targets: Path | None, read: Iterable[str | Path | None] = ()) -> None:
    """Find out before a long run that its results cannot or must not be written after it.

    `read` are the files that the command reads, as in :func:`refuse_clashes`.
    """
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
    refuse_clashes(targets, read)


def refuse_clashes(targets: Iterable[Path | None], read: Iterable[str | Path | None]) -> None:
    """Refuse to write onto a file that the command reads, or two outputs into one file.

    Files may be read as `FILE:KEY`.
    """
    sources = {file_identity(p) for text in read if text is not None for p in _files(text)}
    seen: set[object] = set()
    for target in targets:
        identity = None if target is None else file_identity(target)
        if identity is None:
            continue
        if identity in sources:
            raise InputError(f"{target}: cannot be written (this command reads it)")
        if identity in seen:
            raise InputError(f"{target}: cannot be written (another output goes there)")
        seen.add(identity)


def _files(text: str | Path) -> list[Path]:
    """Return the files that an argument may make a command read."""
    name = str(text)
    head, colon, _ = name.rpartition(":")
    found = [Path(name), *([Path(head)] if colon else [])]
    # The layers of a PyTorch checkpoint are in a file beside it.
    return found + [p.with_suffix(".layers.json") for p in found if p.suffix and p.stem]


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
        "bnncert": __version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
        "region": None if region is None else region.to_dict(),
        **extra,
        **result.to_dict(),
    }


@contextmanager
def partial_result(console: Console, title: str) -> Iterator[None]:
    """Show what is known if Ctrl-C comes inside the block, and let it go on up."""
    try:
        yield
    except VerificationInterrupt as stop:
        result = stop.result
        console.print(title, soft_wrap=True)
        console.print(result_table(result))
        decided = sum(t.status in ("robust", "not_robust") for t in result.targets)
        console.print(
            f"interrupted after {result.seconds:.2f} s: {decided} of {len(result.targets)} "
            "targets are decided",
            soft_wrap=True,
        )
        raise


def show_result(console: Console, title: str, result: Result) -> None:
    """Print a line on the question, a table of the targets, and the verdict."""
    console.print(title, soft_wrap=True)
    console.print(result_table(result))
    summary = f" in {result.seconds:.2f} s"
    found = result.counterexample
    if found is not None:
        what = f"counterexample for {found.target}"
        if result.is_misclassified:
            what = f"the input itself is a counterexample for {found.target}"
        summary += (
            f": {what}, margin {number(float(found.value))}, replayed in "
            f"{' and '.join(found.replayed_in)} arithmetic"
        )
    elif np.isfinite(result.lower):
        summary += f", margin at least {number(result.lower)}"
    console.print(Text.assemble(status_text(result), summary), soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
