"""The sections of explanations, weight faults and counts: a table for each kind.

Explanations have a picture with the kept inputs marked, and weight faults bars of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median_low

import numpy as np

from bnncert.regions.pictures import as_image, marked, shades
from bnncert.report.other_answers import SHOWN_KINDS, ShownKind, ShownLine
from bnncert.report.page.details import Album, certificate_link
from bnncert.report.page.svg import WIDTH, AxisScale, figure, wide_table
from bnncert.results.rows import InputRecord, Kind, OtherAnswer
from bnncert.results.store import Recorded

#: The most characters of base64 for the pictures of explanations.
PICTURE_LIMIT = 3_000_000

_BAR, _STEP, _NAMES = 16, 24, 166


def section_id(kind: Kind) -> str:
    """Return the name of the section of one kind of answers in addresses."""
    return f"kind-{kind}"


def other_sections(recorded: Recorded, page: Path) -> str:
    """Return a section for each kind of answers that the file has."""
    found = ((shown, shown.lines(recorded)) for shown in SHOWN_KINDS)
    return "".join(_section(recorded, page, shown, lines) for shown, lines in found if lines)


def _section(recorded: Recorded, page: Path, shown: ShownKind, lines: Sequence[ShownLine]) -> str:
    # The network has a column only if the answers are about several ones.
    several = len({line.answer.model_hash for line in lines}) > 1
    asked = ("input", *(("network",) if several else ()), "label", "region")
    heads = (*asked, *shown.heads, shown.seconds, "certificate")
    numbers = ("label", *shown.numbers, shown.seconds)
    own = [[_cell(cell) for cell in line.cells] for line in lines]
    above = ""
    if shown.kind == "explain":
        for cells, picture in zip(own, _pictures(recorded, lines), strict=True):
            cells[0] = picture or cells[0]
    elif shown.kind == "faults":
        above = _charts(recorded, lines)
    rows = []
    for line, cells in zip(lines, own, strict=True):
        answer = line.answer
        network = (recorded.network(answer.model_hash).name,) if several else ()
        question = (_input_name(answer), *network, str(answer.label), answer.region)
        seconds, proof = f"{answer.seconds:.2f}", _certificate(recorded, page, answer)
        rows.append((*map(escape, question), *cells, seconds, proof))
    name = section_id(shown.kind)
    return (
        f'<section class="panel others" aria-labelledby="{name}"><h2 id="{name}" tabindex="-1">'
        f"{escape(shown.title)}</h2><p class=sub>{escape(shown.text)}</p>{above}"
        f"{wide_table(heads, rows, numbers, 'other')}</section>"
    )


def _input_name(answer: OtherAnswer) -> str:
    """Return the input without its folders, because pages are shared with others."""
    return answer.input_name.replace("\\", "/").rpartition("/")[2]


def _cell(cell: str | Sequence[str]) -> str:
    """Return a cell as HTML; several texts are a list that can be opened."""
    if isinstance(cell, str):
        return escape(cell)
    if len(cell) < 2:
        return escape("".join(cell) or "-")
    items = "".join(f"<li>{escape(text)}</li>" for text in cell)
    return f"<details><summary>{len(cell)} faults</summary><ul>{items}</ul></details>"


def _certificate(recorded: Recorded, page: Path, answer: OtherAnswer) -> str:
    """Link the certificate, if it was there when the page was made."""
    if answer.certificate is None:
        return "-"
    link = certificate_link(answer.certificate, recorded.path, page)
    if not link["there"]:
        return f"{escape(link['name'])} (was not there when the page was made)"
    return f'<a href="{escape(link["href"])}">{escape(link["name"])}</a>'


def _pictures(recorded: Recorded, lines: Sequence[ShownLine]) -> list[str]:
    """Return the image of each explanation with its kept inputs marked, or an empty text."""
    points = recorded.inputs({line.answer.input_hash for line in lines})
    album = Album(PICTURE_LIMIT)
    return [_picture(recorded, line, points.get(line.answer.input_hash), album) for line in lines]


def _picture(recorded: Recorded, line: ShownLine, stored: InputRecord | None, album: Album) -> str:
    inputs, kept = line.facts["inputs"], [int(i) for i in line.facts["kept_inputs"].split()]
    if stored is None or stored.point.size != inputs:
        return ""
    network = recorded.network(line.answer.model_hash)
    shapes = (network.input_shape, stored.shape)
    chosen = np.zeros(inputs)
    chosen[kept] = 1
    image, places = as_image(stored.point, *shapes), as_image(chosen, *shapes)
    if image is None or places is None:
        return ""
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = float(image.min()), float(image.max())
    number = album.add(marked(shades(image, lo, hi), places > 0))
    if number is None:
        return "not in this page"
    words = f"{line.answer.input_name.rpartition('/')[2]} with {len(kept)} kept inputs marked"
    return (
        f'<img class=kept src="data:image/png;base64,{album.pictures[number]}" '
        f'alt="{escape(words)}">'
    )


def _charts(recorded: Recorded, lines: Sequence[ShownLine]) -> str:
    """Return a chart for each network, region and kind of fault.

    Numbers of scopes in which all faults are tolerated would make the other bars too short to read.
    """
    groups: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for line in lines:
        kind, scope, certified = (line.facts[name] for name in ("faults", "scope", "certified"))
        place = (line.answer.model_hash, line.answer.region, kind)
        if line.cells[2] == str(certified):
            groups.setdefault(place, {}).setdefault(scope, []).append(certified)
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
    return figure("faults", title, words, parts, height=y + 4)


def _end_text(least: int, middle: int, largest: int) -> str:
    return str(middle) if least == largest else f"{middle} ({least} to {largest})"
