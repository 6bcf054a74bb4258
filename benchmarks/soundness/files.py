"""Broken files of every format: each is refused in one line or read, in little time and memory.

The files are random changes of small valid ones: bytes, tokens, and the insides of archives with
the checksums that belong to them.  They are read by the functions that the commands call.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from tests.fuzzing.corpus import formats
from tests.fuzzing.running import read_broken

from benchmarks.soundness.part import Outcome

NUMBER = 20_000

#: Broken files of one case, which one process reads.
FILES = 60


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bnncert-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def case(seed: int, number: int) -> Outcome:
    """Read some broken files of each format in turn."""
    names = list(formats(_folder()))
    first = seed * 10**9 + number * FILES
    files = [(names[k % len(names)], k) for k in range(first, first + FILES)]
    tally = read_broken(files, _folder())
    return Outcome(
        checked=sum(tally.counts.values()),
        tally=tally.counts,
        wrong=tuple(tally.wrong),
        largest={"seconds for one file": tally.seconds, "GB of one process": tally.gigabytes},
    )
