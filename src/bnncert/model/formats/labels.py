"""True classes of points: in the array of a file that holds them, or in a file of their own."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import IntArray
from bnncert.errors import FormatError
from bnncert.model.formats.file_content import parse_json, read_bytes, read_text
from bnncert.model.formats.inputs import listed_names, read_array, read_names, split_key
from bnncert.model.formats.limits import DEFAULT_LIMITS

#: Words in the name of an array of classes, and of an array of points.
LABEL_WORDS = frozenset({"y", "label", "labels", "target", "targets"})
POINT_WORDS = frozenset({"x", "image", "images", "point", "points", "pixels", "data", "input"})

#: Arrays that describe the points; see docs/training.md.
ABOUT_POINTS = frozenset({"input_shape", "input_lo", "input_hi", "pixel_step"})

#: Files of labels with several columns or arrays.
KEYED_SUFFIXES = (".npz", ".json", ".csv", ".txt")

_PART = r"(train|test|val|valid|validation)"


def _words(name: str) -> frozenset[str]:
    """Return the words of a name: x_test, xTest, Xtest and test-x have the words x and test."""
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [w for w in re.split(r"[^A-Za-z0-9]+", apart.lower()) if w]
    if len(words) == 1 and (joined := re.fullmatch(rf"([xy]){_PART}", words[0])):
        words = [joined[1], joined[2]]
    return frozenset(words)


def _part(name: str) -> frozenset[str]:
    """Return the part of the data that a name denotes: its words except points and labels."""
    return _words(name) - LABEL_WORDS - POINT_WORDS


def is_label_name(name: str) -> bool:
    """Return whether an array of this name holds classes."""
    return bool(_words(name) & LABEL_WORDS)


def point_names(names: Collection[str]) -> list[str]:
    """Return the arrays that may hold points: neither labels nor descriptions of the points."""
    return [n for n in names if not is_label_name(n) and n not in ABOUT_POINTS]


def label_name(names: Collection[str], points: str, where: str) -> str | None:
    """Return the array that holds the classes of the array `points`, or None.

    This is the array of the same part (y_test for x_test), else the only array of labels that
    does not belong to another array of points.

    Raises
    ------
    FormatError
        If there are several candidates.
    """
    known = [n for n in names if is_label_name(n) and n != points]
    same = [n for n in known if _part(n) == _part(points)]
    others = {_part(n) for n in point_names(names) if n != points}
    candidates = same or [n for n in known if _part(n) not in others]
    if len(candidates) > 1:
        raise FormatError(
            f"{where}: {listed_names(candidates)} may be the labels of {points}; choose one with "
            f"--labels {where}:KEY"
        )
    return candidates[0] if candidates else None


def checked_labels(array: npt.NDArray[Any], where: str) -> IntArray:
    """Return an array as classes: one whole number for each point."""
    if array.dtype.kind not in "iuf" or not np.array_equal(array, np.rint(array)):
        raise FormatError(f"{where}: labels are not whole numbers")
    if array.ndim == 0 or array.size != array.shape[0]:
        raise FormatError(f"{where}: shape {array.shape}; expected one class for each point")
    if array.size and np.max(np.abs(array.astype(np.float64))) >= 2.0**53:
        raise FormatError(f"{where}: labels are not classes; the largest is {array.max()}")
    return array.reshape(-1).astype(np.int64)


def read_labels(text: str) -> IntArray:
    """Read classes from `FILE` or `FILE:KEY`: .npy, .npz, .csv, .txt or .json."""
    file, key = split_key(text, KEYED_SUFFIXES)
    path = Path(file)
    if path.suffix == ".npz":
        if key is None:
            key = _only([n for n in read_names(path) if is_label_name(n)], path)
        return checked_labels(read_array(f"{path}:{key}"), f"{path}:{key}")
    if path.suffix == ".npy":
        return checked_labels(read_array(str(path)), str(path))
    if path.suffix == ".json":
        return _read_json(path, key)
    if path.suffix in (".csv", ".txt"):
        return _read_csv(path, key)
    raise FormatError(f"{path}: labels are read from .npy, .npz, .csv, .txt and .json files")


def _only(candidates: Sequence[str], path: Path) -> str:
    """Return the one array of labels that a file holds."""
    if len(candidates) != 1:
        held = listed_names(candidates) or "no array of labels"
        raise FormatError(f"{path}: holds {held}; name one as {path}:KEY")
    return candidates[0]


def _read_json(path: Path, key: str | None) -> IntArray:
    tree = parse_json(read_bytes(path), str(path))
    where = str(path)
    if isinstance(tree, dict):
        if key is None:
            key = _only([n for n in tree if is_label_name(n)], path)
        if key not in tree:
            raise FormatError(f"{path}: no key {key!r}; it holds {listed_names(list(tree))}")
        tree, where = tree[key], f"{path}:{key}"
    elif key is not None:
        raise FormatError(f"{path}: holds a list, which has no key {key!r}")
    if not isinstance(tree, list) or not tree:
        raise FormatError(f"{where}: expected a list of whole numbers")
    for index, value in enumerate(tree):
        if not isinstance(value, int) or isinstance(value, bool):
            raise FormatError(f"{where}: value {index} is {value!r}; expected a whole number")
    return _small(tree, where)


def _read_csv(path: Path, key: str | None) -> IntArray:
    """Read a column: the only one, or the one that `key` or a name for labels names."""
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    try:
        rows = [row for row in csv.reader(text.splitlines()) if any(map(str.strip, row))]
    except csv.Error as error:
        raise FormatError(f"{path}: not a readable table ({error})") from error
    if not rows:
        raise FormatError(f"{path}: empty; expected one class a line")
    head = [cell.strip() for cell in rows[0]]
    column, first = 0, 0
    if not any(_is_number(cell) for cell in head):
        column = head.index(_column(head, key, path))
        first = 1
    elif key is not None:
        raise FormatError(f"{path}: the first line names no columns, but {key!r} was asked for")
    elif len(rows) == 1:
        # All classes in one line.
        rows = [[cell] for cell in head]
    elif len(head) > 1:
        raise FormatError(
            f"{path}: {len(head)} columns; name them in the first line, and one as {path}:NAME"
        )
    values = []
    for number, row in enumerate(rows[first:], first + 1):
        cell = row[column].strip() if column < len(row) else ""
        if re.fullmatch(r"[+-]?[0-9]{1,18}", cell) is None:
            raise FormatError(f"{path}: row {number} has {cell[:20]!r}; expected a whole number")
        values.append(int(cell))
    return _small(values, str(path))


def _column(head: Sequence[str], key: str | None, path: Path) -> str:
    if key is None:
        return head[0] if len(head) == 1 else _only([n for n in head if is_label_name(n)], path)
    if key not in head:
        raise FormatError(f"{path}: no column {key!r}; it has {listed_names(head)}")
    return key


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _small(values: Sequence[int], where: str) -> IntArray:
    if not values or max(map(abs, values)) >= 2**31:
        raise FormatError(f"{where}: expected classes")
    return np.array(values, dtype=np.int64)
