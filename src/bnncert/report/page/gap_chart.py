"""Bounds of all instances at one radius: the upper bound, and the lower bound of each method."""

from __future__ import annotations

from html import escape

from bnncert.report.page import svg
from bnncert.report.page.charts import series_numbers, spread
from bnncert.report.statistics import Gap, Panel

#: More instances than this are drawn as lines only.
MOST_MARKERS = 40


def gap_chart(panel: Panel, gap: Gap) -> str:
    """Return the curves, with the gain of the reference method below them."""
    count = len(gap.images)
    curves: list[tuple[str, int | None, tuple[float | None, ...]]] = [
        (name, number, gap.lower[name])
        for name, number in series_numbers(panel).items()
        if name in gap.lower
    ]
    if any(v is not None for v in gap.upper):
        curves.append((f"upper bound ({gap.upper_name})", None, gap.upper))
    values = [v for _, _, curve in curves for v in curve if v is not None]
    low, high = min(*values, 0.0), max(*values, 0.0)
    room = 0.04 * (high - low) or 1.0
    x = svg.x_scale(1, max(count, 2), room=6)
    y = svg.y_scale(low - room, high + room)
    parts = svg.axes(x, y, "instances, sorted by upper bound", "bound of the margin")
    parts.append(f'<path class="zero" d="M{svg.LEFT},{y(0):.1f}H{svg.WIDTH - svg.RIGHT}"/>')
    items = []
    for name, number, curve in curves:
        style = "ub bare" if number is None else f"s{number}"
        items.append((style, name))
        for run in _runs(curve):
            thin = [run[place] for place in spread(len(run))]
            parts.append(svg.line([(x(k + 1), y(v)) for k, v in thin], style))
        if number is not None and count <= MOST_MARKERS:
            for k, v in enumerate(curve):
                if v is not None:
                    text = f"{name}, image {gap.images[k]}: at least {v:.4g}"
                    parts.append(svg.marker(number, x(k + 1), y(v), text))
    title = f"Bounds at radius {panel.radius_text(gap.radius)}, {panel.inputs}"
    words = f"{title}: {count} instances, {', '.join(name for name, _, _ in curves)}"
    gains = "".join(
        f"<li>{escape(one.reference)} closes <b>{100 * one.share:.1f} %</b> of the gap of "
        f"{escape(one.other)} (mean of {one.instances})</li>"
        for one in gap.improvements
    )
    after = svg.legend(items) + (f'<ul class="gains">{gains}</ul>' if gains else "")
    if gap.question == "verify":
        after += "<p class=hint>From verify, which stops improving once the sign is known.</p>"
    return svg.figure("gap", title, words, parts, after)


def _runs(curve: tuple[float | None, ...]) -> list[list[tuple[int, float]]]:
    """Split a curve at missing bounds, so that no line is drawn across them."""
    runs: list[list[tuple[int, float]]] = [[]]
    for k, value in enumerate(curve):
        if value is not None:
            runs[-1].append((k, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
