"""Explanations beside all values of the free inputs: `tests.questions.explain.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.explain.guard import explain

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, explain)
