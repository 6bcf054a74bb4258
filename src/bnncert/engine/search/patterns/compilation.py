"""Compilation of the pattern enumeration in a thread, while the search runs without it.

The first call of a compiled function takes seconds on a machine that has not compiled it yet, and
cannot be interrupted.  It is therefore made in a thread: the search evaluates patterns by NumPy
until the function is ready, and keeps its time limit.  Later processes load the function from
numba's cache on disk in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from bnncert.deadline import Deadline

#: Seconds for which a search waits once: enough to load the function from disk.
PATIENCE = 1.5


class Compilation:
    """A call that compiles what it uses, made once in a thread of its own."""

    def __init__(self) -> None:
        self._lock, self._ready = Lock(), Event()
        self._thread: Thread | None = None

    def is_ready(self, call: Callable[[], None], limit: Deadline) -> bool:
        """Return whether the call has returned; the first question makes it and waits for it."""
        with self._lock:
            is_first = self._thread is None
            if self._thread is None:
                # A daemon thread ends with the process, which does not wait for the compiler.
                self._thread = Thread(target=self._run, args=(call,), daemon=True)
                self._thread.start()
        if is_first:
            self._ready.wait(max(0.0, min(PATIENCE, limit.remaining() / 2)))
        return self._ready.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a call that has been made; return whether the function is ready."""
        return self._thread is not None and self._ready.wait(seconds)

    def _run(self, call: Callable[[], None]) -> None:
        # If the compiler fails, for example without a folder for its cache, NumPy is used.
        with suppress(Exception):
            call()
            self._ready.set()


#: The compiled enumerations of this process: of sets of flips, and of the patterns that a box has.
ENUMERATION, CELLS = Compilation(), Compilation()
