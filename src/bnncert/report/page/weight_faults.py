"""The section of weight faults: how many are tolerated in each scope, over all images."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median_low

from bnncert.report.other_answers import ShownFaults, shown_faults
from bnncert.report.page.other_tables import AnswerCells, section, table
from bnncert.report.page.svg import WIDTH, AxisScale
from bnncert.results.store import Recorded

TEXT = (
    "Certified: no set of so many faults changes the class of any input of the region. Falsified: "
    "the listed faults change it. Both are exact if falsified is certified + 1, or if all faults "
    "together are tolerated; those have no bar."
)

_BAR, _STEP, _NAMES = 16, 24, 166


def fault_section(recorded: Recorded, page: Path) -> str:
    """Return the section, or nothing if the file has no answer about faults."""
    found = shown_faults(recorded)
    if not found:
        return ""
    cells = AnswerCells(recorded, page, (one.answer for one in found))
    heads = (*cells.heads, "faults", "where", "certified", "falsified", "", "faults found")
    rows = [
        (
            *cells.question(one.answer),
            escape(one.faults),
            escape(one.scope),
            one.certified_text,
            "-" if one.falsified is None else str(one.falsified),
            one.exact_text,
            _bits(one.bits),
            f"{one.answer.seconds:.2f}",
            cells.certificate(one.answer),
        )
        for one in found
    ]
    numbers = ("label", "certified", "falsified", "seconds of the input")
    content = table((*heads, "seconds of the input", "certificate"), rows, numbers)
    return section("faults", "Weight faults", TEXT, f"{_charts(recorded, found)}{content}")


def _bits(bits: Sequence[str]) -> str:
    if not bits:
        return "-"
    if len(bits) == 1:
        return escape(bits[0])
    items = "".join(f"<li>{escape(bit)}</li>" for bit in bits)
    return f"<details><summary>{len(bits)} faults</summary><ul>{items}</ul></details>"


def _charts(recorded: Recorded, found: Sequence[ShownFaults]) -> str:
    """Return a chart for each network, region and kind of fault.

    Numbers of scopes in which all faults are tolerated would make the other bars too short to read.
    """
    groups: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for one in found:
        place = (one.answer.model_hash, one.answer.region, one.faults)
        if one.certified is not None and one.certified < one.limit:
            groups.setdefault(place, {}).setdefault(one.scope, []).append(one.certified)
    charts = []
    for (model, region, kind), scopes in groups.items():
        title = f"Certified faults: {kind}, {recorded.network(model).name}, {region}"
        charts.append(_chart(title, scopes))
    return f"<div class=charts>{''.join(charts)}</div>" if charts else ""


def _chart(title: str, scopes: dict[str, list[int]]) -> str:
    """Return a bar for each scope: up to the median, with a line from the least to the largest."""
    most = max(max(values) for values in scopes.values())
    scale = AxisScale(0, max(most, 1), _NAMES, WIDTH - 90)
    parts, y = [], 4
    for name, values in scopes.items():
        least, middle, largest = min(values), median_low(values), max(values)
        numbers = f"median {middle}, {least} to {largest} of {len(values)} inputs"
        if len(values) == 1:
            numbers = str(middle)
        short = name if len(name) <= 26 else name[:25] + "…"
        centre = y + _BAR / 2
        parts.append(
            f'<g class="bar" data-tip="{escape(f"{name}: {numbers}")}">'
            f'<text class="tick end" x="{_NAMES - 6}" y="{y + 12}">{escape(short)}</text>'
            f'<rect class="seg robust" x="{_NAMES}" y="{y}" '
            f'width="{scale(middle) - _NAMES:.1f}" height="{_BAR}"/>'
            f'<path class="zero" d="M{scale(least):.1f},{centre}H{scale(largest):.1f}"/>'
            f'<text class="tick" x="{scale(largest) + 5:.1f}" y="{y + 12}">'
            f"{_end_text(least, middle, largest)}</text></g>"
        )
        y += _STEP
    words = "Bars of the certified numbers of faults; the table below has the numbers"
    return (
        f'<figure class="faults"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {y + 4}" role="img" aria-label="{words}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _end_text(least: int, middle: int, largest: int) -> str:
    return str(middle) if least == largest else f"{middle} ({least} to {largest})"
