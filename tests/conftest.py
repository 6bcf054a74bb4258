"""What all test processes share: little that is not the tests takes their time.

One thread for each: two of them share the machine, and spinning threads cost both.  It is set
before NumPy is loaded, and the processes that tests start inherit it.  The files that the process
writes itself need not survive a loss of power: it does not wait for the disk.  What is there after
collection, some million objects, stays: the collector need not go through it again and again.
"""

from __future__ import annotations

import gc
import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

os.fsync = lambda fd: None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
