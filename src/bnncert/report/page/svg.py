"""Drawing: axes, lines and markers as SVG text, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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
        """Return the pixel of a number."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(value, self.low))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers inside the range."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**k for k in range(first, last + 1)]
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        step = 10 ** math.floor(math.log10(span / most))
        step *= next(m for m in (1, 2, 5, 10, 20) if span / (step * m) <= most)
        first = math.ceil(self.low / step - 1e-9)
        count = int((self.high - first * step) / step + 1e-9) + 1
        return [(first + k) * step for k in range(count)]


def x_scale(low: float, high: float, *, room: float = 0.0, log: bool = False) -> AxisScale:
    """Return the scale of a chart's x axis, with some pixels of `room` on the left."""
    return AxisScale(low, high, LEFT + room, WIDTH - RIGHT - 6, log)


def y_scale(low: float, high: float) -> AxisScale:
    """Return the scale of a chart's y axis."""
    return AxisScale(low, high, HEIGHT - BOTTOM, TOP)


def tick_text(value: float) -> str:
    """Return a short number."""
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def axes(x: AxisScale, y: AxisScale, x_name: str, y_name: str) -> list[str]:
    """Return grid, ticks and names of both axes."""
    parts = []
    for value in y.ticks(5):
        at = y(value)
        parts.append(f'<path class="grid" d="M{LEFT},{at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 5}" y="{at + 4:.1f}">')
        parts.append(f"{tick_text(value)}</text>")
    for value in x.ticks():
        at = x(value)
        parts.append(f'<path class="grid" d="M{at:.1f},{TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="tick middle" x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}">')
        parts.append(f"{tick_text(value)}</text>")
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis middle" x="{middle}" y="{HEIGHT - 6}">{escape(x_name)}</text>')
    up = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="axis middle" transform="translate(11,{up})rotate(-90)">')
    parts.append(f"{escape(y_name)}</text>")
    return parts


def line(points: Sequence[tuple[float, float]], style: str) -> str:
    """Return a line through pixels."""
    path = "L".join(f"{px:.1f},{py:.1f}" for px, py in points)
    return f'<path class="line {style}" d="M{path}"/>'


def marker(number: int, px: float, py: float, title: str) -> str:
    """Return the marker of a series at a pixel, with a text that is shown on hovering."""
    shape = _MARKERS[number % STYLES]
    return (
        f'<path class="point s{number % STYLES}" transform="translate({px:.1f},{py:.1f})" '
        f'd="{shape}"><title>{escape(title)}</title></path>'
    )


def legend(items: Sequence[tuple[str, str]]) -> str:
    """Return a list of (classes of a line, text); the marker follows the series' number."""
    parts = []
    for style, text in items:
        sample = f'<path class="line {escape(style)}" d="M1,7H27"/>'
        number = next((int(c[1:]) for c in style.split() if c[0] == "s" and c[1:].isdigit()), None)
        if number is not None and "bare" not in style.split():
            sample += f'<path class="point s{number}" transform="translate(14,7)" '
            sample += f'd="{_MARKERS[number]}"/>'
        parts.append(
            f'<li><svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">{sample}</svg>'
            f" {escape(text)}</li>"
        )
    return f'<ul class="legend">{"".join(parts)}</ul>'


def figure(kind: str, title: str, text: str, parts: Sequence[str], after: str = "") -> str:
    """Return a chart with its caption; `text` describes it in words."""
    return (
        f'<figure class="{kind}"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(text)}">'
        f"{''.join(parts)}</svg>{after}</figure>"
    )
