"""One thread for each test process: two of them share the machine, and spinning threads cost both.

It is set before NumPy is loaded, and the processes that tests start inherit it.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
