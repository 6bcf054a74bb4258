"""Numbers of tolerated faults, compared with all sets of few faults of tiny networks.

The questions and the oracle are those of `tests.faults.guard`; every certificate is checked, and changed
copies of it have to be refused or to be true.
"""

from __future__ import annotations

from tests.faults.guard import faults

from benchmarks.soundness.guarding import guarded_case
from benchmarks.soundness.part import Outcome

NUMBER = 10_000


def case(seed: int, number: int) -> Outcome:
    """Compare the answers to one random question."""
    return guarded_case(faults, seed, number)
