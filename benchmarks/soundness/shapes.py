"""Patches, shifts, brightness and contrast beside all images: `tests.regions.image_guard`."""

from __future__ import annotations

from functools import partial

from tests.regions.image_guard import shapes

from benchmarks.soundness.guarding import guarded_case

NUMBER = 10_000

case = partial(guarded_case, shapes)
