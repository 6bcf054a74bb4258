"""Defaults of options from `bnncert.toml`, or from `[tool.bnncert]` in `pyproject.toml`.

The nearest such file counts: in the working directory, or in a folder above it up to the root of
the repository.  Keys are the names of options without dashes in front; they hold for all commands,
and those in a table with the name of a command for that command.  The command line wins.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnncert.cli.catalogue import ENTRIES, TOPICS
from bnncert.cli.grouping import flag_of, value_source
from bnncert.errors import FormatError, InputError

FILE, PROJECT_FILE = "bnncert.toml", "pyproject.toml"

#: Options that a key for all commands does not set: the time limit and the input of a check have
#: another meaning, and experiments and categories state these values in files of their own.
OWN_VALUES = {
    "check": ("--timeout", "--input", "--index", "--picture"),
    "experiment": ("--timeout", "--grid", "--labels", "--data", "--count", "--network"),
    "vnncomp": ("--timeout",),
}

#: Options whose values are lists with commas.
LISTS = frozenset({"--radius", "--rivals", "--normalise", "--hidden"})


@dataclass(frozen=True)
class ProjectDefaults:
    """The content of a file: keys for all commands, and a table of keys for some commands."""

    path: Path
    common: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]

    def values(self, ctx: Any, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the default values of a command by the name of the parameter.

        `options` are the parameters of the command by their names on the command line, and `ctx`
        is the context in which typer reads values.

        Raises InputError if the table of the command has a key that is not one of its options, or
        a value is not of the type of its option.
        """
        table = self.tables.get(command, {})
        own = OWN_VALUES.get(command, ())
        chosen = {f: v for f, v in self.common.items() if f in options and f not in own}
        for flag, value in table.items():
            if flag not in options:
                raise self._unknown(f"[{command}] {flag[2:]}", flag, options, f" of {command}")
            chosen[flag] = value
        found = {}
        for flag, value in chosen.items():
            place = f"[{command}] {flag[2:]}" if flag in table else flag[2:]
            found[options[flag].name] = self._checked(ctx, place, options[flag], value)
        return found

    def naming_file(self, error: InputError, ctx: Any) -> InputError:
        """Return the error of a command; if it is about a value of this file, it names the file.

        `ctx` is the context of the command.  Messages about an option begin with its flag.
        """
        flag, _, rest = str(error).partition(" ")
        for parameter in ctx.command.params:
            if flag in parameter.opts and value_source(ctx, parameter.name) == "DEFAULT_MAP":
                return InputError(f"{self.path}: {flag[2:]} {rest}")
        return error

    def refuse_unknown(self) -> None:
        """Raise if a key is not an option of any command, or a table not a command."""
        known = [flag for flags in TOPICS.values() for flag in flags if flag != "--help"]
        commands = [entry.name for entry in ENTRIES if not entry.hidden]
        for flag in self.common:
            if flag not in known:
                raise self._unknown(flag[2:], flag, known)
        for command, table in self.tables.items():
            if command not in commands:
                near = difflib.get_close_matches(command, commands, 1)
                raise InputError(f"{self.path}: [{command}] is not a command{_meant(near)}")
            for flag in table:
                if flag not in known:
                    raise self._unknown(f"[{command}] {flag[2:]}", flag, known)

    def _unknown(self, place: str, flag: str, known: Any, of: str = "") -> InputError:
        near = [name[2:] for name in difflib.get_close_matches(flag, list(known), 1, 0.75)]
        return InputError(f"{self.path}: {place} is not an option{of}{_meant(near)}")

    def _checked(self, ctx: Any, place: str, option: Any, value: Any) -> Any:
        """Return a value as the command line would give it, or raise if it cannot be one."""
        if option.is_flag != isinstance(value, bool) or isinstance(value, Mapping):
            expected = "true or false" if option.is_flag else "a value as on the command line"
            raise InputError(f"{self.path}: {place} is {value!r}; expected {expected}")
        if isinstance(value, list) and option.nargs == 1 and not option.multiple:
            # Such as rivals = [1, 2] for --rivals 1,2.
            if LISTS.isdisjoint(option.opts):
                raise InputError(f"{self.path}: {place} is {value!r}; expected a single value")
            value = ",".join(map(str, value))
        try:
            option.process_value(ctx, value)
        except Exception as error:
            # The errors of typer have modules that differ between its versions.
            text = getattr(error, "message", None) or str(error)
            raise InputError(f"{self.path}: {place} is {value!r}; {text}") from error
        return value


def _meant(names: list[str]) -> str:
    return f"; did you mean {names[0]}?" if names else ""


def find_defaults(folder: Path) -> ProjectDefaults | None:
    """Read the nearest file with defaults, or return None if there is none."""
    for place in _folders(folder):
        for name in (FILE, PROJECT_FILE):
            path = place / name
            if name == FILE and path.is_dir():
                raise InputError(f"{path}: is a directory, expected a file")
            tree = _read(path) if path.is_file() else None
            if tree is not None:
                defaults = _defaults(path, tree)
                defaults.refuse_unknown()
                return defaults
    return None


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folder, and those above it up to the root of the repository, if there is one."""
    above = [folder, *folder.parents]
    root = next((place for place in above if (place / ".git").exists()), folder)
    for place in above:
        yield place
        if place == root:
            return


def _read(path: Path) -> Mapping[str, Any] | None:
    """Return the keys of a file; None if it is a project file without a table for bnncert."""
    from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_text

    is_project = path.name == PROJECT_FILE
    if is_project and b"bnncert" not in path.read_bytes():
        return None
    text = read_text(path, DEFAULT_LIMITS.configuration, "configuration")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{path}: not TOML ({error})") from error
    if not is_project:
        return tree
    tools = tree.get("tool", {})
    found = tools.get("bnncert") if isinstance(tools, dict) else None
    if found is not None and not isinstance(found, dict):
        raise FormatError(f"{path}: tool.bnncert is {found!r}; expected a table")
    return found


def _defaults(path: Path, tree: Mapping[str, Any]) -> ProjectDefaults:
    """Return the keys for all commands and those for single ones, as flags."""
    common = {flag_of(k): v for k, v in tree.items() if not isinstance(v, dict)}
    tables = {
        command.replace("_", "-"): {flag_of(key): value for key, value in table.items()}
        for command, table in tree.items()
        if isinstance(table, dict)
    }
    return ProjectDefaults(path, common, tables)
