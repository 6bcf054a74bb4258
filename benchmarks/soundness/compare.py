"""Two networks beside their classes at all inputs: `tests.questions.compare.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.compare.guard import compare

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, compare)
