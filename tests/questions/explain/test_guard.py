"""Explanations beside a loop over all values of the free inputs."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.questions.explain.guard import explain


def test_explanations_are_those_of_all_inputs() -> None:
    never_wrong(explain, occurs=["some kept", "none kept", "no class", "certificates"])
