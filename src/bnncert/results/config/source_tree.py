"""Values of a configuration file with their lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bnncert.errors import FormatError

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True)
class Node:
    """A value with its line; a mapping also has the lines of its keys."""

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    key_lines: dict[str, int] | None = None

    @property
    def kind(self) -> str:
        """The kind of value in words."""
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
