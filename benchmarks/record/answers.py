"""Asking a question: its command lines in a folder with its files, in this process.

Times, and what depends on them, are taken out of the answers.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds after which a question counts as one that does not end, and the process is given up.
PATIENCE = 900.0

#: The file to which commands write their answers as JSON.
JSON_FILE = "answer.json"

#: Fields of JSON answers and columns of tables whose names contain one of these depend on time.
TIMED = ("second", "account", "created", "started", "finished")

#: Files that depend on nothing but the question; of others only the names are recorded.
STEADY = (".npy", ".npz", ".onnx", ".png", ".counterexample", ".txt")

_PROGRESS = re.compile(r".*, \d+ s(| of at most .*|, .* left)")
#: Times, sizes of files that state times, and how often something happened in a share of the time.
_NUMBERS = re.compile(
    r"\b\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    r"(?= (?:s|seconds|min|h|times as long|bytes|candidate counterexample)\b)"
)
#: Seconds and bytes in tables without names of columns, as `vnncomp` writes them.
_MEASURED = re.compile(r"^(\d+\.\d{3}|\d{8,})$")
_TIMED_COLUMNS = re.compile(r"(?<!\S)(seconds( in [AB])?|mean s|max s|time|GB)(?!\S)")


@dataclass(frozen=True)
class Question:
    """Files by name, and command lines that are called in their folder, one after the other."""

    kind: str
    files: dict[str, bytes]
    commands: list[list[str]]


def ask(question: Question) -> list[dict[str, Any]]:
    """Return one answer for each command line."""
    with tempfile.TemporaryDirectory(prefix="bnncert-record-") as name:
        # The name of the folder is part of some answers.
        folder = Path(name).resolve() / "question"
        folder.mkdir()
        lay_out(question.files, folder)
        before = os.getcwd()
        os.chdir(folder)
        try:
            with _patience(question):
                return [_answer(words, folder) for words in question.commands]
        finally:
            os.chdir(before)


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    """Write the files of a question."""
    # The search for defaults in folders above ends at the root of a repository.
    (folder / ".git").mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _answer(words: list[str], folder: Path) -> dict[str, Any]:
    known = {p.relative_to(folder) for p in folder.rglob("*")}
    (folder / JSON_FILE).unlink(missing_ok=True)
    code, out, errors = _call(words)
    answer: dict[str, Any] = {
        "code": code,
        "out": _steady_text(out, folder),
        "errors": _steady_text(errors, folder),
    }
    tree = _json(folder / JSON_FILE, folder)
    if isinstance(tree, dict):
        for key in ("status", "lower", "upper"):
            answer[key] = tree.pop(key, None)
        answer["json"] = tree
    made = sorted({p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} - known)
    answer["made"] = {str(p): _identity(folder / p) for p in made if p.name != JSON_FILE}
    if words[:1] == ["check"]:
        answer["certificate"] = {0: "accepted", 1: "rejected"}.get(code, "unreadable")
    return answer


def _call(words: list[str]) -> tuple[Any, str, str]:
    """Call the command line in this process; return its exit code and what it printed."""
    from bnncert.__main__ import main

    before = sys.argv, sys.stdout, sys.stderr
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        # Each command line shows its warnings, as a process of its own does.
        warnings.catch_warnings(),
    ):
        sys.argv, sys.stdout, sys.stderr = ["bnncert", *words], out, errors
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            # A traceback is an answer, too, without the places in the source.
            code = "traceback"
            print(traceback.format_exc().splitlines()[-1], file=errors)
        finally:
            sys.argv, sys.stdout, sys.stderr = before
        texts = []
        for stream in (out, errors):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
    return code, texts[0], texts[1]


@contextmanager
def _patience(question: Question) -> Iterator[None]:
    """End this process with one line if the question does not end.

    An exception from outside could leave locks behind, for which later questions would wait.
    """

    def give_up() -> None:
        asked = " && ".join(shlex.join(words) for words in question.commands)
        print(f"does not end: {question.kind}: {asked}", file=sys.__stderr__, flush=True)
        os._exit(1)

    timer = threading.Timer(PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _identity(path: Path) -> str:
    """Return what is compared of a file that a command made."""
    if path.suffix in STEADY:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if path.suffix != ".csv":
        return ""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    kept = [i for i, name in enumerate(rows[0]) if not _is_timed(name)] if rows else []
    cells = ([row[i] for i in kept if i < len(row)] for row in rows)
    return "\n".join(",".join(_MEASURED.sub("#", cell) for cell in row) for row in cells)


def _is_timed(name: str) -> bool:
    return any(part in name for part in TIMED)


def _json(path: Path, folder: Path) -> Any:
    if not path.is_file():
        return None
    return _steady_tree(json.loads(path.read_text(encoding="utf-8")), folder)


def _steady_tree(value: Any, folder: Path) -> Any:
    """Return JSON without what depends on time."""
    if isinstance(value, dict):
        return {k: _steady_tree(v, folder) for k, v in value.items() if not _is_timed(k)}
    if isinstance(value, list):
        return [_steady_tree(v, folder) for v in value]
    return _NUMBERS.sub("#", value.replace(str(folder), "")) if isinstance(value, str) else value


def _steady_text(text: str, folder: Path) -> str:
    """Return printed lines without times and without the name of the folder."""
    lines: list[str] = []
    columns: list[tuple[int, int]] = []
    is_about_times = False
    for line in text.replace(str(folder), "").splitlines():
        # A comparison lists the instances whose times differ much.
        is_about_times = line.startswith("times: ") or (is_about_times and "  " in line)
        is_unchanged = line == "no answer, bound or time has changed"
        if is_about_times or is_unchanged or _PROGRESS.fullmatch(line):
            continue
        found = [match.span() for match in _TIMED_COLUMNS.finditer(line)]
        if found and "  " in line:
            columns = found
        elif "  " in line:
            line = _without_cells(line, columns)
        else:
            # The table has ended.
            columns = []
        lines.append(_steady_line(line))
    return "\n".join(lines)


def _steady_line(line: str) -> str:
    # The stages are sorted by their times, and those that took none are left out.
    if line.startswith(("time: ", "shared ")):
        return line.split()[0] + " #"
    return _NUMBERS.sub("#", line).rstrip()


def _without_cells(line: str, columns: list[tuple[int, int]]) -> str:
    """Return a row of a table without the numbers below these parts of its first line."""
    for start, end in reversed(columns):
        for match in re.finditer(r"(?<!\S)\d+(\.\d+)?(?!\S)", line):
            if match.start() < end and match.end() > start:
                line = f"{line[: match.start()].rstrip()} # {line[match.end() :].lstrip()}"
                break
    return line
