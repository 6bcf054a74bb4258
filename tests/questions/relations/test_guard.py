"""Monotone features and fairness beside a loop over all pairs of inputs."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.questions.relations.guard import fair, monotone


def test_monotone_is_what_all_pairs_are() -> None:
    never_wrong(monotone, occurs=["holds", "fails", "certificates"])


def test_fair_is_what_all_pairs_are() -> None:
    never_wrong(fair, occurs=["holds", "fails", "certificates"])
