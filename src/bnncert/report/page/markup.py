"""Axes, lines and markers as SVG text, tables as HTML, and whole pages of both.

The style sheet colours them, so that all pages of a campaign look alike; a page needs no other
file, no script and no network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

#: Size of a chart; small, so that its text is readable at the width of a phone.
WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 10, 40

#: The number of different styles of series (see page.css).
STYLES = 8

_MARKERS = (
    "M-3.5,0a3.5,3.5 0 1 0 7,0a3.5,3.5 0 1 0 -7,0Z",
    "M-3,-3H3V3H-3Z",
    "M0,-4.2L4,3.2H-4Z",
    "M0,-4.4L4.4,0L0,4.4L-4.4,0Z",
    "M0,4.2L4,-3.2H-4Z",
    "M-3.4,-3.4L3.4,3.4M-3.4,3.4L3.4,-3.4",
    "M-4,0H4M0,-4V4",
    "M-4,-2.2H4V2.2H-4Z",
)


@dataclass(frozen=True)
class AxisScale:
    """A linear or logarithmic map of numbers to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Map a number to its pixel."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6, *, whole: bool = False) -> list[float]:
        """Return round numbers inside the range; whole ones if numbers are counts."""
        if self.log:
            return self._log_ticks()
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        step = 10 ** math.floor(math.log10(span / most))
        step *= next(m for m in (1, 2, 5, 10, 20) if span / (step * m) <= most)
        if whole:
            step = max(step, 1)
        first = math.ceil(self.low / step - 1e-9)
        count = int((self.high - first * step) / step + 1e-9) + 1
        return [(first + k) * step for k in range(count)]

    def _log_ticks(self) -> list[float]:
        """Return powers of ten, and 2 and 5 times them if the range has few of them."""
        low, high = math.log10(self.low), math.log10(self.high)
        factors = (1, 2, 5) if high - low < 2.5 else (1,)
        exact = [f * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for f in factors]
        return [t for t in exact if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]


def x_scale(low: float, high: float, *, room: float = 0.0, log: bool = False) -> AxisScale:
    """Return the scale of a chart's x axis, with some pixels of `room` on the left."""
    return AxisScale(low, high, LEFT + room, WIDTH - RIGHT - 6, log)


def y_scale(low: float, high: float) -> AxisScale:
    """Scale the y axis, which grows upwards while pixels grow downwards."""
    return AxisScale(low, high, HEIGHT - BOTTOM, TOP)


def tick_text(value: float) -> str:
    """Write a number in few characters, because ticks are close to each other."""
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


@dataclass(frozen=True)
class Axis:
    """A scale with its name and its ticks, which are round numbers unless they are given."""

    scale: AxisScale
    name: str
    whole: bool = False
    #: Values with their texts.
    given: Sequence[tuple[float, str]] = ()

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return pixels and texts of the ticks; texts that would overlap are left out."""
        if not self.given:
            found = self.scale.ticks(most, whole=self.whole)
            return [(self.scale(value), tick_text(value)) for value in found]
        kept: list[tuple[float, str]] = []
        for value, text in self.given:
            at = self.scale(value)
            if not kept or at - kept[-1][0] > 3.6 * (len(text) + len(kept[-1][1])):
                kept.append((at, text))
        return kept


def axes(x: Axis, y: Axis) -> list[str]:
    """Draw grid, ticks and names of both axes."""
    parts = []
    for at, text in y.ticks(5):
        parts.append(f'<path class="grid" d="M{LEFT},{at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 5}" y="{at + 4:.1f}">')
        parts.append(f"{escape(text)}</text>")
    for at, text in x.ticks(6):
        parts.append(f'<path class="grid" d="M{at:.1f},{TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="tick middle" x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}">')
        parts.append(f"{escape(text)}</text>")
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis middle" x="{middle}" y="{HEIGHT - 6}">{escape(x.name)}</text>')
    up = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="axis middle" transform="translate(11,{up})rotate(-90)">')
    parts.append(f"{escape(y.name)}</text>")
    return parts


@dataclass(frozen=True)
class Vertex:
    """A place of a curve in pixels, and the text that is shown when the pointer is near it."""

    x: float
    y: float
    tip: str = ""


def curve(
    series: int | None,
    vertices: Sequence[Vertex],
    style: str = "",
    *,
    drawn: bool = True,
    markers: bool = False,
) -> str:
    """Return a curve of the series with this number, or of none, such as an upper bound.

    The script of the page reads the texts from `data-tips`, one line for each vertex.  A curve that
    is not drawn as a line consists of its markers.
    """
    path = "L".join(f"{v.x:.1f},{v.y:.1f}" for v in vertices)
    tips = "\n".join(" ".join(v.tip.split()) for v in vertices)
    look = "" if series is None else f"s{series % STYLES} "
    parts = [
        f'<path class="line {look}{style}{"" if drawn else " unseen"}" d="M{path}" '
        f'data-tips="{escape(tips)}"/>'
    ]
    if markers and series is not None:
        parts += [marker(series, v.x, v.y, style) for v in vertices if v.tip]
    number = "" if series is None else f' data-series="{series}"'
    return f'<g class="curve"{number}>{"".join(parts)}</g>'


def marker(series: int, px: float, py: float, style: str = "") -> str:
    """Draw the marker of a series; its shape tells series apart without colours."""
    return (
        f'<path class="point s{series % STYLES} {style}" transform="translate({px:.1f},{py:.1f})" '
        f'd="{_MARKERS[series % STYLES]}"/>'
    )


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a series, which can be hidden and shown, or a kind of line."""

    text: str
    series: int | None = None
    style: str = ""


def legend(keys: Sequence[Key], *, buttons: bool = True) -> str:
    """Return the legend; its entries for series are buttons where the page has a script."""
    parts = []
    for key in keys:
        look = key.style if key.series is None else f"s{key.series % STYLES} {key.style}"
        sample = f'<path class="line {look}" d="M1,7H27"/>'
        if key.series is not None:
            sample += marker(key.series, 14, 7)
        text = (
            f'<svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">{sample}</svg> '
            f"{escape(key.text)}"
        )
        if key.series is not None and buttons:
            text = (
                f'<button type="button" data-series="{key.series}" aria-pressed="true">'
                f"{text}</button>"
            )
        parts.append(f"<li>{text}</li>")
    return f'<ul class="legend">{"".join(parts)}</ul>'


def wide_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Sequence[str],
    kind: str = "",
    *,
    long: Sequence[str] = (),
) -> str:
    """Return a table that scrolls; cells are HTML, and the columns `numbers` stand on the right.

    The columns `long` have texts that may be broken into lines.
    """
    styles = [
        " class=n" if head in numbers else " class=long" if head in long else "" for head in heads
    ]
    head = "".join(
        f"<th scope=col{style}>{escape(text)}</th>"
        for text, style in zip(heads, styles, strict=True)
    )
    body = "".join(
        f"<tr><th scope=row>{first}</th>"
        + "".join(f"<td{style}>{cell}</td>" for cell, style in zip(rest, styles[1:], strict=True))
        + "</tr>"
        for first, *rest in rows
    )
    table = f"<table class={kind}>" if kind else "<table>"
    return (
        f"<div class=wide>{table}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


@dataclass(frozen=True)
class Chart:
    """A chart as HTML, or the reason why it would not inform the reader."""

    title: str
    html: str = ""
    left_out: str = ""


def figure(
    kind: str, title: str, text: str, parts: Sequence[str], after: str = "", height: int = HEIGHT
) -> str:
    """Return a chart with its caption; `text` describes it in words."""
    return (
        f'<figure class="{kind}"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(text)}">'
        f"{''.join(parts)}</svg>{after}</figure>"
    )


#: What the report page has no use for: a heading that warns, and cells of long words.
STYLE = """
.loud { color: var(--not_robust); border-left: 5px solid var(--not_robust); padding-left: 0.7rem; }
.wide td, .wide th { vertical-align: baseline; }
.wide td.long, .wide tbody th { white-space: normal; font-weight: normal; min-width: 8rem; }
.wide tbody tr { border-bottom: 1px solid var(--rule); }
"""


def simple_page(title: str, heading: str, body: str) -> str:
    """Make a page that needs no other file; `body` is HTML."""
    style = files("bnncert.report.page").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><h1>{escape(heading)}</h1><main>{body}</main></body></html>\n"
    )


def simple_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    loud: bool = False,
    numbers: Sequence[str] = (),
    long: Sequence[str] = (),
) -> str:
    """Make a table under its title; a loud one is red.

    The columns `numbers` stand on the right, and the columns `long` are broken into lines.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    name = ' class="loud"' if loud else ""
    return f"<h2{name}>{escape(title)}</h2>{wide_table(heads, cells, numbers, long=long)}"


def without_equal(
    heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]], str]:
    """Take the columns that say the same in all of several rows out of a table, into a sentence.

    The first column stays, because it names the row.
    """
    columns = list(zip(*rows, strict=True))
    same = [len(rows) > 1 and len(set(column)) == 1 for column in columns]
    same[0] = False
    kept = [k for k, equal in enumerate(same) if not equal]
    said = [
        f"{heads[k]} {columns[k][0]}"
        for k, equal in enumerate(same)
        if equal and columns[k][0] not in ("", "-")
    ]
    text = f"The same in all rows: {', '.join(said)}." if said else ""
    return [heads[k] for k in kept], [[row[k] for k in kept] for row in rows], text
