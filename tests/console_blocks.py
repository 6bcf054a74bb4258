"""The console blocks of README.md and docs/: run the commands, compare what they print.

A block that is fenced as ``console`` has lines ``$ COMMAND`` (continued by a backslash), each
followed by what the command prints.  A line ``...`` stands for any number of lines.  Times, the
sizes of compressed files and the margins of counterexamples are not compared.
The blocks of one page run in the order of the page, in one folder that contains the repository's
``src`` and ``docs``.  After a change of what the program prints,

    python -m tests.console_blocks README.md docs/bound.md

runs the commands of these pages and replaces what is shown under each command.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
ELISION = "..."
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Headings of table columns that hold times, or what an attack reaches in its share of the time.
TIME_COLUMNS = frozenset({"seconds", "mean s", "max s", "upper bound"})

#: The same for `auto`, where it depends on the clock which engine is the first to decide a rival.
AUTO_COLUMNS = frozenset({"lower bound", "margin", "rival", "decided by"})


@dataclass(frozen=True)
class Step:
    """One command as it is written on the page, and the lines that are shown under it."""

    command: str
    shown: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The command split as a shell splits it."""
        return shlex.split(self.command.replace("\\\n", " "))

    @property
    def by_auto(self) -> bool:
        """Whether the command answers by the method `auto`."""
        return "--method" not in self.words and "bound" not in self.words[:2]


def pages() -> list[Path]:
    """Return the pages with console blocks; docs/training.md needs PyTorch and has its own test."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [p for p in found if p.name != "training.md" and BLOCK.search(p.read_text("utf-8"))]


def steps(block: str) -> list[Step]:
    """Split the text of a block into commands and what is shown under each."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            while line.endswith("\\"):
                line += "\n" + next(lines)
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return [Step(command, tuple(shown)) for command, shown in found]


def masked(lines: Sequence[str], *, by_auto: bool = False) -> list[str]:
    """Return the lines with times replaced and white space evened out."""
    result: list[str] = []
    headings = TIME_COLUMNS | AUTO_COLUMNS if by_auto else TIME_COLUMNS
    columns: set[int] = set()
    width = 0
    for line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        if TIME_COLUMNS & set(cells):
            columns = {k for k, cell in enumerate(cells) if cell in headings}
            width = len(cells)
        elif len(cells) == 1:
            columns, width = set(), 0
        elif len(cells) == width:
            cells = ["TIME" if k in columns else cell for k, cell in enumerate(cells)]
        elif columns:
            # A row with empty cells: only its form tells which number is a time.
            cells = [re.sub(r"^\d+\.\d{2,3}$", "TIME", cell) for cell in cells]
        text = re.sub(r"\b\d+(\.\d+)? s\b", "TIME", "  ".join(cells))
        # The counterexample that an attack finds depends on its share of the time.
        text = re.sub(r"\bmargin -[\d.]+(?=, replayed)", "margin BELOW ZERO", text)
        if by_auto:
            text = re.sub(r"\bmargin (at least|>=) [\d.]+", "margin AT LEAST", text)
            text = re.sub(r"^shared  .*", "shared", text)
        # How a proof was found, and so its size, depends on the clock.
        text = re.sub(r"\b\d+ clauses?, \d+ lea(f|ves)\b", "CLAUSES", text)
        # The size of a compressed file depends on the version of zlib.
        result.append(re.sub(r"\b\d+ bytes\b", "SIZE", text))
    return result


def agrees(shown: Sequence[str], printed: Sequence[str], *, by_auto: bool = False) -> bool:
    """Whether printed lines match the lines shown, of which ``...`` matches any number."""
    lines = masked(shown, by_auto=by_auto)
    parts = ["(?:.*\n)*?" if line == ELISION else re.escape(line) + "\n" for line in lines]
    text = "".join(line + "\n" for line in masked(printed, by_auto=by_auto))
    return re.fullmatch("".join(parts), text) is not None


def difference(step: Step, printed: Sequence[str]) -> str:
    """Return the command with a comparison of what is shown and what was printed."""
    before, after = (masked(side, by_auto=step.by_auto) for side in (step.shown, printed))
    lines = difflib.unified_diff(before, after, "shown", "printed", lineterm="")
    return "\n".join([f"$ {step.command}", *lines])


def run(words: Sequence[str]) -> list[str]:
    """Run one command in this process and return the lines that it prints."""
    if words[0] == "make" and words[1:] == ["demo"]:
        words = ["bnncert", "demo"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        if words[0] == "bnncert":
            _bnncert(words)
        elif words[0] == "sqlite3":
            with contextlib.closing(sqlite3.connect(words[1])) as file:
                for row in file.execute(words[2]):
                    print(*("" if value is None else value for value in row), sep="|")
        elif words[0] == "cat":
            print(Path(words[1]).read_text("utf-8"), end="")
        else:
            raise ValueError(f"console blocks cannot run {words[0]!r}")
    return [line.rstrip() for line in text.getvalue().rstrip().splitlines()]


def _bnncert(words: Sequence[str]) -> None:
    from bnncert.cli import program as cli
    from bnncert.cli import progress

    # Progress is not shown, because it depends on the speed of the machine.
    silent = mock.patch.object(progress, "LINE_SECONDS", 600.0)
    with silent, mock.patch.object(sys, "argv", list(words)), contextlib.suppress(SystemExit):
        cli.main()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Work in a fresh folder that contains what the commands on the pages name."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for linked in ("src", "docs"):
            (Path(name) / linked).symlink_to(ROOT / linked)
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def rewrite(page: Path) -> None:
    """Run the page's commands and replace what is shown; shown parts with elisions stay."""

    def replaced(match: re.Match[str]) -> str:
        lines: list[str] = []
        for step in steps(match[1]):
            printed = run(step.words)
            same = agrees(step.shown, printed, by_auto=step.by_auto)
            kept = same or ELISION in step.shown
            lines += [f"$ {step.command}", *(step.shown if kept else printed)]
            if kept and not same:
                print(difference(step, printed))
        return "```console\n" + "".join(line + "\n" for line in lines) + "```"

    text = page.read_text("utf-8")
    with folder():
        text = BLOCK.sub(replaced, text)
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument).resolve())
