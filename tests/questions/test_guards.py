"""No answer to a random question, and no certificate of it, is contradicted by brute force."""

from __future__ import annotations

import pytest

from tests.guarded import Guard, never_wrong
from tests.questions.compare.guard import compare
from tests.questions.count.guard import count
from tests.questions.explain.guard import explain
from tests.questions.faults.guard import faults
from tests.questions.radius.guard import radius, smallest
from tests.questions.relations.guard import fair, monotone

#: The questions, how many are asked, and answers that occur.
GUARDS: list[tuple[Guard, int, str]] = [
    (compare, 80, "equal, different, unknown, certificates"),
    (count, 80, "all, some, none, certificates"),
    (explain, 80, "some kept, none kept, no class, certificates"),
    (faults, 80, "exact, certificates"),
    (fair, 80, "holds, fails, certificates"),
    (monotone, 80, "holds, fails, certificates"),
    (radius, 80, "none, some"),
    (smallest, 80, "none, some, certificates"),
]


@pytest.mark.parametrize(
    ("guard", "examples", "occurs"), GUARDS, ids=[g.__name__ for g, *_ in GUARDS]
)
def test_no_answer_is_wrong(guard: Guard, examples: int, occurs: str) -> None:
    never_wrong(guard, examples, occurs=occurs.split(", "))
