"""The time limit of a command counts from the start of its process, as in VNN-COMP."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

import typer

from bnncert.cli.grouping import value_source
from bnncert.deadline import Deadline

#: The start of the process on systems that do not report it: the time of this import.
_IMPORTED = time.monotonic()

#: The least time limit of a method; with it a method returns its first results at once.
LEAST_SECONDS = 1e-3


#: The time limit of a question without the option --timeout, in seconds.
DEFAULT_LIMIT = 60.0

#: The text that lifts the time limit.
NO_LIMIT = "none"


def read_limit(text: str | float) -> float:
    """Return the seconds that --timeout states; infinite for `none`."""
    if text == NO_LIMIT:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        # The parser of an option states errors in the words of typer.
        raise typer.BadParameter(
            f"timeout is {text}; expected a number of seconds > 0, or {NO_LIMIT}"
        )
    return seconds


def finite_limit(timeout: float) -> float | None:
    """Return a limit as the methods take it: None is no limit."""
    return None if math.isinf(timeout) else timeout


def limit_text(ctx: typer.Context, timeout: float, of: str = "") -> str:
    """Return the time limit in words, and how to lift it if nobody chose it."""
    if math.isinf(timeout):
        return "no time limit"
    how = f" (--timeout {NO_LIMIT} lifts it)" if is_default(ctx, "timeout") else ""
    return f"time limit {timeout:g} s{of}{how}"


def is_default(ctx: typer.Context, name: str) -> bool:
    """Whether nobody chose the value of a parameter."""
    return value_source(ctx, name) == "DEFAULT"


def remaining(limit: float) -> float | None:
    """Return the seconds left of a limit that began with the process, at least `LEAST_SECONDS`."""
    timeout = finite_limit(limit)
    Deadline(timeout)
    return None if timeout is None else max(timeout - process_age(), LEAST_SECONDS)


def process_age() -> float:
    """Return the seconds since this process began; 0 if it does not run the command line."""
    return time.monotonic() - process_start() if is_command_line() else 0.0


def process_start() -> float:
    """Return the start of this process on the clock of `time.monotonic`."""
    now = time.monotonic()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        # Field 22 of proc(5), in ticks since the machine started; field 2, the name, ends in ")".
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    # An age that contradicts the first import is wrong; clocks of containers may differ.
    return now - age if now - _IMPORTED <= age <= now - _IMPORTED + 60.0 else _IMPORTED


def is_command_line() -> bool:
    """Whether the process runs `bnncert`, and not a program that calls its functions."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return bool(spec.name == "bnncert.__main__")
    return Path(getattr(main, "__file__", None) or "").stem in ("bnncert", "bnncert-script")
