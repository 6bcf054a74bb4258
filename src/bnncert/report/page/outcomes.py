"""The answers by radius: in a sentence, all methods together, and each as bars and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bnncert.regions.pictures import pixel_inputs
from bnncert.regions.radii import COUNTED, SHAPES
from bnncert.report.page.markup import WIDTH, AxisScale, Chart, figure, wide_table
from bnncert.report.statistics import Count, Panel, Together, together

#: More radii are not listed; the last one of a longer list is.
MOST_RADII = 4

#: More panels have no sentences of their own, because nobody would read so many.
MOST_SENTENCES = 4


def first_sentences(known: Sequence[Panel]) -> list[str]:
    """Say of each panel how many inputs are proved, can be changed, and are open.

    If there are several panels, a sentence begins with the name of its own.
    """
    if len(known) == 1:
        return [_sentence(known[0])]
    return [f"{panel.name}: {_lowered(_sentence(panel))}" for panel in known[:MOST_SENTENCES]]


def _sentence(panel: Panel) -> str:
    lines = together(panel)
    # Radii that were asked about other inputs cannot share the number of inputs.
    lines = [one for one in lines if one.count.instances == lines[0].count.instances]
    if len(lines) > MOST_RADII:
        lines = [*lines[: MOST_RADII - 1], lines[-1]]
    first, last = lines[0].count, lines[-1].count
    noun = "image" if pixel_inputs(panel.network.input_shape) is not None else "input"
    aim = "class" if panel.key.rivals == "all" else f"lead over {panel.rival_names}"
    whose = "its" if first.robust == 1 else "their"
    text = (
        f"Of {_number(first.instances, noun)}, {first.robust} {_are(first.robust)} proved to keep "
        f"{whose} {aim} {_within(panel, lines[0])}"
    )
    more = [f"{one.count.robust} {_within(panel, one)}" for one in lines[1:]]
    rest = [f"{last.not_robust} can be changed"]
    rest.append(f"{last.undecided} {_are(last.undecided)} undecided")
    if last.misclassified:
        rest.append(f"{last.misclassified} {_are(last.misclassified)} misclassified already")
    if not more:
        return f"{text}, {', '.join(rest)}."
    return f"{_listed([text, *more])}; {_within(panel, lines[-1])}, {_listed(rest)}."


def _within(panel: Panel, one: Together) -> str:
    """Name the change that a radius allows."""
    norm, radius = panel.key.norm, panel.radius_text(one.count.radius)
    if norm == "l0":
        return f"if at most {radius} change{'s' if one.count.radius == 1 else ''}"
    if norm in SHAPES:
        return f"under {norm} up to {radius}"
    return f"within {radius}" + ("" if norm == "linf" else f" ({panel.norm_name})")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + f" and {texts[-1]}" if len(texts) > 1 else texts[0]


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


#: The answers in the order of stacking: the field of a count (also the CSS class), and its words.
ANSWERS = (
    ("robust", "robust"),
    ("undecided", "undecided"),
    ("not_robust", "not robust"),
    ("misclassified", "misclassified"),
)

_BAR, _STEP, _NAMES = 18, 24, 136


def outcome_chart(panel: Panel, lines: Sequence[Count]) -> Chart:
    """Draw a stacked bar of the answers for each radius and series."""
    title = "Answers by radius and method"
    if len({one.series for one in lines}) == 1:
        return Chart(title, left_out=f"only {lines[0].series} was asked, see the table above")
    parts, y, last = [], 4, None
    most = max(one.instances for one in lines)
    scale = AxisScale(0, most, _NAMES, WIDTH - 34)
    for one in lines:
        if one.radius != last:
            y += 14 if last is None else 26
            parts.append(f'<text class="radius" x="0" y="{y}">')
            parts.append(f"{escape(full_radius_text(panel, one.radius))}</text>")
            y, last = y + 6, one.radius
        numbers = ", ".join(f"{getattr(one, field)} {words}" for field, words in ANSWERS)
        name = one.series if len(one.series) <= 20 else one.series[:19] + "…"
        tip = f"{one.series}, {panel.radius_text(one.radius)}: {numbers} of {one.instances}"
        parts.append(f'<g class="bar" data-tip="{escape(tip)}">')
        parts.append(f'<text class="tick end" x="{_NAMES - 6}" y="{y + 13}">{escape(name)}</text>')
        parts.append(segments(one, scale, y, _BAR))
        parts.append(
            f'<text class="tick" x="{scale(one.instances) + 5:.1f}" y="{y + 13}">'
            f"{one.instances}</text></g>"
        )
        y += _STEP
    words = "Stacked bars of the answers; the table below has the same numbers"
    return Chart(title, figure("outcomes", title, words, parts, answer_legend(), y + 4))


def segments(one: Count, scale: AxisScale, y: float, height: float, *, numbers: bool = True) -> str:
    """Draw the segments of one bar, with their numbers where these fit."""
    parts, done = [], 0
    for field, _ in ANSWERS:
        count = getattr(one, field)
        if not count:
            continue
        start, end = scale(done), scale(done + count)
        done += count
        counted = f' data-count="{count}"' if numbers else ""
        parts.append(
            f'<rect class="seg {field}"{counted} x="{start:.1f}" y="{y}" '
            f'width="{end - start:.2f}" height="{height}"/>'
        )
        wide = 7 * len(str(count)) + 7
        if numbers and end - start > wide + 3:
            # A plate of the page's colour keeps the number readable on any pattern.
            centre = (start + end) / 2
            parts.append(
                f'<rect class="plate" x="{centre - wide / 2:.1f}" y="{y + 2}" width="{wide}" '
                f'height="{height - 4}" rx="3"/>'
                f'<text class="inside" x="{centre:.1f}" y="{y + height / 2 + 4}">{count}</text>'
            )
    return "".join(parts)


def answer_legend() -> str:
    """Explain the patterns of the answers."""
    keys = "".join(
        f'<li><svg viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">'
        f'<rect class="seg {field}" width="20" height="14"/></svg> {words}</li>'
        for field, words in ANSWERS
    )
    return f'<ul class="legend">{keys}</ul>'


def outcome_table(panel: Panel, lines: Sequence[Count]) -> str:
    """Show the same numbers as a table, for readers who do not see the chart."""
    numbers = ("inputs", *(words for _, words in ANSWERS))
    numbers += ("certified", "not falsified", "mean s", "max s")
    rows = [
        (
            escape(full_radius_text(panel, one.radius)),
            escape(one.series),
            one.instances,
            *(getattr(one, field) for field, _ in ANSWERS),
            f"{100 * one.certified:.1f} %",
            f"{100 * one.not_falsified:.1f} %",
            f"{one.mean_seconds:.2f}",
            f"{one.max_seconds:.2f}",
        )
        for one in lines
    ]
    table = wide_table(("radius", "method", *numbers), rows, numbers)
    return f"<details class=numbers><summary>These numbers as a table</summary>{table}</details>"


def full_radius_text(panel: Panel, radius: float) -> str:
    """Return a radius with the inputs that it is about; if it is in px, in input units as well."""
    text = f"{panel.radius_text(radius)}, {panel.inputs}"
    if panel.unit == "px":
        return f"{text} (ε = {radius:.6g})"
    return text if panel.key.norm in COUNTED else f"ε = {text}"


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
    body = "".join(_shares(panel, one) for one in lines)
    return (
        f'<div class=wide><table class="shares"><caption><a href="#panel{number}">'
        f"{escape(panel.name)}</a><span class=sub> by {escape(by)}</span></caption>"
        f'<thead><tr>{head}<th scope=col class="track">of all inputs</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>{_warnings(panel, lines)}"
    )


def _shares(panel: Panel, one: Together) -> str:
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
    scale = AxisScale(0, count.instances, 0, _BAR_WIDTH)
    return (
        f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" width="{_BAR_WIDTH}" '
        f'height="{_BAR_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{segments(count, scale, 0, _BAR_HEIGHT, numbers=False)}</svg>"
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
