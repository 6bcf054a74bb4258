"""The answers of all methods together: an input is decided if one of them decided it.

Every method is sound, so the verdict of one holds for all.  Two opposite verdicts about the same
question cannot both be true; they are counted as contradictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bnncert.report.counts import Count, count_answers
from bnncert.report.statistics import Panel
from bnncert.results.rows import Row

#: The answers from the most to the least informative one.
_STRENGTH = ("misclassified", "not_robust", "robust", "timeout", "unknown")


@dataclass(frozen=True)
class Together:
    """The counts at one radius, and the numbers of inputs with two opposite verdicts."""

    count: Count
    contradictions: tuple[int, ...] = ()

    @property
    def falsified(self) -> int:
        """Inputs with a known counterexample; a misclassified input is one itself."""
        return self.count.not_robust + self.count.misclassified


def together(panel: Panel) -> list[Together]:
    """Return the answers of all methods to both questions, radius by radius."""
    groups: dict[float, dict[tuple[int, str, int], list[Row]]] = {}
    for row in panel.answers:
        key = row.key
        instance = (key.input_index, key.input_hash, key.label)
        groups.setdefault(key.radius, {}).setdefault(instance, []).append(row)
    return [_together(radius, list(groups[radius].values())) for radius in sorted(groups)]


def _together(radius: float, instances: Sequence[Sequence[Row]]) -> Together:
    best = [min(rows, key=lambda row: _STRENGTH.index(row.status)) for rows in instances]
    opposite = (
        rows[0].key.input_index
        for rows in instances
        if {"robust", "not_robust"} <= {row.status for row in rows}
    )
    return Together(count_answers(radius, "", best), tuple(sorted(opposite)))
