"""JSON as a tree with line numbers, which the reader of the standard library does not provide."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path

from bnncert.batch.config.tree import Node, complaint
from bnncert.errors import FormatError

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


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
        # Counted incrementally: counting from the start each time would take quadratic time.
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

    def string(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except json.JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            raise self.wrong(error.msg) from error
        return str(value)

    def value(self) -> Node:
        self.skip()
        line = self.line()
        if self.text.startswith('"', self.at):
            return Node(self.string(), line)
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
        for word, meaning in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return Node(meaning, line)
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise self.wrong("expected a value")
        self.at = found.end()
        whole = found[1] is None and found[2] is None
        try:
            return Node(int(found[0]) if whole else float(found[0]), line)
        except ValueError as error:
            # Python does not read integers of thousands of digits.
            raise self.wrong("a number with too many digits") from error

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
            key = self.string()
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
