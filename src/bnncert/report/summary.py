"""Tables over many answers: a run radius by radius, and a search for the radius."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.table import Table

from bnncert.batch.instance import Instance
from bnncert.batch.rows import Row, label_source
from bnncert.radius import RadiusResult
from bnncert.report.counts import COUNT_TITLES, Count, count_answers, count_cells
from bnncert.report.plain_table import plain_table
from bnncert.report.statistics import CERTIFIED
from bnncert.smallest import SmallestResult


def summarise(rows: Iterable[Row]) -> list[Count]:
    """Count the answers radius by radius, smallest radius first."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key.radius, []).append(row)
    return [count_answers(radius, "", groups[radius]) for radius in sorted(groups)]


def summary_table(answered: Iterable[tuple[Instance, Row]]) -> Table:
    """Return one line for each radius; the share is an accuracy only if labels were given."""
    pairs = list(answered)
    texts = {row.key.radius: (instance.radius, instance.inputs) for instance, row in pairs}
    rows = [row for _, row in pairs]
    share = CERTIFIED[label_source(rows)]
    titles = ("radius", "inputs", *COUNT_TITLES, "mean s", "max s", share)
    table = plain_table(*titles, left=("inputs",))
    for one in summarise(rows):
        table.add_row(
            *texts[one.radius],
            *count_cells(one),
            f"{one.mean_seconds:.2f}",
            f"{one.max_seconds:.2f}",
            f"{100 * one.certified:.1f} %",
        )
    return table


def radius_table(result: RadiusResult) -> Table:
    """Return the table of a search, which has one line."""
    table = plain_table("certified radius", "falsified radius", "gap", "verify calls", "seconds")
    table.add_row(
        _exact(result.lower),
        _exact(result.upper),
        f"{result.gap:.3g}" if math.isfinite(result.gap) else "-",
        str(result.calls),
        f"{result.seconds:.2f}",
    )
    return table


def smallest_table(result: SmallestResult) -> Table:
    """Return the table of a search for the smallest perturbation, which has one line."""
    table = plain_table("minimum", "certified", "falsified", "verify calls", "seconds")
    text = result.counts.text
    table.add_row(
        *(text(count) for count in (result.minimum, result.certified, result.falsified)),
        str(len(result.probes)),
        f"{result.seconds:.2f}",
    )
    return table


def _exact(value: float) -> str:
    """Return all digits: a rounded radius could exceed the certified one."""
    return repr(value) if math.isfinite(value) else "-"
