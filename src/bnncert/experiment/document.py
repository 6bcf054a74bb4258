"""A configuration file as plain values that know their lines.

YAML and JSON come out as the same tree; nothing in a file can make an object of another kind.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bnncert.errors import FormatError, MissingExtraError
from bnncert.formats.limits import DEFAULT_LIMITS
from bnncert.formats.reading import read_text

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Node:
    """One value and the line it stands in; a mapping also knows the lines of its keys."""

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    key_lines: dict[str, int] | None = None

    @property
    def kind(self) -> str:
        """What the value is, in words."""
        value = self.value
        if isinstance(value, dict):
            return "a mapping"
        if isinstance(value, list):
            return "a list"
        if value is None:
            return "nothing"
        if isinstance(value, bool):
            return "true" if value else "false"
        return repr(value) if isinstance(value, str) else str(value)


def complaint(path: Path, line: int, text: str) -> FormatError:
    """Return the error for a place in a file."""
    return FormatError(f"{path}:{line}: {text}")


def read_document(path: Path) -> Node:
    """Read a .yaml, .yml or .json file."""
    text = read_text(path, DEFAULT_LIMITS.configuration, "configuration")
    try:
        if path.suffix.lower() == ".json":
            from bnncert.experiment.json_tree import read_json

            return read_json(text, path)
        if importlib.util.find_spec("yaml") is None:
            raise MissingExtraError(
                f"{path}: reading YAML needs PyYAML: pip install 'bnncert[experiments]' (a .json "
                "file of the same layout needs nothing)"
            )
        from bnncert.experiment.yaml_tree import read_yaml

        return read_yaml(text, path)
    except RecursionError as error:
        raise FormatError(f"{path}: nested too deeply") from error
