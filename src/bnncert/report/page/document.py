"""The page as one file: results by radius, charts of every panel, the table of rows, details."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path, PurePath

from bnncert.model.formats.atomic import write_atomically
from bnncert.report.other_answers import other_sections, section_id
from bnncert.report.page.charts import accuracy_chart, cactus_chart, gap_charts
from bnncert.report.page.markup import Chart, wide_table
from bnncert.report.page.outcomes import first_sentences, lead_section, outcome_chart, outcome_table
from bnncert.report.page.row_data import collect_details, packed, table_columns
from bnncert.report.statistics import Panel, counts, gaps, panels
from bnncert.results.rows import NetworkRecord, OtherAnswer, Row
from bnncert.results.store import Recorded
from bnncert.version import __version__

#: The number of instances with pictures and the answers of single rivals.
MOST_DETAILS = 2000

#: So many charts of a panel stand in one row and share the width of the page.
ONE_ROW = 3

#: The parts of the script, which share one scope.
_SCRIPTS = ("elements.js", "charts.js", "table.js", "details.js", "start.js")


def write_page(recorded: Recorded, path: Path, *, details: int = MOST_DETAILS) -> None:
    """Write the page; at most `details` instances have pictures and answers of single classes."""
    write_atomically(path, page_text(recorded, path, details=details))


def page_text(recorded: Recorded, path: Path, *, details: int = MOST_DETAILS) -> str:
    """Return the page; links to certificates are relative to `path`."""
    known = panels(recorded)
    collected = collect_details(recorded, path, details)
    order = {row.rowid: k for k, row in enumerate(recorded.rows)}
    columns = table_columns(known, order, collected.inputs)
    entries = {order[rowid]: entry for rowid, entry in collected.entries.items()}
    style, script = _asset("page.css"), _script()
    title = page_title(recorded)
    note = ""
    if collected.left_out:
        note = (
            f"Pictures and margins are in this page for {len(entries)} of "
            f"{len(recorded.rows)} rows."
        )
    parts = {
        "TITLE": escape(title),
        # Only this script may run, and the page may not load anything.
        "SCRIPT_HASH": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "STYLE": style,
        "HEAD": _head(recorded, title, known),
        # Scripts need the table, also if it has no row.
        "HIDDEN": "" if recorded.rows else " hidden",
        "FIRST": "answers" if recorded.rows else section_id(recorded.others[0].kind),
        "LEAD": lead_section(known) if known else "",
        "OTHERS": other_sections(recorded, path),
        "PANELS": "".join(_panel(k, panel) for k, panel in enumerate(known, 1)),
        "NOTE": escape(note),
        "NETWORKS": _networks(recorded),
        "ROWS": packed(columns),
        "DETAILS": packed(entries),
        "PICTURES": ",".join(collected.pictures),
        "SCRIPT": script,
    }
    pieces = _asset("page.html").split("@@")
    # Every second piece is a name; inserted text is not searched for names again.
    return "".join(parts[p] if k % 2 else p for k, p in enumerate(pieces)).replace("\0", " ")


def page_title(recorded: Recorded) -> str:
    """Return the titles of the experiments; without any, the networks that were asked about."""
    if recorded.titles:
        return "; ".join(recorded.titles)
    names = [recorded.network(model_hash).name for model_hash in recorded.model_hashes]
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    about = "Robustness of" if recorded.rows else "Answers about"
    return f"{about} {', '.join(names[:3])}{more}"


def _asset(name: str) -> str:
    return files("bnncert.report.page").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """Join the parts of the script in a scope of their own, without global names."""
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _head(recorded: Recorded, title: str, known: Sequence[Panel]) -> str:
    rows: list[Row | OtherAnswer] = [*recorded.rows, *recorded.others]
    versions = sorted({r.version for r in rows})
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    days = sorted({r.finished_at[:10] for r in rows})
    written = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    first = "".join(f"<p class=first>{escape(text)}</p>" for text in first_sentences(known))
    return (
        f"<h1>{escape(title)}</h1>{first}"
        f"<p class=sub>{len(rows)} answers in {escape(recorded.path.name)}, written "
        f"{escape(written)} by bnncert {escape(', '.join(versions))}; page made {made} by "
        f"bnncert {escape(__version__)}</p>"
    )


def _networks(recorded: Recorded) -> str:
    asked = Counter(row.key.model_hash for row in recorded.rows)
    asked.update(other.model_hash for other in recorded.others)
    heads = ("name", "sizes", "zero weights", "data box", "answers", "from", "hash")
    rows = [_network_cells(recorded.network(found), count) for found, count in asked.items()]
    return (
        '<section aria-labelledby="networks"><h2 id="networks">Networks</h2>'
        f"{wide_table(heads, rows, ())}</section>"
    )


def _network_cells(network: NetworkRecord, count: int) -> list[str]:
    zeros = network.zero_fraction
    box = "-"
    if network.input_lo is not None and network.input_hi is not None:
        box = f"{network.input_lo:g} to {network.input_hi:g}"
    cells = (
        network.name,
        "-".join(map(str, network.sizes)) or "-",
        "-" if zeros is None else f"{100 * zeros:.2f} %",
        box,
        str(count),
        # The name without its folders, because pages are shared with others.
        PurePath(network.source.replace("\\", "/")).name or "-",
        network.model_hash[:12],
    )
    return [escape(cell) for cell in cells]


def _panel(number: int, panel: Panel) -> str:
    lines = counts(panel)
    charts: list[Chart] = []
    table = ""
    if lines:
        charts = [outcome_chart(panel, lines), accuracy_chart(panel, lines), cactus_chart(panel)]
        table = outcome_table(panel, lines)
    bounds = gap_charts(panel, gaps(panel))
    drawn = "".join(chart.html for chart in bounds)
    first = "".join(chart.html for chart in charts)
    if sum(bool(chart.html) for chart in [*charts, *bounds]) <= ONE_ROW:
        first, drawn = first + drawn, ""
    if drawn:
        drawn = f"<h3>Bounds</h3><div class=charts>{drawn}</div>"
    return (
        f'<section class=panel aria-labelledby="panel{number}"><h2 id="panel{number}">'
        f"{escape(panel.name)}</h2>"
        f"<p class=sub>{escape(panel.settings[:1].upper() + panel.settings[1:])}</p>"
        f"<div class=charts>{first}</div>{table}{drawn}"
        f"{_left_out([*charts, *bounds])}</section>"
    )


def _left_out(charts: Sequence[Chart]) -> str:
    """List the charts that are not drawn, and why."""
    items = "".join(
        f"<li>{escape(chart.title)}: {escape(chart.left_out)}.</li>"
        for chart in charts
        if chart.left_out
    )
    return f'<div class="left-out hint">Not drawn: <ul>{items}</ul></div>' if items else ""
