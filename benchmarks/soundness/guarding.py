"""The cases of the parts that ask the guards of `tests`: one random question beside brute force.

Every certificate is checked, and changed copies of it have to be refused or to be true.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from tests.guarded import Guard

from benchmarks.soundness.part import Outcome

#: Changed copies of each certificate.
MUTANTS = 4


def guarded_case(guard: Guard, seed: int, number: int) -> Outcome:
    """Ask one question of a guard."""
    rng = np.random.default_rng([seed, number])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # As in the test suite: numbers that are no numbers must not arise.
        warnings.filterwarnings("error", category=RuntimeWarning, module="bnncert")
        found = guard(rng, Path(folder), MUTANTS)
    return Outcome(found.answers, dict(found.tally), tuple(found.wrong))
