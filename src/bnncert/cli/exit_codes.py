"""The exit codes of the commands: the same for all questions, so that scripts can use them.

`docs/questions.md` has them as a table.  130 after Ctrl-C is in `interrupts`, which is imported
before anything else.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bnncert.engine.answer import Answer


class ExitCode(IntEnum):
    """How a command ended; lists and batches, which have no verdict, end with 0."""

    HOLDS = 0
    FAILS = 1
    BAD_INPUT = 2
    UNDECIDED = 3


#: The codes in one line, for `--help`.
CODES = "0 it holds, 1 it does not, 3 undecided; 2 bad input, 130 interrupted"


def exit_code(*answers: Answer) -> ExitCode:
    """Translate the status of an answer; of several, those that fail count before open ones."""
    if any(answer.status in answer.FAILS for answer in answers):
        return ExitCode.FAILS
    return ExitCode.HOLDS if all(answers) else ExitCode.UNDECIDED
