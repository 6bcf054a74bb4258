"""Checks of the cells of a results file: SQLite allows values of any type in any column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError
from bnncert.model.formats.file_content import parse_json

STATUSES = ("robust", "not_robust", "unknown", "timeout", "misclassified")
QUESTIONS = ("verify", "bound")
LABEL_SOURCES = ("given", "own", "unknown")

#: The choices of a column, and for other columns their type and its name in words.
_CHOICES = {"status": STATUSES, "question": QUESTIONS, "labels": LABEL_SOURCES}
_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(
        (
            *("model_hash", "input_hash", "norm", "clip", "targets", "method", "ties", "stage"),
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
