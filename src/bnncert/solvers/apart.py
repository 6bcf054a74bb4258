"""A function called in a process of its own, which is killed at the time limit.

Some solvers check the time limit too rarely: one iteration on a large program takes minutes, and
the setup has no limit at all.  A thread cannot be killed, but a process can.  The process exits
when its parent exits: on Linux by a signal of the kernel, elsewhere at the limit, by a timer.
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
from bnncert.errors import BnncertError

#: Seconds after the limit at which a process without an answer is killed.
GRACE = 0.2

#: Of Linux's prctl(2): the signal to get when the parent ends.
_PR_SET_PDEATHSIG = 1

#: What the process runs.  Its arguments are the search path of this one.
_CHILD = (
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "import sys\nsys.path[:] = sys.argv[1:]\n"
    "from bnncert.solvers.apart import serve\nserve()"
)


def call_apart(function: Callable[..., Any], arguments: tuple[Any, ...], deadline: Deadline) -> Any:
    """Return `function(*arguments)` from another process; None if there is no answer in time.

    The function must be one that can be pickled: from the top level of a module.
    """
    left = deadline.remaining()
    if left <= 0:
        return None
    wait = left + GRACE if left < float("inf") else None
    request = pickle.dumps((wait, os.getpid(), function, arguments))
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Pickling a large program took time as well.
        answer, _ = process.communicate(
            request, None if wait is None else max(deadline.remaining() + GRACE, 0.0)
        )
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also after Ctrl-C.
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
    """Answer one request on standard output, and end."""
    out = os.fdopen(os.dup(1), "wb")
    # What libraries print must not get into the answer.
    os.dup2(2, 1)
    wait, parent, function, arguments = pickle.load(sys.stdin.buffer)
    _end_with(parent, wait)
    try:
        answer = function(*arguments)
    except BnncertError as error:
        answer = error
    pickle.dump(answer, out)
    out.flush()
    # At once: a solver's threads may still be at work, and C++ aborts when it finds them.
    os._exit(0)


def _end_with(parent: int, wait: float | None) -> None:
    """End this process with its parent, and when nobody waits any longer."""
    if wait is not None and hasattr(signal, "setitimer"):
        # Without a handler the signal ends the process, whatever it is busy with.
        signal.setitimer(signal.ITIMER_REAL, wait)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
