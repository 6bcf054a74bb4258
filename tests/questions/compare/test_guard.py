"""Comparisons beside a loop over all inputs of a grid."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.questions.compare.guard import compare


def test_comparisons_are_those_of_all_inputs() -> None:
    never_wrong(compare, occurs=["equal", "different", "unknown", "certificates"])
