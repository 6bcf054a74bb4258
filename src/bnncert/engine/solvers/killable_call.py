"""Calls of a function in a process of its own, which is killed at the time limit.

Some solvers check the time limit too rarely: one iteration on a large program takes minutes, and
the setup has no limit.  A thread cannot be killed, but a process can.  The process exits when its
parent exits: on Linux by a signal of the kernel, elsewhere by a timer at the limit.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bnncert.deadline import Deadline
from bnncert.engine.processes import answer_on_stdout, call_command
from bnncert.errors import BnncertError

#: Seconds after the limit at which a process without an answer is killed.
GRACE = 0.2

#: The option of Linux's prctl(2) for the signal that is sent when the parent ends.
_PR_SET_PDEATHSIG = 1


def call_apart(function: Callable[..., Any], arguments: tuple[Any, ...], deadline: Deadline) -> Any:
    """Return `function(*arguments)` from another process, or None if the time limit is reached.

    The function must be picklable, which means that it is defined at the top level of a module.
    """
    left = deadline.remaining()
    if left <= 0:
        return None
    wait = left + GRACE if left < float("inf") else None
    request = pickle.dumps((wait, os.getpid(), function, arguments))
    process = subprocess.Popen(
        call_command(__name__, "serve"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Pickling a large program takes time, too.
        answer, _ = process.communicate(
            request, None if wait is None else max(deadline.remaining() + GRACE, 0.0)
        )
    except subprocess.TimeoutExpired:
        return None
    finally:
        # This is also reached after Ctrl-C.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    if process.returncode != 0 or not answer:
        return None
    value = pickle.loads(answer)
    if isinstance(value, BnncertError):
        raise value
    return value


def serve() -> None:
    """Answer one request on standard output."""
    answer_on_stdout(_requested)


def _requested() -> Any:
    wait, parent, function, arguments = pickle.load(sys.stdin.buffer)
    _end_with(parent, wait)
    try:
        return function(*arguments)
    except BnncertError as error:
        return error


def _end_with(parent: int, wait: float | None) -> None:
    """End this process when its parent exits or stops waiting."""
    if wait is not None and hasattr(signal, "setitimer"):
        # Without a handler the signal ends the process, even inside a library.
        signal.setitimer(signal.ITIMER_REAL, wait)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
