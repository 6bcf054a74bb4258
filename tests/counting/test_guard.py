"""Counts beside a loop over all points."""

from __future__ import annotations

from tests.counting.guard import count
from tests.guarded import never_wrong


def test_counts_are_those_of_a_loop() -> None:
    never_wrong(count, 300, occurs=["all", "some", "none", "certificates"])
