"""Counts beside a loop over all points."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.questions.count.guard import count


def test_counts_are_those_of_a_loop() -> None:
    never_wrong(count, 300, occurs=["all", "some", "none", "certificates"])
