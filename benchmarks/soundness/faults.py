"""Tolerated faults beside all sets of few faults: `tests.questions.faults.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.faults.guard import faults

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, faults)
