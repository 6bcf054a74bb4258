"""What all test processes share: little that is not the tests takes their time.

One thread for each: two of them share the machine, and spinning threads cost both.  It is set
before NumPy is loaded, and the processes that tests start inherit it.  The files that the process
writes itself need not survive a loss of power: it does not wait for the disk.  What is there after
collection, some million objects, stays: the collector need not go through it again and again.
What one process compiles, the others read from numba's cache: one of them compiles at a time.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

os.fsync = lambda fd: None

if sys.platform != "win32" and "PYTEST_XDIST_WORKER" in os.environ:
    import fcntl

    from numba.core.dispatcher import Dispatcher

    class Turns:
        """A lock of all processes of a run, which the thread that has it may take again."""

        def __init__(self) -> None:
            self._thread, self._depth = threading.RLock(), 0
            self._file = os.open(__file__, os.O_RDONLY)

        def __enter__(self) -> None:
            self._thread.acquire()
            if self._depth == 0:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            self._depth += 1

        def __exit__(self, *_: object) -> None:
            self._depth -= 1
            if self._depth == 0:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._thread.release()

    turns, compile_alone = Turns(), Dispatcher.compile

    def compile_in_turn(dispatcher: Any, signature: Any) -> Any:
        with turns:
            return compile_alone(dispatcher, signature)

    Dispatcher.compile = compile_in_turn


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
