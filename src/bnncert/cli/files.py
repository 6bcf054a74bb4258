"""The files of a command: bundled ones by name, checks before the work, and JSON.

The bundled networks are demo:sparse, .., the bundled images demo and demo:INDEX.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bnncert.errors import InputError
from bnncert.model.formats.atomic import file_identity, write_atomically
from bnncert.version import __version__

if TYPE_CHECKING:
    from bnncert.model.network import Network

PREFIX = "demo:"

#: The bundled networks by name.
NETWORKS = {
    "demo:sparse": "mnist_sparse.npz",
    "demo:dense": "mnist_dense.npz",
    "demo:certified": "mnist_certified.npz",
}

#: The bundled images: a file and the name of the array in it.
IMAGES = ("mnist_test_100.npz", "images")

#: The number of the bundled images.
IMAGE_COUNT = 100

#: The names of all bundled images, and of the first of them.
POINTS = ("demo", *(f"{PREFIX}{index}" for index in range(10)))


def model_file(text: str) -> Path:
    """Return the file of a network that a path or one of the names states."""
    if not text.startswith(PREFIX) or Path(text).exists():
        return Path(text)
    if text not in NETWORKS:
        # The parser of an argument states errors in the words of typer.
        raise typer.BadParameter(f"{text}: expected {', '.join(NETWORKS)}, or a file")
    return _bundled(NETWORKS[text])


def points_source(text: str) -> str:
    """Return the file (and array) of points that a path or the name `demo` states."""
    return f"{_bundled(IMAGES[0])}:{IMAGES[1]}" if text == PREFIX[:-1] else text


def point_source(text: str, index: int | None) -> tuple[str, int | None]:
    """Return the file and the index of the point that a path or demo:INDEX states."""
    if not text.startswith(PREFIX):
        return points_source(text), index
    number = text.removeprefix(PREFIX)
    if not number.isdecimal() or index is not None:
        raise InputError(f"{text}: expected demo:INDEX, as in demo:0, without --index")
    if int(number) >= IMAGE_COUNT:
        raise InputError(f"{text}: the bundled images are demo:0 to demo:{IMAGE_COUNT - 1}")
    return points_source(PREFIX[:-1]), int(number)


def _bundled(name: str) -> Path:
    # Imported on use: the competition measures how fast a command starts that needs none.
    from importlib.resources import files

    return Path(str(files("bnncert") / "data" / name))


def refuse_unwritable(*targets: Path | None, read: Iterable[str | Path | None] = ()) -> None:
    """Raise before a long run if its results cannot be written, or would overwrite an input.

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
    """Raise if an output is a file that the command reads, or if two outputs are one file.

    The names of files that are read may have the form `FILE:KEY`.
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
    """List what an argument may mean: `FILE:KEY` names a file, a checkpoint has one beside it."""
    name = str(text)
    head, colon, _ = name.rpartition(":")
    found = [Path(name), *([Path(head)] if colon else [])]
    # The layers of a PyTorch checkpoint are in a file beside it.
    return found + [p.with_suffix(".layers.json") for p in found if p.suffix and p.stem]


def json_path(target: str | None) -> Path | None:
    """Return the file that `--json` names, if it is not the standard output."""
    return None if target in (None, "-") else Path(str(target))


def json_text(value: Any, depth: int = 0, *, in_array: bool = False) -> str:
    """Return JSON with one line for each field.

    An array of numbers or texts is one line, and so is an object without arrays in an array.
    """
    is_dict = isinstance(value, dict)
    parts = list(value.values()) if is_dict else value if isinstance(value, list | tuple) else []
    is_flat = not any(isinstance(part, dict | list | tuple) for part in parts)
    if not parts or (is_flat and (in_array or not is_dict)):
        return json.dumps(value, allow_nan=False)
    texts = [json_text(part, depth + 1, in_array=not is_dict) for part in parts]
    if is_dict:
        texts = [f"{json.dumps(str(key))}: {text}" for key, text in zip(value, texts, strict=True)]
    first, last = "{}" if is_dict else "[]"
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    return first + inner + f",{inner}".join(texts) + outer + last


def write_json(target: str | None, tree: dict[str, Any]) -> None:
    """Write the answer to the target of `--json`, if there is one."""
    if target is None:
        return
    text = json_text(tree) + "\n"
    if target == "-":
        sys.stdout.write(text)
        # After Ctrl-C the process ends without flushing its buffers.
        sys.stdout.flush()
        return
    write_atomically(target, text)


def network_tree(network: Network) -> dict[str, Any]:
    """Return the program and the network, with which every JSON file about a question begins."""
    return {
        "bnncert": __version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
    }
