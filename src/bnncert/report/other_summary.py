"""Explanations, weight faults and counts of a results file in a few lines."""

from __future__ import annotations

from collections.abc import Sized
from statistics import median_low

from bnncert.report.other_answers import shown_counts, shown_explanations, shown_faults
from bnncert.results.store import Recorded


def other_lines(recorded: Recorded) -> list[str]:
    """Return a line for each kind of answers that the file has."""
    lines = []
    explanations = shown_explanations(recorded)
    if explanations:
        kept = [len(one.kept) for one in explanations]
        minimal = sum(one.is_minimal for one in explanations)
        lines.append(
            f"{len(kept)} explanation{_s(kept)}, {minimal} minimal; inputs kept: median "
            f"{median_low(kept)}, {min(kept)} to {max(kept)}"
        )
    faults = shown_faults(recorded)
    if faults:
        exact = sum(one.is_exact for one in faults)
        inputs = {one.answer.key for one in faults}
        lines.append(
            f"weight faults: {len(inputs)} answer{_s(inputs)} about {len(faults)} "
            f"scope{_s(faults)}, {exact} exact"
        )
    counts = shown_counts(recorded)
    if counts:
        exact = sum(one.is_exact for one in counts)
        lines.append(f"{len(counts)} count{_s(counts)} of points, {exact} exact")
    return lines


def _s(things: Sized) -> str:
    """Return the ending of a plural."""
    return "" if len(things) == 1 else "s"
