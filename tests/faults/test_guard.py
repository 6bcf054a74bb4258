"""Tolerated faults beside a loop over all sets of few faults."""

from __future__ import annotations

from tests.faults.guard import faults
from tests.guarded import never_wrong


def test_no_number_of_faults_is_wrong() -> None:
    never_wrong(faults, occurs=["exact", "certificates"])
