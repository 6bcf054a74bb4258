"""Error messages about a VNN-LIB text: one line that names the file and the line."""

from __future__ import annotations

from bnncert.errors import FormatError


def error_at(path: str, line: int, found: str, expected: str) -> FormatError:
    """Return the error for what was found on a line where something else was expected."""
    return FormatError(f"{path}:{line}: found {found}, expected {expected}")


def shown(token: str) -> str:
    """Return a token of the file as a message quotes it: at most 40 characters."""
    return repr(token if len(token) <= 40 else token[:37] + "...")
