"""Commands on a pseudo-terminal, and the screen that their output leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cli.diamond import environment

#: The control sequences that rich writes: erase a line, move the cursor, colours, cursor on or off.
_CONTROL = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])")


@dataclass(frozen=True)
class Shown:
    """The exit code, everything that was written, and the lines that are on the screen at last."""

    code: int
    raw: str
    lines: list[str]


def on_terminal(
    *arguments: str | Path, cwd: Path, columns: int = 120, python: str = "", out: int | None = None
) -> Shown:
    """Run the command line, or Python source, with a terminal for input, output and errors.

    `out` is the descriptor of a file for the standard output instead.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    first = ["-c", python] if python else ["-m", "bnncert"]
    hidden = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
    variables = {k: v for k, v in environment().items() if k not in hidden}
    process = subprocess.Popen(
        [sys.executable, *first, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs if out is None else out,
        stderr=theirs,
        cwd=cwd,
        env={**variables, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    parts, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        try:
            part = os.read(ours, 65536)
        except OSError:
            # Linux reports the end of a terminal as an error.
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    code = process.wait(timeout=10)
    raw = b"".join(parts).decode("utf-8", "replace")
    return Shown(code, raw, screen(raw, columns))


def screen(text: str, columns: int) -> list[str]:
    """Return the lines that a terminal of this width shows after a text, without scrolling."""
    lines: list[list[str]] = [[]]
    row = column = 0
    place = 0
    while place < len(text):
        found = _CONTROL.match(text, place)
        if found:
            place = found.end()
            count = int(found[2].split(";")[0] or "1") if found[3] in "ABCDK" else 1
            if found[3] == "A":
                row = max(0, row - count)
            elif found[3] == "K" and found[2] in ("", "0"):
                del lines[row][column:]
            elif found[3] == "K":
                lines[row] = []
            continue
        letter = text[place]
        place += 1
        if letter == "\n":
            row += 1
        elif letter == "\r":
            column = 0
        else:
            if column == columns:
                row, column = row + 1, 0
            while len(lines) <= row:
                lines.append([])
            line = lines[row]
            line.extend(" " * (column + 1 - len(line)))
            line[column] = letter
            column += 1
        while len(lines) <= row:
            lines.append([])
    return ["".join(line).rstrip() for line in lines]
