"""Worker processes that Ctrl-C does not reach and that never outlive the process they work for.

A terminal sends Ctrl-C to all processes at once.  The first one decides what becomes of it: it
closes the lifelines of its workers, which also happens when it is killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back: processes started meanwhile never see it, not even while they import."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python starts it with the first process otherwise, and lets Ctrl-C through again after that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_worker(lifeline: Connection) -> None:
    """Leave Ctrl-C to the first process, and end when the other end of the lifeline is closed."""
    # Also where signals cannot be held back, and for what this process may start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait_for_it() -> None:
        # Nothing is ever sent: this returns when the other end is closed.
        try:
            lifeline.poll(None)
        finally:
            os._exit(1)

    threading.Thread(target=wait_for_it, daemon=True).start()
