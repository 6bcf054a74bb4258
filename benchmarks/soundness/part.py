"""What one part of the soundness benchmark provides: cases that a seed and a number determine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes
    ----------
    checked
        How many answers the case compared with an independent one.
    tally
        Counts by kind (operators, methods, formats, ...), added up over all cases.
    wrong
        One line for each wrong answer, each unexpected exception and each violated limit.
    largest
        Named measurements of which the largest value over all cases is reported.
    """

    checked: int
    tally: dict[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    largest: dict[str, float] = field(default_factory=dict)
