"""JSON as a tree with line numbers, which the reader of the standard library does not provide."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bnncert.errors import FormatError
from bnncert.results.config.source_tree import Node, complaint

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
