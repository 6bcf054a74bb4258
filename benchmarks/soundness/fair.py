"""Individual fairness beside all pairs of inputs: `tests.questions.relations.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.relations.guard import fair

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, fair)
