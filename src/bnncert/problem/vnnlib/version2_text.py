"""The text of a VNN-LIB 2.0 query: checks before the package `vnnlib` parses it, and its errors.

The package trusts its input in places: it recurses on nested parentheses, stops at a NUL byte,
truncates the index 1.5 to 1 and accepts -1 as an index. The text is checked for all of these first.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
import sys
from typing import Any, Final

from bnncert.errors import FormatError, MissingExtraError
from bnncert.problem.vnnlib.messages import error_at, shown
from bnncert.problem.vnnlib.version1 import MAX_NESTING, MAX_NUMBER_LENGTH

# A pair of brackets is one token: its content is checked before the package parses it.
_TOKEN: Final = re.compile(
    r'\n|;[^\n]*|"(?:[^"\\]|\\.)*"|\((?:[a-z][a-z-]*)?|\)|\[[^\]]*\]?'
    r'|[A-Za-z]\w*|-?[0-9][0-9.]*|[^\x00-\x7f]|"',
    re.DOTALL | re.ASCII,
)
_VERSION: Final = re.compile(r"\(vnnlib-version\s*<([0-9]+\.[0-9]+)>")
_SHAPE: Final = re.compile(r"\[\s*(?:[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)*)?\]")
_SYNTAX_ERROR: Final = re.compile(r"at line ([0-9]+), column [0-9]+: '(.*)'\Z", re.DOTALL)


def import_parser(path: str) -> Any:
    """Return the package `vnnlib`; raise if it is missing or too old."""
    advice = "needs the package vnnlib 1.0 or later: pip install 'bnncert[vnnlib]'"
    if importlib.util.find_spec("vnnlib") is None:
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    package = importlib.import_module("vnnlib")
    # Releases before 1.0 are a different package of the same name, for VNN-LIB 1.0.
    if not hasattr(package, "parse_query_string"):
        raise MissingExtraError(f"{path}: reading VNN-LIB 2.0 {advice}")
    return package


class CheckedText:
    """The text that the package parses, and the lines of its declarations.

    `checked` differs from the original text in two respects. The ONNX names of inputs and outputs
    are removed: drafts of the standard have them, the package does not accept them, and they are
    not needed for a single input and output. The type "Real" of the standard is replaced by
    "real", which is its name in the package.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.line = 1
        self.declared: dict[str, list[int]] = {}
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise error_at(path, line, "a NUL byte", "VNN-LIB 2.0 text")
        heads: list[str] = []
        pieces: list[str] = []
        copied = words = 0
        for match in _TOKEN.finditer(text):
            token = match[0]
            first = token[0]
            instead = token
            declaring = bool(heads) and heads[-1] in ("declare-input", "declare-output")
            if first == "(":
                self._open(heads, token[1:])
                words = 0
                version = _VERSION.match(text, match.start())
                if version is not None and version[1] != "2.0":
                    raise error_at(path, self.line, f"version <{version[1]}>", "<2.0>")
            elif first == ")":
                # The package reports a ')' without '('.
                del heads[-1:]
            elif first == "[":
                if _SHAPE.fullmatch(token) is None:
                    expected = "whole numbers below 10^9 with commas between"
                    raise error_at(path, self.line, f"{shown(token)}", expected)
            elif first == '"':
                if len(token) == 1:
                    raise error_at(path, self.line, 'an opening " without its end', 'a closing "')
                if declaring:
                    instead = "\n" * token.count("\n")
            elif first > "\x7f":
                expected = "ASCII text outside comments"
                raise error_at(path, self.line, f"character {token!r}", expected)
            elif first in "-0123456789":
                self._number(token)
            elif first.isalpha() and declaring:
                words += 1
                # The first word is the name of the tensor, the second its type.
                if words == 2 and token == "Real":
                    instead = "real"
            if instead is not token:
                pieces += text[copied : match.start()], instead
                copied = match.end()
            self.line += token.count("\n")
        self.checked = "".join([*pieces, text[copied:]])

    def _open(self, heads: list[str], head: str) -> None:
        heads.append(head)
        if len(heads) > MAX_NESTING:
            found = f"more than {MAX_NESTING} nested parentheses"
            raise error_at(self.path, self.line, found, f"at most {MAX_NESTING}")
        if head.startswith("declare-"):
            self.declared.setdefault(head, []).append(self.line)

    def _number(self, token: str) -> None:
        """Raise if a number does not fit the machine type into which the package reads it."""
        if len(token) < 19:
            return
        fits = len(token) <= MAX_NUMBER_LENGTH and "." in token
        if fits and token.count(".") == 1:
            size = abs(float(token + "0"))
            nothing = not token.strip("-0.")
            fits = nothing or sys.float_info.min <= size < math.inf
        if not fits:
            expected = "whole numbers below 10^18, decimals between 1e-307 and 1e308"
            raise error_at(self.path, self.line, f"number {shown(token)}", expected)

    def line_of(self, head: str, number: int = 0) -> int:
        """Return the line of a declaration."""
        lines = self.declared.get(head, [])
        return lines[number] if number < len(lines) else 1


def parse(package: Any, text: str, path: str) -> Any:
    """Return the tree of a text; what the package raises becomes a FormatError."""
    try:
        return package.parse_query_string(text)
    except Exception as error:  # the binding translates C++ exceptions to various types
        raise _translated(str(error), path) from error


def _translated(message: str, path: str) -> FormatError:
    """Translate a message of the package, a syntax error or a JSON list of type errors."""
    syntax = _SYNTAX_ERROR.search(message)
    if syntax is not None:
        found = shown(syntax[2]) if syntax[2] else "the end of the file"
        return error_at(path, int(syntax[1]), found, "what the syntax of VNN-LIB 2.0 has there")
    try:
        first = json.loads(message)["errors"][0]
        line, what = int(first["line"]), f"{first['message']} {first['offendingSymbol']!r}"
        hint = str(first["hint"])[:200]
    except (ValueError, LookupError, TypeError):
        line, what, hint = 1, "it cannot be parsed", message or "no reason given"
    return FormatError(f"{path}:{line}: {what}: {hint}")
