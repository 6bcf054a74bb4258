"""The list of a VNN-COMP category: models, queries and time limits."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from bnncert.deadline import Deadline
from bnncert.errors import FormatError
from bnncert.extras.vnncomp.scripted_answer import plain_or_packed
from bnncert.model.formats.file_content import read_text
from bnncert.model.formats.limits import DEFAULT_LIMITS


@dataclass(frozen=True)
class CategoryInstance:
    """One row of an instances.csv."""

    category: str
    #: The file names in the row.
    onnx: str
    vnnlib: str
    timeout: float
    #: The existing files, possibly gzipped.
    model: Path
    query: Path
    #: Name of the result file; no two instances of a category share one.
    name: str


def read_instances(path: Path, timeout: float | None = None) -> tuple[CategoryInstance, ...]:
    """Read an instances.csv: rows `onnx,vnnlib,timeout`, files relative to its folder.

    `timeout` replaces the time limits of the file.
    """
    Deadline(timeout)
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise FormatError(f"{path}:{reader.line_num}: not CSV ({error})") from error
    category = path.resolve().parent.name
    names: dict[str, int] = {}
    found = []
    for line, row in rows:
        if not any(row):
            continue
        if len(row) != 3:
            raise FormatError(
                f"{path}:{line}: found {len(row)} field(s), expected onnx,vnnlib,timeout"
            )
        onnx, vnnlib, limit = row
        found.append(
            CategoryInstance(
                category=category,
                onnx=onnx,
                vnnlib=vnnlib,
                timeout=_limit(limit, f"{path}:{line}") if timeout is None else timeout,
                model=_existing(path.parent, onnx, f"{path}:{line}"),
                query=_existing(path.parent, vnnlib, f"{path}:{line}"),
                name=_result_name(onnx, vnnlib, names),
            )
        )
    if not found:
        raise FormatError(f"{path}: holds no instance")
    return tuple(found)


def _limit(text: str, where: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise FormatError(f"{where}: time limit is {text!r}, expected a number of seconds > 0")
    return limit


def _existing(folder: Path, text: str, where: str) -> Path:
    try:
        found = plain_or_packed(folder / text) if text else folder
        there = found.is_file()
    except (OSError, ValueError):
        # The text cannot be the name of a file.
        there = False
    if not there:
        raise FormatError(f"{where}: no such file: {text!r}, nor with .gz")
    return found


def _result_name(onnx: str, vnnlib: str, taken: dict[str, int]) -> str:
    """Return MODEL_QUERY.txt, with a number if the name is already taken."""
    parts = [Path(text.removesuffix(".gz")).stem for text in (onnx, vnnlib)]
    plain = "_".join(parts)
    name, number = plain, 1
    # Compared without case, for file systems that do the same.
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken[name.lower()] = number
    return name + ".txt"
