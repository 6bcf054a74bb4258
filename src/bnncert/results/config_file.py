"""Configuration files as plain values with their lines, and typed values by key.

YAML and JSON give the same tree of plain values; a file cannot construct other objects.  Errors
name the line.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_text

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


class ConfigSection:
    """A mapping and its allowed keys; `defaults` has the values of missing keys."""

    def __init__(
        self,
        path: Path,
        node: Node,
        what: str,
        keys: Iterable[str],
        defaults: ConfigSection | None = None,
    ) -> None:
        self.path, self.line, self.what, self.defaults = path, node.line, what, defaults
        if not isinstance(node.value, dict):
            raise complaint(path, node.line, f"{what} is {node.kind}; expected a mapping")
        self.values = node.value
        known = list(keys)
        for key, line in (node.key_lines or {}).items():
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; expected {', '.join(known)}"
                raise complaint(path, line, f"unknown key {key!r} in {what}{hint}")

    def wrong(self, text: str, line: int | None = None) -> FormatError:
        """Return an error about this mapping, or about one line of it."""
        return complaint(self.path, self.line if line is None else line, text)

    def get(self, key: str) -> Node | None:
        """Return the value of a key, here or among the defaults."""
        if key in self.values:
            return self.values[key]
        return None if self.defaults is None else self.defaults.get(key)

    def need(self, key: str) -> Node:
        """Return the value of a required key."""
        node = self.get(key)
        if node is None:
            raise self.wrong(f"{self.what} has no {key}")
        return node

    def items(self, key: str) -> list[Node] | None:
        """Return the values of a list; a single value counts as a list of one."""
        node = self.get(key)
        if node is None:
            return None
        found = node.value if isinstance(node.value, list) else [node]
        if not found:
            raise self.wrong(f"{key} is an empty list; expected at least one", node.line)
        return found

    def text(self, key: str) -> str | None:
        """Return a text."""
        node = self.get(key)
        return None if node is None else self.as_text(node, key)

    def as_text(self, node: Node, what: str) -> str:
        """Return a value as a text that is not empty."""
        if not isinstance(node.value, str) or not node.value.strip():
            raise self.wrong(f"{what} is {node.kind}; expected a text", node.line)
        return node.value.strip()

    def choice(self, node: Node, what: str, choices: Sequence[str]) -> str:
        """Return a text that is one of the choices."""
        if node.value not in choices or not isinstance(node.value, str):
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise self.wrong(f"{what} is {node.kind}; expected {expected}", node.line)
        return node.value

    def chosen(self, key: str, choices: Sequence[str]) -> str | None:
        """Return the value of a key that is one of the choices."""
        node = self.get(key)
        return None if node is None else self.choice(node, key, choices)

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        node = self.get(key)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            raise self.wrong(f"{key} is {node.kind}; expected true or false", node.line)
        return node.value

    def integer(self, key: str, least: int) -> int | None:
        """Return a whole number."""
        node = self.get(key)
        return None if node is None else self.as_integer(node, key, least)

    def as_integer(self, node: Node, what: str, least: int) -> int:
        """Return a value as a whole number >= least."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(
                f"{what} is {node.kind}; expected a whole number >= {least}", node.line
            )
        return value

    def number(self, key: str) -> float | None:
        """Return a finite number."""
        node = self.get(key)
        return None if node is None else self.as_number(node, key)

    def positive(self, key: str, unit: str) -> float | None:
        """Return a finite number > 0; the message names the unit."""
        value = self.number(key)
        if value is not None and value <= 0:
            text = f"{key} is {value:g}; expected a number of {unit} > 0"
            raise self.wrong(text, self.need(key).line)
        return value

    def as_number(self, node: Node, what: str) -> float:
        """Return a value as a finite number."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(f"{what} is {node.kind}; expected a number", node.line)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(f"{what} is {node.kind}; expected a finite number", node.line)
        return number


_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(word: str) -> None:
    """Raise for NaN and Infinity, which are not JSON, but which the standard library reads."""
    raise KeyError(word)


#: The reader of the standard library, for everything but lists and mappings.
_SCALARS = json.JSONDecoder(parse_constant=_refuse)


def read_json(text: str, path: Path) -> Node:
    """Read one JSON document."""
    reader = _Reader(text, path)
    root = reader.value()
    reader.skip()
    if reader.at < len(text):
        raise reader.wrong("more text after the end")
    return root


class _Reader:
    """A position in a text, moving forward."""

    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path, self.at = text, path, 0
        # Lines are counted incrementally: counting from the start would take quadratic time.
        self._line, self._counted = 1, 0

    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def wrong(self, text: str) -> FormatError:
        return complaint(self.path, self.line(), f"not JSON: {text}")

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def next_is(self, character: str) -> bool:
        """Consume a character if it comes next, and return whether it does."""
        self.skip()
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def scalar(self) -> Any:
        """Read a text, a number, true, false or null."""
        try:
            value, self.at = _SCALARS.raw_decode(self.text, self.at)
        except KeyError as error:
            raise self.wrong("expected a value") from error
        except json.JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            wrong = "expected a value" if error.msg == "Expecting value" else error.msg
            raise self.wrong(wrong) from error
        except ValueError as error:
            # Python does not read integers of thousands of digits.
            raise self.wrong("a number with too many digits") from error
        return value

    def value(self) -> Node:
        self.skip()
        line = self.line()
        if self.next_is("{"):
            return self.mapping(line)
        if self.next_is("["):
            items: list[Node] = []
            if not self.next_is("]"):
                items.append(self.value())
                while self.next_is(","):
                    items.append(self.value())
                if not self.next_is("]"):
                    raise self.wrong("expected , or ]")
            return Node(items, line)
        return Node(self.scalar(), line)

    def mapping(self, line: int) -> Node:
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        if self.next_is("}"):
            return Node(values, line, lines)
        while True:
            self.skip()
            if not self.text.startswith('"', self.at):
                raise self.wrong("expected a key in quotation marks")
            key_line = self.line()
            key = self.scalar()
            if key in values:
                raise complaint(
                    self.path, key_line, f"key {key!r} again; first in line {lines[key]}"
                )
            if not self.next_is(":"):
                raise self.wrong("expected :")
            values[key], lines[key] = self.value(), key_line
            if self.next_is("}"):
                return Node(values, line, lines)
            if not self.next_is(","):
                raise self.wrong("expected , or }")


#: Numbers that are text in YAML 1.1, such as 1e-3.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")

#: Greatest depth of nested lists and mappings; a configuration has five levels.
MOST_NESTED = 50

_YAML_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


def read_yaml(text: str, path: Path) -> Node:
    """Read one YAML document; it is composed, and no Python objects are constructed."""
    import yaml

    try:
        events: Any = yaml.parse(text, Loader=yaml.SafeLoader)
        depth = 0
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_NESTED:
                # PyYAML's time grows with the square of the depth.
                raise complaint(path, event.start_mark.line + 1, "nested too deeply")
            if isinstance(event, yaml.AliasEvent):
                # A few lines of aliases can expand to more values than fit into memory.
                raise complaint(path, event.start_mark.line + 1, "an alias (*); write it out")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is None or mark.index >= len(text.rstrip()):
            # A list or mapping that is not closed: its start is the useful place.
            mark = error.context_mark or mark
        line = 1 if mark is None else mark.line + 1
        raise complaint(path, line, f"not YAML: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise complaint(path, line, f"not YAML: {error.reason}") from error
    if root is None:
        raise complaint(path, 1, "the file is empty")
    return _yaml_tree(root, path)


def _yaml_tree(node: Any, path: Path) -> Node:
    line = node.start_mark.line + 1
    if node.id == "sequence":
        return Node([_yaml_tree(item, path) for item in node.value], line)
    if node.id == "mapping":
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, key_line = _yaml_scalar(key_node, path), key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise complaint(path, key_line, "a key that is not text")
            if key in values:
                raise complaint(path, key_line, f"key {key!r} again; first in line {lines[key]}")
            values[key], lines[key] = _yaml_tree(value_node, path), key_line
        return Node(values, line, lines)
    return Node(_yaml_scalar(node, path), line)


def _yaml_scalar(node: Any, path: Path) -> bool | int | float | str | None:
    import yaml

    line = node.start_mark.line + 1
    if node.id != "scalar" or node.tag not in _YAML_TAGS:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise complaint(path, line, f"a value of type {tag}; expected text or a number")
    if node.tag.endswith(":str") and node.style is None and _EXPONENT.fullmatch(node.value):
        return float(node.value)
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, KeyError) as error:
        raise complaint(path, line, f"{node.value!r} is not a value") from error
    assert value is None or isinstance(value, (bool, int, float, str))
    return value


def read_document(path: Path) -> Node:
    """Read a .yaml, .yml or .json file."""
    text = read_text(path, DEFAULT_LIMITS.configuration, "configuration")
    try:
        if path.suffix.lower() == ".json":
            return read_json(text, path)
        if importlib.util.find_spec("yaml") is None:
            raise MissingExtraError(
                f"{path}: reading YAML needs PyYAML: pip install 'bnncert[experiments]' (a .json "
                "file of the same layout needs nothing)"
            )
        return read_yaml(text, path)
    except RecursionError as error:
        raise FormatError(f"{path}: nested too deeply") from error


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
