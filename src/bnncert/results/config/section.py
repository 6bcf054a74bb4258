"""One mapping of a configuration: typed values by key; errors name the line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from bnncert.errors import FormatError
from bnncert.results.config.source_tree import Node, complaint


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
