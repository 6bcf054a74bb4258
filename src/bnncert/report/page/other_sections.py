"""The sections of explanations, weight faults and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import median_low

import numpy as np

from bnncert.regions.pictures import as_image, marked, shades
from bnncert.report.other_answers import (
    ShownExplanation,
    ShownFaults,
    lower_count,
    shown_counts,
    shown_explanations,
    shown_faults,
    upper_count,
)
from bnncert.report.page.details import Album, certificate_link
from bnncert.report.page.svg import WIDTH, AxisScale
from bnncert.results.rows import InputRecord, Kind, OtherAnswer
from bnncert.results.store import Recorded


def section_id(kind: Kind) -> str:
    """Return the name of the section of one kind of answers in addresses."""
    return f"kind-{kind}"


def section(kind: Kind, title: str, text: str, content: str) -> str:
    """Return the section of one kind of answers; `text` says how to read it."""
    name = section_id(kind)
    return (
        f'<section class="panel others" aria-labelledby="{name}"><h2 id="{name}" tabindex="-1">'
        f"{escape(title)}</h2><p class=sub>{escape(text)}</p>{content}</section>"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str]) -> str:
    """Return a table of cells that are HTML; the columns `numbers` are aligned to the right."""
    styles = [" class=n" if head in numbers else "" for head in heads]
    head = "".join(
        f"<th scope=col{style}>{escape(text)}</th>"
        for text, style in zip(heads, styles, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(
            f"<td{style}>{cell}</td>" for cell, style in zip(rest, styles[1:], strict=True)
        )
        lines.append(f"<tr><th scope=row>{first}</th>{cells}</tr>")
    return (
        f"<div class=wide><table class=other><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


class AnswerCells:
    """The cells about the question, the time and the certificate of the answers of one section.

    The network has a column only if the answers are about several ones.
    """

    def __init__(self, recorded: Recorded, page: Path, answers: Iterable[OtherAnswer]) -> None:
        self._recorded, self._page = recorded, page
        self._several = len({answer.model_hash for answer in answers}) > 1

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of :meth:`question`."""
        return ("input", *(("network",) if self._several else ()), "label", "region")

    def question(self, answer: OtherAnswer) -> tuple[str, ...]:
        """Return the input, without its folders, the network, the label and the region."""
        # Pages are shared with others, who should not see the folders of a machine.
        name = answer.input_name.replace("\\", "/").rpartition("/")[2]
        network = self._recorded.network(answer.model_hash).name
        cells = (name, *((network,) if self._several else ()), str(answer.label), answer.region)
        return tuple(escape(cell) for cell in cells)

    def certificate(self, answer: OtherAnswer) -> str:
        """Return a link to the certificate, or a dash."""
        if answer.certificate is None:
            return "-"
        link = certificate_link(answer.certificate, self._recorded.path, self._page)
        if not link["there"]:
            return f"{escape(link['name'])} (was not there when the page was made)"
        return f'<a href="{escape(link["href"])}">{escape(link["name"])}</a>'


#: The most characters of base64 for the pictures of explanations.
PICTURE_LIMIT = 3_000_000

_EXPLAIN_TEXT = (
    "With the kept inputs as in the image, no values of the other inputs in the region change the "
    "class. Kept inputs are orange in the picture. A set is minimal if each of its members is "
    "shown to be needed; open members are not."
)


def explanation_section(recorded: Recorded, page: Path) -> str:
    """Return the section, or nothing if the file has no explanation."""
    found = shown_explanations(recorded)
    if not found:
        return ""
    cells = AnswerCells(recorded, page, (one.answer for one in found))
    points = recorded.inputs({one.answer.input_hash for one in found})
    album = Album(PICTURE_LIMIT)
    heads = (*cells.heads, "kept inputs", "inputs kept", "set", "seconds", "certificate")
    rows = [
        (
            *cells.question(one.answer),
            _picture(recorded, one, points.get(one.answer.input_hash), album),
            escape(one.kept_text),
            escape(one.minimal_text),
            f"{one.answer.seconds:.2f}",
            cells.certificate(one.answer),
        )
        for one in found
    ]
    content = table(heads, rows, ("label", "inputs kept", "seconds"))
    return section("explain", "Explanations", _EXPLAIN_TEXT, content)


def _picture(
    recorded: Recorded, one: ShownExplanation, stored: InputRecord | None, album: Album
) -> str:
    """Return the image with its kept inputs marked, or their numbers if it is not a picture."""
    numbers = ", ".join(map(str, one.kept[:20])) + (", ..." if len(one.kept) > 20 else "")
    if stored is None or stored.point.size != one.inputs:
        return escape(numbers or "none")
    network = recorded.network(one.answer.model_hash)
    shapes = (network.input_shape, stored.shape)
    chosen = np.zeros(one.inputs)
    chosen[list(one.kept)] = 1
    image, kept = as_image(stored.point, *shapes), as_image(chosen, *shapes)
    if image is None or kept is None:
        return escape(numbers or "none")
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = float(image.min()), float(image.max())
    number = album.add(marked(shades(image, lo, hi), kept > 0))
    if number is None:
        return "not in this page"
    words = f"{one.answer.input_name.rpartition('/')[2]} with {len(one.kept)} kept inputs marked"
    return (
        f'<img class=kept src="data:image/png;base64,{album.pictures[number]}" '
        f'alt="{escape(words)}">'
    )


_FAULTS_TEXT = (
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
    return section("faults", "Weight faults", _FAULTS_TEXT, f"{_charts(recorded, found)}{content}")


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


_COUNT_TEXT = (
    "How many points of a region have another class than the label: certified bounds, which are "
    "equal if the count is exact, and an estimate from random points, which proves nothing. Long "
    "numbers and shares are rounded outwards."
)


def count_section(recorded: Recorded, page: Path) -> str:
    """Return the section, or nothing if the file has no count."""
    found = shown_counts(recorded)
    if not found:
        return ""
    cells = AnswerCells(recorded, page, (one.answer for one in found))
    numbers = ("points", "at least", "at most", "share")
    heads = (*cells.heads, *numbers, "", "estimate", "seconds", "certificate")
    rows = [
        (
            *cells.question(one.answer),
            *(upper_count(one.total), lower_count(one.lower), upper_count(one.upper)),
            escape(one.share_text),
            "exact" if one.is_exact else "open",
            escape(one.estimate_text),
            f"{one.answer.seconds:.2f}",
            cells.certificate(one.answer),
        )
        for one in found
    ]
    content = table(heads, rows, ("label", *numbers, "seconds"))
    return section("count", "Counts", _COUNT_TEXT, content)
