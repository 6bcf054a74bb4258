"""Counts of answers, which all tables, charts and files use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bnncert.results.rows import Row

#: The titles of the columns of numbers.
COUNT_TITLES = ("instances", "misclassified", "robust", "not robust", "undecided")


@dataclass(frozen=True)
class Count:
    """The numbers of answers of one series at one radius, and the times.

    A misclassified input is an instance, but no method runs for it.  The mean and the maximum of
    the seconds are therefore those of the other instances, and 0 if there are none.
    """

    radius: float
    series: str
    instances: int
    misclassified: int
    robust: int
    not_robust: int
    undecided: int
    mean_seconds: float
    max_seconds: float

    @property
    def certified(self) -> float:
        """Share of all inputs that are proved to be classified as their label."""
        return self.robust / self.instances

    @property
    def not_falsified(self) -> float:
        """Share of all inputs without a known counterexample: an upper bound of the accuracy."""
        return 1 - (self.not_robust + self.misclassified) / self.instances


def count_answers(radius: float, series: str, rows: Iterable[Row]) -> Count:
    """Count the answers of the rows of one series (a method with its limits) at one radius."""
    rows = list(rows)
    statuses = [row.status for row in rows]
    seconds = [row.seconds for row in rows if row.status != "misclassified"]
    return Count(
        radius=radius,
        series=series,
        instances=len(rows),
        misclassified=statuses.count("misclassified"),
        robust=statuses.count("robust"),
        not_robust=statuses.count("not_robust"),
        undecided=statuses.count("unknown") + statuses.count("timeout"),
        mean_seconds=mean(seconds) or 0.0,
        max_seconds=max(seconds, default=0.0),
    )


def count_cells(count: Count) -> tuple[str, ...]:
    """Return the numbers of answers as the cells of a table, under `COUNT_TITLES`."""
    return tuple(str(getattr(count, title.replace(" ", "_"))) for title in COUNT_TITLES)


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of some values, or None if there are no values."""
    known = list(values)
    return math.fsum(known) / len(known) if known else None
