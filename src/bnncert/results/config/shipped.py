"""The configurations that come with bnncert, found by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bnncert.errors import FormatError


def shipped_names() -> list[str]:
    """Return the names of the bundled configurations."""
    return sorted(p.stem for p in _folder().glob("*.yaml"))


def find_configuration(text: str) -> Path:
    """Return the file of a configuration: a path, or the name of a bundled one."""
    path = Path(text)
    if path.suffix.lower() in (".yaml", ".yml", ".json") or path.is_file():
        return path
    if text in shipped_names():
        return _folder() / f"{text}.yaml"
    raise FormatError(
        f"{text}: no such file and no bundled experiment; those are {', '.join(shipped_names())}"
    )


def _folder() -> Path:
    return Path(str(files("bnncert"))) / "extras" / "experiments"
