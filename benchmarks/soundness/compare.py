"""Two networks beside their classes at all inputs: `tests.equivalence.guard`."""

from __future__ import annotations

from functools import partial

from tests.equivalence.guard import compare

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, compare)
