"""Tolerated faults beside a loop over all sets of few faults."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.questions.faults.guard import faults


def test_no_number_of_faults_is_wrong() -> None:
    never_wrong(faults, occurs=["exact", "certificates"])
