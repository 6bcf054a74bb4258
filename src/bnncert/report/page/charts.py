"""The charts of a panel: accuracy by radius, decided instances by time, and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from bnncert.engine.answer import lower_text, upper_text
from bnncert.report.page.markup import (
    LEFT,
    RIGHT,
    STYLES,
    WIDTH,
    Axis,
    AxisScale,
    Chart,
    Key,
    Vertex,
    axes,
    curve,
    figure,
    legend,
    tick_text,
    x_scale,
    y_scale,
)
from bnncert.report.statistics import SHARE_NAMES, Count, Gap, Panel

#: The largest number of points of a curve; more cannot be distinguished.
MOST_POINTS = 240

#: Radii whose largest is this many times their smallest are on a logarithmic axis.
WIDE_RANGE = 8.0

#: The two shares of a chart of accuracies: style of the line, field of a count, and words.
_SHARES = (("upper", "not_falsified", "not falsified"), ("", "certified", "certified"))


def series_numbers(panel: Panel) -> dict[str, int]:
    """Return the number of each series, the same in all charts of the page.

    If two series of the panel would look alike, they are numbered in the panel alone.
    """
    names = list(dict.fromkeys(panel.series))
    known = {name: panel.numbers.get(name, len(panel.numbers)) for name in names}
    if len({number % STYLES for number in known.values()}) < len(names):
        return {name: number for number, name in enumerate(names)}
    return known


def accuracy_chart(panel: Panel, lines: Sequence[Count]) -> Chart:
    """Return the certified share and the share that is not falsified, by radius.

    Three radii or more are curves.  Of two radii nothing is known between them, so they are points.
    """
    share = SHARE_NAMES[panel.labels].capitalize()
    if panel.key.rivals != "all":
        share = f"Share {panel.certified_name}"
    title = f"{share} against radius"
    radii = sorted({one.radius for one in lines})
    if len(radii) < 2:
        return Chart(title, left_out="all answers are about one radius")
    if len({(one.certified, one.not_falsified) for one in lines}) == 1:
        one = lines[0]
        same = f"{100 * one.certified:.1f} % certified and {100 * one.not_falsified:.1f} % not"
        return Chart(title, left_out=f"every radius and method has {same} falsified")
    x = _radius_axis(panel, radii)
    y = Axis(y_scale(0, 100), "% of the inputs")
    parts, keys = axes(x, y), []
    numbers = {n: k for n, k in series_numbers(panel).items() if any(o.series == n for o in lines)}
    for place, (name, number) in enumerate(numbers.items()):
        mine = [one for one in lines if one.series == name]
        # Points of different methods at the same radius stand side by side.
        aside = 0.0 if len(radii) > 2 else 11 * (place - (len(numbers) - 1) / 2)
        if len(radii) == 2:
            parts.append(_range_bars(x.scale, y.scale, panel, mine, number, aside))
        for style, field, words in _SHARES:
            vertices = [
                Vertex(
                    x.scale(panel.radius_number(one.radius)) + aside,
                    y.scale(100 * getattr(one, field)),
                    f"{name}, {panel.radius_text(one.radius)}: {100 * getattr(one, field):.1f} % "
                    f"{words} of {one.instances}",
                )
                for one in mine
            ]
            parts.append(curve(number, vertices, style, drawn=len(radii) > 2, markers=True))
        keys.append(Key(name, number))
    words = "solid certified, dashed not falsified"
    kinds = [Key("certified", style="key"), Key("not falsified", style="key upper")]
    if len(radii) == 2:
        words = "filled certified, hollow not falsified"
        kinds = []
    after = legend([*keys, *kinds])
    if len(radii) == 2:
        after += (
            "<p class=hint>Filled: certified. Hollow: not falsified. The true value lies between "
            "them.</p>"
        )
    if len({one.instances for one in lines}) > 1:
        after += "<p class=hint>Not every method and radius was asked about the same inputs.</p>"
    return Chart(title, figure("accuracy", title, f"{title}: {words}", parts, after))


def _radius_axis(panel: Panel, radii: Sequence[float]) -> Axis:
    """Return the axis of the radii, with their own values as ticks."""
    numbers = [panel.radius_number(radius) for radius in radii]
    low, high = numbers[0], numbers[-1]
    room = 0.12 if len(radii) > 2 else 0.5
    if low > 0 and high >= WIDE_RANGE * low:
        reach = (high / low) ** room
        scale = x_scale(low / reach, high * reach, log=True)
    else:
        reach = room * (high - low)
        scale = x_scale(low - reach, high + reach)
    ticks = [(number, tick_text(number)) for number in numbers]
    return Axis(scale, f"radius ({panel.unit}, {panel.inputs})", given=ticks)


def _range_bars(
    x: AxisScale, y: AxisScale, panel: Panel, lines: Sequence[Count], series: int, aside: float
) -> str:
    """Return a thin bar at each radius from the certified to the not falsified share."""
    bars = "".join(
        f'<path class="range" d="M{x(panel.radius_number(one.radius)) + aside:.1f},'
        f'{y(100 * one.certified):.1f}V{y(100 * one.not_falsified):.1f}"/>'
        for one in lines
    )
    return f'<g class="s{series % STYLES}" data-series="{series}">{bars}</g>'


def cactus_chart(panel: Panel) -> Chart:
    """Return how many instances each series decided within a time."""
    title = "Instances decided within a time"
    solved: dict[str, list[float]] = {}
    asked: dict[str, int] = {}
    for name, row in panel.rows("verify"):
        if row.status == "misclassified":
            continue
        asked[name] = asked.get(name, 0) + 1
        if row.status in ("robust", "not_robust"):
            solved.setdefault(name, []).append(row.seconds)
    return decided_chart(title, solved, asked, series_numbers(panel))


def decided_chart(
    title: str,
    solved: Mapping[str, Sequence[float]],
    asked: Mapping[str, int],
    numbers: Mapping[str, int],
    *,
    buttons: bool = True,
) -> Chart:
    """Draw how many instances were decided within a time, from the seconds of each series.

    `asked` has the series to draw and their instances; `numbers` gives them their styles.
    """
    decided = sum(map(len, solved.values()))
    if decided < 2:
        return Chart(title, left_out=f"{'no' if decided == 0 else 'one'} instance was decided")
    times = [max(t, 1e-3) for values in solved.values() for t in values]
    high = max(*times, 10 * min(times))
    x = Axis(x_scale(min(times), high, log=True), "seconds for an instance")
    most = max(len(v) for v in solved.values())
    y = Axis(y_scale(0, most), "instances decided", whole=True)
    parts, keys = axes(x, y), []
    for name, number in numbers.items():
        if name not in asked:
            continue
        values = sorted(solved.get(name, ()))
        keys.append(Key(f"{name}: {len(values)} of {asked[name]}", number))
        if values:
            vertices = _steps(name, values, x.scale, y.scale)
            parts.append(curve(number, vertices))
    words = f"{title}: {', '.join(key.text for key in keys)}"
    return Chart(title, figure("cactus", title, words, parts, legend(keys, buttons=buttons)))


def _steps(name: str, values: Sequence[float], x: AxisScale, y: AxisScale) -> list[Vertex]:
    """Return a step at the time of each decided instance."""
    vertices = []
    for k in spread(len(values)):
        at = x(max(values[k], 1e-3))
        tip = f"{name}: {k + 1} decided within {values[k]:.3g} s each"
        vertices += [Vertex(at, y(k)), Vertex(at, y(k + 1), tip)]
    return [*vertices, Vertex(x(x.high), y(len(values)))]


def spread(count: int) -> list[int]:
    """Return at most MOST_POINTS of `count` places, including the first and the last."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(k * (count - 1) / (MOST_POINTS - 1)) for k in range(MOST_POINTS)})


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
    y = Axis(y_scale(low - room, high + room), "bound of the margin")
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
        x_scale(1, count, room=6),
        f"instances, sorted by the bound of {gap.sorted_by}",
        whole=True,
    )
    parts = axes(x, y)
    zero = f"{y.scale(0):.1f}"
    parts.append(f'<path class="zero" d="M{LEFT},{zero}H{WIDTH - RIGHT}"/>')
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
    after = legend(keys) + (f'<ul class="gains">{gains}</ul>' if gains else "")
    if gap.question == "verify":
        after += "<p class=hint>From verify, which stops improving once the sign is known.</p>"
    return Chart(title, figure("gap", title, words, parts, after))


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
        found.append(curve(series, vertices, style, markers=len(values) <= MOST_MARKERS))
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
