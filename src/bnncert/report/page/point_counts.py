"""The section of counts: how many points of a region have another class."""

from __future__ import annotations

from html import escape
from pathlib import Path

from bnncert.report.other_answers import lower_count, shown_counts, upper_count
from bnncert.report.page.other_tables import AnswerCells, section, table
from bnncert.results.store import Recorded

TEXT = (
    "How many points of a region have another class than the label: certified bounds, which are "
    "equal if the count is exact, and an estimate from random points, which proves nothing. Long "
    "numbers and shares are rounded outwards."
)


def count_section(recorded: Recorded, page: Path) -> str:
    """Return the section, or nothing if the file has no count."""
    found = shown_counts(recorded)
    if not found:
        return ""
    cells = AnswerCells(recorded, page, (one.answer for one in found))
    numbers = ("points", "at least", "at most", "share")
    heads = (*cells.heads, *numbers, "", "estimate", "seconds", "certificate")
    rows = [
        (
            *cells.question(one.answer),
            *(upper_count(one.total), lower_count(one.lower), upper_count(one.upper)),
            escape(one.share_text),
            "exact" if one.is_exact else "open",
            escape(one.estimate_text),
            f"{one.answer.seconds:.2f}",
            cells.certificate(one.answer),
        )
        for one in found
    ]
    content = table(heads, rows, ("label", *numbers, "seconds"))
    return section("count", "Counts", TEXT, content)
