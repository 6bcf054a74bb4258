"""Tables over many answers: runs, experiments, and searches for a radius."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.table import Table

from bnncert.engine.answer import lower_text
from bnncert.questions.radius.radius_answer import Probe, RadiusResult, SmallestResult
from bnncert.regions.radii import RadiusUnit
from bnncert.report.plain_table import plain_table
from bnncert.report.statistics import (
    CERTIFIED,
    COUNT_TITLES,
    Count,
    count_answers,
    count_cells,
    mean,
)
from bnncert.results.instance import Instance, InstanceGroup
from bnncert.results.rows import Row, label_source
from bnncert.results.runner import duration


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


def radius_table(result: RadiusResult, unit: RadiusUnit) -> Table:
    """Return the table of a search, which has one line."""
    titles = ("certified radius", "falsified radius", "gap", "verify calls", "seconds")
    gap = f"{result.gap / unit.size:.3g}{unit.name}" if math.isfinite(result.gap) else "-"
    cells = (*radius_texts(result, unit), gap, str(result.calls), f"{result.seconds:.2f}")
    return plain_table(*titles, rows=[cells])


def probe_table(probes: Sequence[Probe], text: Callable[[float], str]) -> Table:
    """Return the verifications of a search in their order; `text` writes a radius."""
    titles = ("radius", "method", "answer", "seconds")
    rows = (
        (text(p.radius), p.method, p.status.replace("_", " "), f"{p.seconds:.2f}") for p in probes
    )
    return plain_table(*titles, left=("method", "answer"), rows=rows)


def smallest_table(result: SmallestResult) -> Table:
    """Return the table of a search for the smallest perturbation, which has one line."""
    sides = map(result.counts.text, (result.minimum, result.certified, result.falsified))
    cells = (*sides, str(len(result.probes)), f"{result.seconds:.2f}")
    titles = ("minimum", "certified", "falsified", "verify calls", "seconds")
    return plain_table(*titles, rows=[cells])


def radius_texts(result: RadiusResult, unit: RadiusUnit) -> tuple[str, str]:
    """Return the certified and the falsified radius; a rounded one keeps its meaning."""
    if not unit.name:
        return _exact(result.lower), _exact(result.upper)
    return unit.below(result.lower), unit.above(result.upper)


def _exact(value: float) -> str:
    """Return all digits: a rounded radius could exceed the certified one."""
    return repr(value) if math.isfinite(value) else "-"


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
