"""Tolerated faults beside all sets of few faults: `tests.faults.guard`."""

from __future__ import annotations

from functools import partial

from tests.faults.guard import faults

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, faults)
