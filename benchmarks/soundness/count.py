"""Numbers of changed points beside a loop over all points: `tests.questions.count.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.count.guard import count

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, count)
