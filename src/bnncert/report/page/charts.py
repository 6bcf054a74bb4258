"""The charts of a panel: answers by radius, accuracy curves, solved instances against time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bnncert.report.counts import Count
from bnncert.report.page.svg import (
    STYLES,
    WIDTH,
    AxisScale,
    axes,
    figure,
    legend,
    line,
    marker,
    x_scale,
    y_scale,
)
from bnncert.report.statistics import SHARE_NAMES, Panel

#: The answers in the order of stacking: the field of a count (also the CSS class), and its words.
ANSWERS = (
    ("robust", "robust"),
    ("not_robust", "not robust"),
    ("undecided", "undecided"),
    ("misclassified", "misclassified"),
)

#: The largest number of points of a curve; more cannot be distinguished.
MOST_POINTS = 240

_BAR, _STEP, _NAMES = 16, 22, 136


def series_numbers(panel: Panel) -> dict[str, int]:
    """Return the style of each series, the same in all charts of a panel."""
    return {name: k % STYLES for k, name in enumerate(dict.fromkeys(panel.series))}


def outcome_chart(panel: Panel, lines: Sequence[Count]) -> str:
    """Return stacked bars, one for each radius and series."""
    parts, y, last = [], 4, None
    most = max(one.instances for one in lines)
    scale = AxisScale(0, most, _NAMES, WIDTH - 34)
    for one in lines:
        if one.radius != last:
            y += 14 if last is None else 24
            parts.append(f'<text class="radius" x="0" y="{y}">')
            parts.append(f"{escape(_radius_text(panel, one.radius))}</text>")
            y, last = y + 6, one.radius
        numbers = ", ".join(f"{getattr(one, field)} {words}" for field, words in ANSWERS)
        name = one.series if len(one.series) <= 20 else one.series[:19] + "…"
        parts.append(f'<g class="bar"><title>{escape(f"{one.series}: {numbers}")}</title>')
        parts.append(f'<text class="tick end" x="{_NAMES - 6}" y="{y + 12}">{escape(name)}</text>')
        done = 0
        for field, _ in ANSWERS:
            count = getattr(one, field)
            if not count:
                continue
            start, end = scale(done), scale(done + count)
            done += count
            parts.append(
                f'<rect class="seg {field}" data-count="{count}" x="{start:.1f}" y="{y}" '
                f'width="{end - start:.2f}" height="{_BAR}"/>'
            )
            if end - start > 7 * len(str(count)) + 8:
                # A plain background keeps the number readable on any pattern.
                wide = 7 * len(str(count)) + 6
                centre = (start + end) / 2
                parts.append(
                    f'<rect class="plate {field}" x="{centre - wide / 2:.1f}" y="{y + 2}" '
                    f'width="{wide}" height="{_BAR - 4}" rx="2"/>'
                    f'<text class="inside {field}" x="{centre:.1f}" y="{y + 12}">{count}</text>'
                )
        parts.append(
            f'<text class="tick" x="{scale(done) + 5:.1f}" y="{y + 12}">{one.instances}</text></g>'
        )
        y += _STEP
    keys = "".join(
        f'<li><svg viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">'
        f'<rect class="seg {field}" width="20" height="14"/></svg> {words}</li>'
        for field, words in ANSWERS
    )
    return (
        '<figure class="outcomes"><figcaption>Answers by radius and method</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {y + 4}" role="img" aria-label="Stacked bars of the answers; '
        f'the table below has the same numbers">{"".join(parts)}</svg>'
        f'<ul class="legend">{keys}</ul></figure>'
    )


def outcome_table(panel: Panel, lines: Sequence[Count]) -> str:
    """Return the same numbers as a table."""
    heads = ("radius", "method", "inputs", *(words for _, words in ANSWERS))
    heads += ("certified", "not falsified", "mean s", "max s")
    rows = "".join(
        f"<tr><th scope=row>{escape(_radius_text(panel, one.radius))}</th>"
        f"<td>{escape(one.series)}</td>"
        + "".join(
            f"<td class=n>{cell}</td>"
            for cell in (
                one.instances,
                *(getattr(one, field) for field, _ in ANSWERS),
                f"{100 * one.certified:.1f} %",
                f"{100 * one.not_falsified:.1f} %",
                f"{one.mean_seconds:.2f}",
                f"{one.max_seconds:.2f}",
            )
        )
        + "</tr>"
        for one in lines
    )
    head = "".join(f"<th scope=col>{text}</th>" for text in heads)
    return (
        "<details class=numbers><summary>These numbers as a table</summary><div class=wide>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def accuracy_chart(panel: Panel, lines: Sequence[Count]) -> str:
    """Return the certified share (solid) and the share that is not falsified (dashed) by radius."""
    x = x_scale(0, panel.radius_number(max(one.radius for one in lines)) or 1.0)
    y = y_scale(0, 100)
    parts = axes(x, y, f"radius ({panel.unit}, {panel.inputs})", "% of the inputs")
    items = []
    for name, number in series_numbers(panel).items():
        mine = [one for one in lines if one.series == name]
        if not mine:
            continue
        for style, field, words in (
            ("upper", "not_falsified", "not falsified"),
            ("", "certified", "certified"),
        ):
            places = [
                (x(panel.radius_number(one.radius)), y(100 * getattr(one, field))) for one in mine
            ]
            parts.append(line(places, f"s{number} {style}"))
            for one, (px, py) in zip(mine, places, strict=True):
                text = f"{name}, radius {_radius_text(panel, one.radius)}: "
                text += f"{100 * getattr(one, field):.1f} % {words} of {one.instances}"
                parts.append(marker(number, px, py, text))
        items.append((f"s{number}", name))
    key = legend([*items, ("key", "certified"), ("key upper bare", "not falsified")])
    if len({one.instances for one in lines}) > 1:
        key += "<p class=hint>Not every method and radius was asked about the same inputs.</p>"
    share = SHARE_NAMES[panel.labels].capitalize()
    words = f"{share} by radius: solid certified, dashed not falsified"
    return figure("accuracy", f"{share} against radius", words, parts, key)


def cactus_chart(panel: Panel) -> str | None:
    """Return how many instances each series decided within a time, or None if none did."""
    solved: dict[str, list[float]] = {}
    asked: dict[str, int] = {}
    for name, row in panel.rows("verify"):
        if row.status == "misclassified":
            continue
        asked[name] = asked.get(name, 0) + 1
        if row.status in ("robust", "not_robust"):
            solved.setdefault(name, []).append(row.seconds)
    if not solved:
        return None
    times = [max(t, 1e-3) for values in solved.values() for t in values]
    high = max(*times, 10 * min(times))
    x = x_scale(min(times), high, log=True)
    y = y_scale(0, max(len(v) for v in solved.values()))
    parts, items = axes(x, y, "seconds for an instance", "instances decided"), []
    for name, number in series_numbers(panel).items():
        values = sorted(solved.get(name, ()))
        if name not in asked:
            continue
        items.append((f"s{number}", f"{name}: {len(values)} of {asked[name]}"))
        if not values:
            continue
        places = []
        for k in spread(len(values)):
            at = x(max(values[k], 1e-3))
            places += [(at, y(k)), (at, y(k + 1))]
        places.append((x(high), y(len(values))))
        parts.append(line(places, f"s{number}"))
        text = f"{name}: {len(values)} decided, the slowest in {values[-1]:.3g} s"
        parts.append(marker(number, *places[-2], text))
    words = "Instances decided within a time, by method"
    return figure("cactus", "Instances decided within a time", words, parts, legend(items))


def spread(count: int) -> list[int]:
    """Return at most MOST_POINTS of `count` places, including the first and the last."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(k * (count - 1) / (MOST_POINTS - 1)) for k in range(MOST_POINTS)})


def _radius_text(panel: Panel, radius: float) -> str:
    """Return a radius with the inputs that it is about; if it is in px, in input units as well."""
    text = f"{panel.radius_text(radius)}, {panel.inputs}"
    if panel.unit == "px":
        return f"{text} (ε = {radius:.6g})"
    return text if panel.key.norm == "l0" else f"ε = {text}"
