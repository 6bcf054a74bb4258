"""Bounds of all instances at one radius: the upper bound, and the lower bound of each method."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bnncert.engine.rounded_bounds import lower_text, upper_text
from bnncert.report.page import svg
from bnncert.report.page.charts import series_numbers, spread
from bnncert.report.page.svg import Axis, Chart, Key, Vertex
from bnncert.report.statistics import Gap, Panel

#: More instances than this are drawn as lines only.
MOST_MARKERS = 40

#: The curves from the best to the weakest bound, as the paper lists them; others come before them.
_ORDER = ("sdp", "sdp-tight", "lp")


def gap_charts(panel: Panel, found: Sequence[Gap]) -> list[Chart]:
    """Return a figure for each radius; all of them have the same scale, as in the paper."""
    values = [
        value
        for gap in found
        if not _without_information(gap)
        for curve in (*gap.lower.values(), gap.upper)
        for value in curve
        if value is not None
    ]
    low, high = min((*values, 0.0)), max((*values, 0.0))
    room = 0.04 * (high - low) or 1.0
    y = Axis(svg.y_scale(low - room, high + room), "bound of the margin")
    return [_gap_chart(panel, gap, y) for gap in found]


def _without_information(gap: Gap) -> str:
    """Return why the bounds do not make a figure, or an empty text."""
    if len(gap.images) < 2:
        return "there is one instance"
    if len(gap.lower) < 2 and all(v is None for v in gap.upper):
        return "one method has bounds, and there is no upper bound to compare them with"
    return ""


def _gap_chart(panel: Panel, gap: Gap, y: Axis) -> Chart:
    """Return the curves, with the gain of the reference method below them."""
    title = f"Bounds at {panel.radius_text(gap.radius)}, {panel.inputs}"
    reason = _without_information(gap)
    if reason:
        return Chart(title, left_out=reason)
    count = len(gap.images)
    x = Axis(
        svg.x_scale(1, count, room=6),
        f"instances, sorted by the bound of {gap.sorted_by}",
        whole=True,
    )
    parts = svg.axes(x, y)
    zero = f"{y.scale(0):.1f}"
    parts.append(f'<path class="zero" d="M{svg.LEFT},{zero}H{svg.WIDTH - svg.RIGHT}"/>')
    keys = []
    numbers = series_numbers(panel)
    if any(v is not None for v in gap.upper):
        name = f"upper bound ({gap.upper_name})"
        keys.append(Key(name, style="ub"))
        parts += _curves(gap, gap.upper, name, None, x, y)
    names = sorted((n for n in numbers if n in gap.lower), key=_place)
    for name in names:
        keys.append(Key(name, numbers[name]))
        parts += _curves(gap, gap.lower[name], name, numbers[name], x, y)
    words = f"{title}: {count} instances, {', '.join(key.text for key in keys)}"
    gains = "".join(
        f"<li>{escape(one.reference)} closes <b>{100 * one.share:.1f} %</b> of the gap of "
        f"{escape(one.other)} (mean of {one.instances})</li>"
        for one in gap.improvements
    )
    after = svg.legend(keys) + (f'<ul class="gains">{gains}</ul>' if gains else "")
    if gap.question == "verify":
        after += "<p class=hint>From verify, which stops improving once the sign is known.</p>"
    return Chart(title, svg.figure("gap", title, words, parts, after))


def _place(name: str) -> int:
    method = name.split(" ")[0]
    return _ORDER.index(method) if method in _ORDER else -1


def _curves(
    gap: Gap, values: Sequence[float | None], name: str, series: int | None, x: Axis, y: Axis
) -> list[str]:
    """Return the curve of one bound; no line is drawn across missing ones."""
    found, side = [], "at most" if series is None else "at least"
    text = upper_text if series is None else lower_text
    for run in _runs(values):
        vertices = [
            Vertex(x.scale(k + 1), y.scale(v), f"{name}, image {gap.images[k]}: {side} {text(v)}")
            for k, v in (run[place] for place in spread(len(run)))
        ]
        style = "ub" if series is None else ""
        found.append(svg.curve(series, vertices, style, markers=len(values) <= MOST_MARKERS))
    return found


def _runs(curve: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Split a curve at missing bounds, so that no line is drawn across them."""
    runs: list[list[tuple[int, float]]] = [[]]
    for k, value in enumerate(curve):
        if value is not None:
            runs[-1].append((k, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
