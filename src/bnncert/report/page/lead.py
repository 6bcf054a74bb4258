"""The first thing on the page: for each radius, how much is certified, falsified and undecided."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bnncert.report.counts import Count
from bnncert.report.page.outcomes import ANSWERS, answer_legend
from bnncert.report.page.svg import AxisScale
from bnncert.report.statistics import Panel
from bnncert.report.together import Together, together

_BAR_WIDTH, _BAR_HEIGHT = 320, 14


def lead_section(known: Sequence[Panel]) -> str:
    """Return a table for each panel, with a line for each radius."""
    names = [panel.name for panel in known]
    tables = "".join(
        _panel_table(number, panel, panel.settings if names.count(panel.name) > 1 else "")
        for number, panel in enumerate(known, 1)
    )
    return (
        '<section class="lead" aria-labelledby="lead"><h2 id="lead">Results by radius</h2>'
        f"{tables}{answer_legend()}</section>"
    )


def _panel_table(number: int, panel: Panel, settings: str) -> str:
    """Return the table of a panel; `settings` tells it apart from others of the same name."""
    lines = together(panel)
    series = list(dict.fromkeys(panel.series))
    by = series[0] if len(series) == 1 else f"{len(series)} methods together ({', '.join(series)})"
    by += f"; {settings}" if settings else ""
    heads = ("radius", panel.certified_name, "falsified", "undecided")
    head = "".join(
        f'<th scope=col class="{style}">{escape(text)}</th>'
        for style, text in zip(("", "robust", "not_robust", "undecided"), heads, strict=True)
    )
    body = "".join(_line(panel, one) for one in lines)
    return (
        f'<div class=wide><table class="shares"><caption><a href="#panel{number}">'
        f"{escape(panel.name)}</a><span class=sub> by {escape(by)}</span></caption>"
        f'<thead><tr>{head}<th scope=col class="track">of all inputs</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>{_warnings(panel, lines)}"
    )


def _line(panel: Panel, one: Together) -> str:
    count = one.count
    wrong = ""
    if count.misclassified:
        wrong = f", {count.misclassified} misclassified"
    cells = (
        ("robust", count.robust, ""),
        ("not_robust", one.falsified, wrong),
        ("undecided", count.undecided, ""),
    )
    shares = "".join(
        f'<td class="share {name}"><b>{100 * number / count.instances:.1f} %</b> '
        f"<small>{number} of {count.instances}{more}</small></td>"
        for name, number, more in cells
    )
    return (
        f"<tr><th scope=row>{escape(panel.radius_text(count.radius))}</th>{shares}"
        f'<td class="track">{_bar(count)}</td></tr>'
    )


def _bar(count: Count) -> str:
    """Return the answers as one bar; the cells beside it have the numbers."""
    scale, done, parts = AxisScale(0, count.instances, 0, _BAR_WIDTH), 0, []
    for field, _ in ANSWERS:
        number = getattr(count, field)
        if number:
            start, end = scale(done), scale(done + number)
            done += number
            parts.append(
                f'<rect class="seg {field}" x="{start:.1f}" width="{end - start:.1f}" '
                f'height="{_BAR_HEIGHT}"/>'
            )
    return (
        f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" width="{_BAR_WIDTH}" '
        f'height="{_BAR_HEIGHT}" aria-hidden="true">{"".join(parts)}</svg>'
    )


def _warnings(panel: Panel, lines: Sequence[Together]) -> str:
    """Return a warning for every radius at which two methods contradict each other."""
    return "".join(
        f"<p class=warning>Contradiction at {escape(panel.radius_text(one.count.radius))}: "
        f"{_images(one.contradictions)} both robust and not robust. One of the answers is wrong."
        "</p>"
        for one in lines
        if one.contradictions
    )


def _images(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    if len(numbers) == 1:
        return f"image {shown} is"
    return f"images {shown}{' and others' if len(numbers) > 10 else ''} are"
