"""Patches, shifts, brightness and contrast beside all images: `tests.questions.shapes.guard`."""

from __future__ import annotations

from functools import partial

from tests.questions.shapes.guard import shapes

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, shapes)
