"""Tables of an experiment: the plan, and what came out, one line for each kind of instance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table

from bnncert.batch.estimate import duration
from bnncert.batch.planning import Group, Job, group_of
from bnncert.batch.store import Row
from bnncert.report.tables import number


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        words = title in ("network", "question", "norm", "method")
        table.add_column(title, justify="left" if words else "right", no_wrap=True)
    return table


def plan_table(kinds: Sequence[Group], answered: dict[Group, int]) -> Table:
    """Return the plan; `answered` counts what the results file has (kinds without a count)."""
    titles = ["network", "question", "norm", "radius", "method", "instances", "answered", "limit"]
    table = _table([*titles, "at most"])
    for kind in kinds:
        table.add_row(
            *(kind.network, kind.question, kind.norm, kind.radius, kind.method),
            str(kind.instances),
            str(answered.get(replace(kind, instances=0), 0)),
            "-" if kind.timeout is None else f"{kind.timeout:g} s",
            duration(kind.most_seconds) if math.isfinite(kind.most_seconds) else "-",
        )
    return table


def experiment_table(rows: Sequence[tuple[Job, Row]]) -> Table:
    """Return counts, mean lower bound (of those that have one) and times of each kind."""
    kinds: dict[Group, list[Row]] = {}
    for job, row in rows:
        kinds.setdefault(group_of(job), []).append(row)
    titles = ["network", "question", "norm", "radius", "method", "instances", "misclassified"]
    table = _table([*titles, "robust", "not robust", "undecided", "mean bound", "mean s", "max s"])
    for kind, members in kinds.items():
        words = [row.status for row in members]
        seconds = [row.seconds for row in members]
        bounds = [row.lower for row in members if row.lower is not None]
        table.add_row(
            *(kind.network, kind.question, kind.norm, kind.radius, kind.method),
            *(str(len(members)), str(words.count("misclassified"))),
            *(str(words.count("robust")), str(words.count("not_robust"))),
            str(words.count("unknown") + words.count("timeout")),
            number(math.fsum(bounds) / len(bounds)) if bounds else "-",
            f"{math.fsum(seconds) / len(seconds):.2f}",
            f"{max(seconds):.2f}",
        )
    return table
