"""Tables over many answers: a campaign radius by radius, and a search for the radius."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from bnncert.batch.store import LabelSource, Row, label_source
from bnncert.radius import RadiusResult

#: Titles of the column with the share of robust inputs.
CERTIFIED: dict[LabelSource, str] = {
    "given": "certified accuracy",
    "own": "certified agreement",
    "unknown": "certified share",
}


@dataclass(frozen=True)
class RadiusSummary:
    """The answers at one radius; `robust` of `instances` is the certified share.

    That is the certified accuracy if the labels were given, and else only how often the network
    keeps its own answer.
    """

    radius: float
    instances: int
    misclassified: int
    robust: int
    not_robust: int
    undecided: int
    mean_seconds: float
    max_seconds: float

    @property
    def certified(self) -> float:
        """The share of all inputs that are classified as their label throughout the ball."""
        return self.robust / self.instances


def summarise(rows: Iterable[Row]) -> list[RadiusSummary]:
    """Return one summary for each radius, smallest first."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key.radius, []).append(row)
    return [_summary(radius, groups[radius]) for radius in sorted(groups)]


def _summary(radius: float, rows: Sequence[Row]) -> RadiusSummary:
    words = [row.status for row in rows]
    seconds = [row.seconds for row in rows]
    return RadiusSummary(
        radius=radius,
        instances=len(rows),
        misclassified=words.count("misclassified"),
        robust=words.count("robust"),
        not_robust=words.count("not_robust"),
        undecided=words.count("unknown") + words.count("timeout"),
        mean_seconds=math.fsum(seconds) / len(rows),
        max_seconds=max(seconds),
    )


def summary_table(rows: Iterable[Row]) -> Table:
    """Return one line for each radius; only where labels were given it speaks of accuracy."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = (
        *("radius", "instances", "misclassified", "robust", "not robust", "undecided"),
        *("mean s", "max s", CERTIFIED[row_labels(rows)]),
    )
    for title in titles:
        table.add_column(title, justify="right")
    for one in summarise(rows):
        table.add_row(
            f"{one.radius:.9g}",
            *map(str, (one.instances, one.misclassified, one.robust)),
            *map(str, (one.not_robust, one.undecided)),
            f"{one.mean_seconds:.2f}",
            f"{one.max_seconds:.2f}",
            f"{100 * one.certified:.1f} %",
        )
    return table


def row_labels(rows: Iterable[Row]) -> LabelSource:
    """Return where the labels of rows come from."""
    return label_source((row.labels, row.key.label, row.predicted) for row in rows)


def radius_table(result: RadiusResult) -> Table:
    """Return the one line of a search."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("certified radius", "falsified radius", "gap", "verify calls", "seconds"):
        table.add_column(title, justify="right")
    table.add_row(
        _exact(result.lower),
        _exact(result.upper),
        f"{result.gap:.3g}" if math.isfinite(result.gap) else "-",
        str(result.calls),
        f"{result.seconds:.2f}",
    )
    return table


def _exact(value: float) -> str:
    """Return all digits: a rounded radius would claim what was not shown."""
    return repr(value) if math.isfinite(value) else "-"
