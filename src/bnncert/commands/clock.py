"""When the time of a command begins: with its process, so that starting up counts.

VNN-COMP counts wall time from the start of the process, and so does anyone who waits for an answer.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bnncert.deadline import Deadline

#: Where the system does not tell when a process began, its time counts from this import on.
_IMPORTED = time.monotonic()

#: The least time that a method gets.  It knows then that there is none, and says what is known.
LEAST_SECONDS = 1e-3


def remaining(timeout: float | None) -> float | None:
    """Return what is left of a limit that began with the process, but never nothing."""
    Deadline(timeout)
    return None if timeout is None else max(timeout - process_age(), LEAST_SECONDS)


def process_age() -> float:
    """Return the seconds since this process began; 0 if it is not that of the command line."""
    return time.monotonic() - process_start() if is_command_line() else 0.0


def process_start() -> float:
    """Return when this process began, on the clock of `time.monotonic`."""
    now = time.monotonic()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        # Field 22 of proc(5), in ticks since the machine started; the name was field 2.
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    # A process is older than its first import; a container's clock may know nothing of that.
    return now - age if now - _IMPORTED <= age <= now - _IMPORTED + 60.0 else _IMPORTED


def is_command_line() -> bool:
    """Whether the process runs `bnncert`, and not some program that calls its functions."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return bool(spec.name == "bnncert.__main__")
    return Path(getattr(main, "__file__", None) or "").stem in ("bnncert", "bnncert-script")
