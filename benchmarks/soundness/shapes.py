"""Patches, shifts, brightness and contrast of tiny images, compared with brute force.

The questions and the oracle are those of `tests.regions.image_guard`; every certificate is checked, and changed
copies of it have to be refused or to be true.
"""

from __future__ import annotations

from tests.regions.image_guard import shapes

from benchmarks.soundness.guarding import guarded_case
from benchmarks.soundness.part import Outcome

NUMBER = 10_000


def case(seed: int, number: int) -> Outcome:
    """Compare the answers to one random question."""
    return guarded_case(shapes, seed, number)
