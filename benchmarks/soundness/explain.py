"""Explanations of tiny networks, compared with all values of the free inputs.

The questions and the oracle are those of `tests.explanation.guard`; every certificate is checked, and changed
copies of it have to be refused or to be true.
"""

from __future__ import annotations

from tests.explanation.guard import explain

from benchmarks.soundness.guarding import guarded_case
from benchmarks.soundness.part import Outcome

NUMBER = 10_000


def case(seed: int, number: int) -> Outcome:
    """Compare the answers to one random question."""
    return guarded_case(explain, seed, number)
