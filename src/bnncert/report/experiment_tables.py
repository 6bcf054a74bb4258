"""Tables of an experiment: the plan, and the answers, one line for each kind of instance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.table import Table

from bnncert.engine.rounded_bounds import lower_text
from bnncert.report.counts import COUNT_TITLES, count_answers, count_cells, mean
from bnncert.report.plain_table import plain_table
from bnncert.results.instance import Instance, InstanceGroup
from bnncert.results.rows import Row
from bnncert.results.runner import duration


def _table(*titles: str) -> Table:
    titles = ("network", "question", "norm", "radius", "inputs", "method", *titles)
    words = ("network", "question", "norm", "inputs", "method")
    return plain_table(*titles, left=words, one_line=titles)


def _names(kind: InstanceGroup) -> tuple[str, ...]:
    return kind.network, kind.question, kind.norm, kind.radius, kind.inputs, kind.method


def plan_table(
    planned: Mapping[InstanceGroup, int], answered: Mapping[InstanceGroup, int]
) -> Table:
    """Return the plan: how many instances of each kind there are, and how many are answered."""
    table = _table("instances", "answered", "limit", "at most")
    for kind, count in planned.items():
        most = kind.most_seconds(count)
        table.add_row(
            *_names(kind),
            str(count),
            str(answered.get(kind, 0)),
            "-" if kind.timeout is None else f"{kind.timeout:g} s",
            duration(most) if math.isfinite(most) else "-",
        )
    return table


def experiment_table(rows: Iterable[tuple[Instance, Row]]) -> Table:
    """Return counts, mean lower bound (of those that have one) and times of each kind."""
    kinds: dict[InstanceGroup, list[Row]] = {}
    for instance, row in rows:
        kinds.setdefault(instance.group, []).append(row)
    table = _table(*COUNT_TITLES, "mean bound", "mean s", "max s")
    for kind, members in kinds.items():
        count = count_answers(members[0].key.radius, kind.method, members)
        bound = mean(row.lower for row in members if row.lower is not None)
        table.add_row(
            *_names(kind),
            *count_cells(count),
            "-" if bound is None else lower_text(bound),
            *(f"{count.mean_seconds:.2f}", f"{count.max_seconds:.2f}"),
        )
    return table
