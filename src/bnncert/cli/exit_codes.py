"""How the program ends: exit codes, and Ctrl-C while modules are imported.

The codes are the same for all questions, so that scripts can use them; `docs/questions.md` has them
as a table.

Ctrl-C while modules are imported ends the process with one line.  The handler does not raise an
exception, because the import of a library might catch it.  Elsewhere an exception may meet a
destructor or a callback of the garbage collector, where Python prints it and goes on: it is then
raised again.  This module is therefore imported before anything else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bnncert.engine.answer import Answer


class ExitCode(IntEnum):
    """How a command ended; lists and batches, which have no verdict, end with 0."""

    HOLDS = 0
    FAILS = 1
    BAD_INPUT = 2
    UNDECIDED = 3


#: The codes in one line, for `--help`.
CODES = "0 it holds, 1 it does not, 3 undecided; 2 bad input, 130 interrupted"


def exit_code(*answers: Answer) -> ExitCode:
    """Translate the status of an answer; of several, those that fail count before open ones."""
    if any(answer.status in answer.FAILS for answer in answers):
        return ExitCode.FAILS
    return ExitCode.HOLDS if all(answers) else ExitCode.UNDECIDED


#: The exit code after Ctrl-C.
INTERRUPTED = 130

#: Seconds after which a lost Ctrl-C is raised again: long enough for a destructor to end.
AGAIN = 0.02


def listens_to_interrupts() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt; a process in the background may ignore it."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


@contextmanager
def leaving_on_interrupt() -> Iterator[None]:
    """End the process on Ctrl-C inside the block; for use around imports."""
    if not listens_to_interrupts():
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: write one line and end the process."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"bnncert: interrupted\n")
    os._exit(INTERRUPTED)


def raise_lost_interrupts() -> None:
    """Raise Ctrl-C again if a destructor or a callback has lost it."""
    usual = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            again = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            usual(lost)

    sys.unraisablehook = hook
