"""The columns of a table that a network reads: names, bounds, steps and one-hot groups.

A description is a JSON file,

    {"features": [{"name": "age", "lo": 18, "hi": 82, "step": 1}, ..],
     "one_hot": {"region": ["north", "south", "west"]}}

or a CSV file, of which only the first line, the names, is read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.errors import FormatError, InputError
from bnncert.model.formats.file_content import DEFAULT_LIMITS, parse_json, read_bytes, read_text
from bnncert.model.network import Network
from bnncert.regions import Box, Grid

#: What a feature can have besides its name.
NUMBERS = ("lo", "hi", "step")


@dataclass(frozen=True, eq=False)
class TableColumns:
    """The inputs of a network as columns of a table."""

    #: The names of all columns.
    names: tuple[str, ...]
    #: The bounds and steps; NaN where the file states none.
    lo: FloatArray
    hi: FloatArray
    step: FloatArray
    #: The one-hot groups by name, as numbers of columns.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def plain(size: int) -> TableColumns:
        """Return columns that are named by their numbers."""
        nothing = np.full(size, np.nan)
        return TableColumns(tuple(f"input {i}" for i in range(size)), nothing, nothing, nothing)

    @staticmethod
    def read(path: Path, size: int) -> TableColumns:
        """Read the description of a table with this number of columns."""
        columns = _read_csv(path) if path.suffix.lower() == ".csv" else _read_json(path)
        if len(columns.names) != size:
            raise FormatError(
                f"{path}: {len(columns.names)} columns; the network has {size} inputs"
            )
        for i, name in enumerate(columns.names):
            if not name or name in columns.names[:i]:
                problem = "has no name" if not name else f"is called {name!r} as another one"
                raise FormatError(f"{path}: column {i} {problem}")
        return columns

    def find(self, text: str) -> int | tuple[int, ...]:
        """Return the column, or the one-hot group, with a name or number."""
        if text in self.groups:
            return self.groups[text]
        if text in self.names:
            return self.names.index(text)
        if text.isdecimal() and text.isascii() and int(text) < len(self.names):
            return int(text)
        known = ", ".join(self.names[:12]) + (", .." if len(self.names) > 12 else "")
        raise InputError(f"there is no feature {text!r}; the inputs are {known}")

    def box(self, network: Network, step: float | None) -> Box:
        """Return the region of all inputs; `step` is that of inputs for which no step is stated."""
        size = network.inputs
        bounds = []
        for name, own, stated in (
            ("lo", network.input_lo, self.lo),
            ("hi", network.input_hi, self.hi),
        ):
            base = np.full(size, np.nan) if own is None else np.broadcast_to(own, size)
            values = np.where(np.isnan(stated), base, stated)
            if np.any(np.isnan(values)):
                i = int(np.flatnonzero(np.isnan(values))[0])
                raise InputError(
                    f"{network.source}: no data box is stated; give {name} of {self.names[i]} in "
                    "--table, or --clip"
                )
            bounds.append(values)
        steps = np.where(np.isnan(self.step), np.nan if step is None else step, self.step)
        if np.all(np.isnan(steps)):
            return Box(bounds[0], bounds[1])
        if np.any(np.isnan(steps)):
            i = int(np.flatnonzero(np.isnan(steps))[0])
            raise InputError(
                f"feature {self.names[i]} has no step while others have one; give it a step in "
                "the table, or --grid"
            )
        return Box(bounds[0], bounds[1], Grid(steps, bounds[0]))


def _read_csv(path: Path) -> TableColumns:
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    try:
        names = tuple(name.strip() for name in next(csv.reader(text.splitlines()), []))
    except csv.Error as error:
        raise FormatError(f"{path}:1: not a line of CSV ({error})") from error
    nothing = np.full(len(names), np.nan)
    return TableColumns(names, nothing, nothing, nothing)


def _read_json(path: Path) -> TableColumns:
    tree = parse_json(read_bytes(path), str(path))
    features = tree.get("features") if isinstance(tree, dict) else None
    if not isinstance(features, list) or not tree.keys() <= {"features", "one_hot"}:
        raise FormatError(f"{path}: expected an object with features and perhaps one_hot")
    names, numbers = [], []
    for i, entry in enumerate(features):
        where = f"{path}: feature {i}"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FormatError(f"{where}: expected an object with a name")
        unknown = sorted(entry.keys() - {"name", *NUMBERS})
        if unknown:
            raise FormatError(f"{where}: unknown field {unknown[0]!r}; expected name, lo, hi, step")
        names.append(entry["name"])
        numbers.append([_number(entry, name, where) for name in NUMBERS])
        low, high, step = numbers[-1]
        if low > high or step <= 0:
            raise FormatError(f"{where}: lo {low:g}, hi {high:g}, step {step:g} are no values")
    lo, hi, step_ = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
    groups = _groups(tree.get("one_hot", {}), names, path)
    return TableColumns(tuple(names), lo, hi, step_, groups)


def _number(entry: dict[str, Any], name: str, where: str) -> float:
    value = entry.get(name)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        raise FormatError(f"{where}: {name} is {value!r}; expected a finite number")
    return float(value)


def _groups(value: Any, names: Sequence[str], path: Path) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise FormatError(f"{path}: one_hot is not an object with a list of names for each group")
    groups = {}
    for group, members in value.items():
        if not isinstance(members, list) or not all(m in names for m in members):
            raise FormatError(f"{path}: one_hot group {group!r} is not a list of feature names")
        groups[group] = tuple(names.index(m) for m in members)
    return groups
