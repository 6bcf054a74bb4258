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
    (compare, 200, "equal, different, unknown, certificates"),
    (count, 200, "all, some, none, certificates"),
    (explain, 200, "some kept, none kept, no class, certificates"),
    (faults, 200, "exact, certificates"),
    (fair, 200, "holds, fails, certificates"),
    (monotone, 200, "holds, fails, certificates"),
    (radius, 200, "none, some"),
    (smallest, 200, "none, some, certificates"),
]


@pytest.mark.parametrize(
    ("guard", "examples", "occurs"), GUARDS, ids=[g.__name__ for g, *_ in GUARDS]
)
def test_no_answer_is_wrong(guard: Guard, examples: int, occurs: str) -> None:
    never_wrong(guard, examples, occurs=occurs.split(", "))
