"""Worker processes that ignore Ctrl-C and exit when their parent process exits.

A terminal sends Ctrl-C to all processes of a group.  Only the parent process handles it.  Each
worker holds one end of a connection, its lifeline, and exits when the other end is closed, which
also happens when the parent process is killed.
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
    """Block Ctrl-C inside the block; processes that are started in it inherit the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise Python starts the resource tracker with the first process and unblocks Ctrl-C then.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_worker(lifeline: Connection) -> None:
    """Ignore Ctrl-C in this process, and exit when the other end of the lifeline is closed."""
    # This is also for platforms that cannot block signals, and for processes started by this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait_for_end() -> None:
        # Nothing is sent on the connection: this returns when the other end is closed.
        try:
            lifeline.poll(None)
        finally:
            os._exit(1)

    threading.Thread(target=wait_for_end, daemon=True).start()
