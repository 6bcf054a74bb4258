"""Explanations, weight faults and counts as lines of tables, for the page, CSV files and ``print``.

A kind of answers states how a stored answer becomes lines; all tables are made from the lines.  In
the page, explanations have a picture with the kept inputs marked, and weight faults bars of their
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from fractions import Fraction
from html import escape
from pathlib import Path
from statistics import median_low
from typing import Any, TypeAlias

import numpy as np

from bnncert.engine.answer import lower_text, rounded, upper_text
from bnncert.errors import FormatError
from bnncert.questions.faults.faults_answer import FaultBit
from bnncert.regions.pictures import as_image, marked, shades
from bnncert.report.page.markup import WIDTH, AxisScale, figure, wide_table
from bnncert.report.page.row_data import Album, certificate_link
from bnncert.results.rows import InputRecord, Kind, OtherAnswer, finite_number
from bnncert.results.store import Recorded

#: Counts with more digits are shown in powers of ten, with this many digits.
MOST_DIGITS, SHOWN_DIGITS = 15, 4

#: The cells of a line for people (several texts are a list), and its columns in a CSV file.
_Line: TypeAlias = tuple[tuple[str | Sequence[str], ...], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class ShownLine:
    """A line of a table: cells for people under the heads of its kind, and columns of a file."""

    answer: OtherAnswer
    cells: tuple[str | Sequence[str], ...]
    facts: dict[str, Any]


@dataclass(frozen=True)
class ShownKind:
    """A kind of answers: the title, text and heads of its tables, and how its answers are read."""

    kind: Kind
    title: str
    #: How to read the table.
    text: str
    #: The name of the CSV file.
    file: str
    heads: tuple[str, ...]
    #: The heads whose cells are numbers.
    numbers: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Iterator[_Line]]
    #: Returns all lines of a file in a few words.
    summary: Callable[[Sequence[ShownLine]], str]
    #: The head of the seconds; an answer of several lines repeats its own.
    seconds: str = "seconds"

    def lines(self, recorded: Recorded) -> list[ShownLine]:
        """Return the lines of a file; an answer of another form is named by file and place."""
        found = []
        for answer in recorded.of_kind(self.kind):
            try:
                found += [ShownLine(answer, *line) for line in self.read(answer.tree)]
            except (KeyError, TypeError, ValueError, InvalidOperation) as error:
                raise FormatError(
                    f"{recorded.path}: answer {answer.rowid}: the payload is not that of "
                    f"{self.kind}"
                ) from error
        return found


def other_lines(recorded: Recorded) -> list[str]:
    """Return a sentence for each kind of answers that the file has."""
    found = ((shown, shown.lines(recorded)) for shown in SHOWN_KINDS)
    return [shown.summary(lines) for shown, lines in found if lines]


def count_text(count: Decimal, rounding: str) -> str:
    """Return a count with commas, or a long one in powers of ten and rounded in one direction."""
    if count < Decimal(10) ** MOST_DIGITS:
        return f"{int(count):,}"
    short = rounded(Fraction(count), SHOWN_DIGITS, rounding)
    return f"{short.scaleb(-short.adjusted()).normalize():f}e{short.adjusted()}"


def _explanation(tree: Mapping[str, Any]) -> Iterator[_Line]:
    kept, inputs = [_whole(i) for i in tree["kept"]], _whole(tree["inputs"])
    if inputs == 0 or any(i >= inputs for i in kept):
        raise ValueError
    open_ = len(tree["open"])
    numbers = ", ".join(map(str, kept[:20])) + (", ..." if len(kept) > 20 else "")
    share = f"{len(kept)} of {inputs} ({100 * len(kept) / inputs:.1f} %)"
    cells = (numbers or "none", share, f"sufficient, {open_} open" if open_ else "minimal")
    names = " ".join(map(str, kept))
    yield cells, {"inputs": inputs, "kept": len(kept), "open": open_, "kept_inputs": names}


def _explanations(lines: Sequence[ShownLine]) -> str:
    kept = [line.facts["kept"] for line in lines]
    minimal = sum(line.facts["open"] == 0 for line in lines)
    sizes = f"inputs kept: median {median_low(kept)}, {min(kept)} to {max(kept)}"
    return f"{_number(len(kept), 'explanation')}, {minimal} minimal; {sizes}"


def _faults(tree: Mapping[str, Any]) -> Iterator[_Line]:
    for row in tree["rows"]:
        sure, false = (
            None if row[side] is None else _whole(row[side]) for side in ("certified", "falsified")
        )
        limit, exact = _whole(row["limit"]), row["exact"] is True
        bits = [str(FaultBit(**bit)) for bit in row["bits"]]
        kind, scope = str(row["faults"]), str(row["name"])
        yield (
            (
                *(kind, scope),
                "-" if sure is None else f"all {limit}" if sure == limit else str(sure),
                "-" if false is None else str(false),
                "exact" if exact else "open",
                bits,
            ),
            {
                **{"faults": kind, "scope": scope, "certified": sure, "falsified": false},
                **{"exact": exact, "bits": "; ".join(bits)},
            },
        )


def _fault_scopes(lines: Sequence[ShownLine]) -> str:
    answers = _number(len({line.answer.key for line in lines}), "answer")
    return f"weight faults: {answers} about {_number(len(lines), 'scope')}, {_exact(lines)} exact"


def _count(tree: Mapping[str, Any]) -> Iterator[_Line]:
    total, lower, upper = (_digits(tree[name]) for name in ("total", "lower", "upper"))
    if not 0 <= lower <= upper <= total or total == 0:
        raise ValueError
    exact, estimate = lower == upper, tree["estimate"]
    below, above = (Fraction(end) / Fraction(total) for end in (lower, upper))
    shares = f"{lower_text(100 * below)} to {upper_text(100 * above)} %"
    if exact and below in (0, 1):
        shares = f"{100 * int(below)} %"
    guess: list[float | None] = [None] * 4
    shown = "-"
    if estimate is not None:
        guess = [finite_number(estimate[k]) for k in ("share", "low", "high", "confidence")]
        share, low, high, level = (100 * value for value in guess if value is not None)
        shown = f"{share:.4g} % ({lower_text(low)} to {upper_text(high)} %, level {level:g} %)"
    cells = (
        count_text(total, ROUND_CEILING),
        count_text(lower, ROUND_FLOOR),
        count_text(upper, ROUND_CEILING),
        *(shares, "exact" if exact else "open", shown),
    )
    yield (
        cells,
        {
            **{"total": str(total), "lower": str(lower), "upper": str(upper), "exact": exact},
            **{"estimate": guess[0], "estimate_low": guess[1], "estimate_high": guess[2]},
            "confidence": guess[3],
        },
    )


def _counts(lines: Sequence[ShownLine]) -> str:
    return f"{_number(len(lines), 'count')} of points, {_exact(lines)} exact"


def _exact(lines: Sequence[ShownLine]) -> int:
    return sum(line.facts["exact"] for line in lines)


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _whole(value: Any) -> int:
    """Return a whole number >= 0; raise if it is another value."""
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _digits(value: Any) -> Decimal:
    """Return a count, which is a text of digits because it may be very long."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError
    return Decimal(value)


_POINTS = ("points", "at least", "at most", "share")

#: All kinds of answers, in the order of the page.
SHOWN_KINDS = (
    ShownKind(
        "explain",
        "Explanations",
        "With the kept inputs as in the image, no values of the other inputs in the region change "
        "the class. Kept inputs are orange in the picture. A set is minimal if each of its members "
        "is shown to be needed; open members are not.",
        "explanations.csv",
        ("kept inputs", "inputs kept", "set"),
        ("inputs kept",),
        _explanation,
        _explanations,
    ),
    ShownKind(
        "faults",
        "Weight faults",
        "Certified: no set of so many faults changes the class of any input of the region. "
        "Falsified: the listed faults change it. Both are exact if falsified is certified + 1, or "
        "if all faults together are tolerated; those have no bar.",
        "faults.csv",
        ("faults", "where", "certified", "falsified", "", "faults found"),
        ("certified", "falsified"),
        _faults,
        _fault_scopes,
        seconds="seconds of the input",
    ),
    ShownKind(
        "count",
        "Counts",
        "How many points of a region have another class than the label: certified bounds, which "
        "are equal if the count is exact, and an estimate from random points, which proves "
        "nothing. Long numbers and shares are rounded outwards.",
        "counts.csv",
        (*_POINTS, "", "estimate"),
        _POINTS,
        _count,
        _counts,
    ),
)

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
