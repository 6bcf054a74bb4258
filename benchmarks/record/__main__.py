"""The commands `make`, `compare` and `show`."""

from __future__ import annotations

import argparse
import base64
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmarks.record
from benchmarks.record.answers import Question, ask, lay_out
from benchmarks.record.differences import Differences
from benchmarks.record.questions import questions

VERSION = 1

#: Seconds of the processor: answers to questions that take longer may depend on the clock.
LONGEST = 1.5


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record",
        description=benchmarks.record.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="ask random questions and store the answers")
    make.add_argument("file", type=Path)
    make.add_argument("--number", type=int, default=2000)
    make.add_argument("--seed", type=int, default=0)
    compare = commands.add_parser("compare", help="ask the same questions again")
    compare.add_argument("file", type=Path)
    compare.add_argument("--ignore", action="append", default=[], metavar="FIELD")
    compare.add_argument("--only", default="", help="questions with this text in their kind")
    compare.add_argument("--most", type=int, default=5, help="examples of each group")
    show = commands.add_parser("show", help="write the files of a question and print its answers")
    show.add_argument("file", type=Path)
    show.add_argument("number", type=int)
    show.add_argument("folder", type=Path)
    asked = parser.parse_args()
    # Tables have the width of the terminal, and BLAS with several threads may round differently.
    os.environ.update(COLUMNS="200", NO_COLOR="1", TERM="dumb")
    return {"make": _make, "compare": _compare, "show": _show}[asked.command](asked)


def _make(asked: argparse.Namespace) -> int:
    path: Path = asked.file
    began = time.monotonic()
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        header = {"version": VERSION, "seed": asked.seed, "number": asked.number}
        file.write(json.dumps(header) + "\n")
        left_out = 0
        for number, question in enumerate(questions(asked.seed, asked.number)):
            since = time.process_time()
            answers = ask(question)
            if time.process_time() - since > LONGEST:
                left_out += 1
                continue
            entry = {
                "number": number,
                "kind": question.kind,
                "files": {k: base64.b64encode(v).decode() for k, v in question.files.items()},
                "commands": question.commands,
                "answers": answers,
            }
            file.write(json.dumps(entry) + "\n")
            _tell(number + 1, asked.number, began)
    part.replace(path)
    seconds, stored = time.monotonic() - began, asked.number - left_out
    print(f"{path}: {stored} questions in {seconds:.0f} s; {left_out} take long and are left out")
    return 0


def _entries(path: Path) -> Iterator[tuple[dict[str, Any], Question]]:
    with path.open(encoding="utf-8") as file:
        header = json.loads(next(file))
        if header.get("version") != VERSION:
            sys.exit(f"{path}: version {header.get('version')} of records; expected {VERSION}")
        for line in file:
            entry = json.loads(line)
            files = {k: base64.b64decode(v) for k, v in entry["files"].items()}
            yield entry, Question(entry["kind"], files, entry["commands"])


def _compare(asked: argparse.Namespace) -> int:
    began, number = time.monotonic(), 0
    found = Differences(frozenset(asked.ignore))
    for entry, question in _entries(asked.file):
        if asked.only in question.kind:
            # What is compared has been through JSON, too.
            found.compare(entry, json.loads(json.dumps(ask(question))))
            number += 1
            _tell(number, 0, began)
    print(found.text(asked.most))
    print(f"{number} questions in {time.monotonic() - began:.0f} s: {found.number} differ")
    return 1 if found.number else 0


def _show(asked: argparse.Namespace) -> int:
    for entry, question in _entries(asked.file):
        if entry["number"] == asked.number:
            asked.folder.mkdir(parents=True, exist_ok=True)
            lay_out(question.files, asked.folder)
            for words, answer in zip(question.commands, entry["answers"], strict=True):
                print(f"$ bnncert {shlex.join(words)}")
                print(json.dumps(answer, indent=1))
            return 0
    sys.exit(f"{asked.file}: no question {asked.number}")


def _tell(done: int, number: int, began: float) -> None:
    if done % 100 == 0:
        of = f" of {number}" if number else ""
        print(f"{done}{of} questions, {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
