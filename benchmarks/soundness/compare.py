"""Comparisons of two tiny networks, compared with their classes at all inputs of a grid.

The questions and the oracle are those of `tests.equivalence.guard`; every certificate is checked, and changed
copies of it have to be refused or to be true.
"""

from __future__ import annotations

from tests.equivalence.guard import compare

from benchmarks.soundness.guarding import guarded_case
from benchmarks.soundness.part import Outcome

NUMBER = 10_000


def case(seed: int, number: int) -> Outcome:
    """Compare the answers to one random question."""
    return guarded_case(compare, seed, number)
