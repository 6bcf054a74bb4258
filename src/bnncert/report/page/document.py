"""The page as one file: head, charts of every panel, the table of rows, and their details."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path, PurePath

from bnncert.atomic import write_atomically
from bnncert.batch.cells import STATUSES
from bnncert.batch.recorded import Recorded
from bnncert.batch.rows import NetworkRecord
from bnncert.report.page.charts import accuracy_chart, cactus_chart, outcome_chart, outcome_table
from bnncert.report.page.details import collect_details
from bnncert.report.page.gap_chart import gap_chart
from bnncert.report.page.table_data import packed, table_columns
from bnncert.report.statistics import Panel, counts, gaps, panels
from bnncert.version import __version__

#: The number of instances with pictures and the answers of single adversarial classes.
MOST_DETAILS = 2000


def write_page(recorded: Recorded, path: Path, *, details: int = MOST_DETAILS) -> None:
    """Write the page; `details` instances at most have pictures and answers of single classes."""
    write_atomically(path, page_text(recorded, path, details=details))


def page_text(recorded: Recorded, path: Path, *, details: int = MOST_DETAILS) -> str:
    """Return the page; links to certificates are relative to `path`."""
    known = panels(recorded)
    collected = collect_details(recorded, path, details)
    order = {row.rowid: k for k, row in enumerate(recorded.rows)}
    columns = table_columns(known, order)
    entries = {order[rowid]: entry for rowid, entry in collected.entries.items()}
    style, script = _asset("page.css"), _asset("page.js")
    note = ""
    if collected.left_out:
        note = (
            f"Pictures and margins are in this page for {len(entries)} of "
            f"{len(recorded.rows)} rows."
        )
    parts = {
        "TITLE": escape(f"bnncert report: {recorded.path.name}"),
        # Only this script may run, and the page may not load anything.
        "SCRIPT_HASH": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "STYLE": style,
        "HEAD": _head(recorded),
        "PANELS": "".join(_panel(k, panel) for k, panel in enumerate(known, 1)),
        "NOTE": escape(note),
        "ROWS": packed(columns),
        "DETAILS": packed(entries),
        "PICTURES": ",".join(collected.pictures),
        "SCRIPT": script,
    }
    pieces = _asset("page.html").split("@@")
    # Every second piece is a name; inserted text is not searched for names again.
    return "".join(parts[p] if k % 2 else p for k, p in enumerate(pieces)).replace("\0", " ")


def _asset(name: str) -> str:
    return files("bnncert.report.page").joinpath(name).read_text(encoding="utf-8")


def _head(recorded: Recorded) -> str:
    rows = recorded.rows
    words: Counter[str] = Counter(r.status for r in rows if r.key.question == "verify")
    bounds = sum(r.key.question == "bound" for r in rows)
    tiles = "".join(
        f'<li class="{status}"><b>{words[status]}</b> {status.replace("_", " ")}</li>'
        for status in STATUSES
        if words[status]
    )
    if bounds:
        tiles += f'<li class="bounds"><b>{bounds}</b> bounds</li>'
    versions = sorted({r.version for r in rows})
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    days = sorted({r.finished_at[:10] for r in rows})
    written = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    hashes = dict.fromkeys(r.key.model_hash for r in rows)
    shares = [(h, sum(r.key.model_hash == h for r in rows)) for h in hashes]
    return (
        f"<h1>{escape(recorded.path.name)}</h1>"
        f"<p class=sub>{len(rows)} answers, written {escape(written)} "
        f"by bnncert {escape(', '.join(versions))}; page made {made} by "
        f"bnncert {escape(__version__)}</p>"
        f"<ul class=tiles>{tiles}</ul>"
        f"<h2>Networks</h2><div class=wide><table><thead><tr><th scope=col>name"
        "<th scope=col>sizes<th scope=col>zero weights<th scope=col>data box<th scope=col>answers"
        "<th scope=col>from<th scope=col>hash</tr></thead><tbody>"
        + "".join(_network_row(recorded.network(h), count) for h, count in shares)
        + "</tbody></table></div>"
    )


def _network_row(network: NetworkRecord, count: int) -> str:
    zeros = network.zero_fraction
    box = "-"
    if network.input_lo is not None and network.input_hi is not None:
        box = f"{network.input_lo:g} to {network.input_hi:g}"
    cells: Sequence[str] = (
        "-".join(map(str, network.sizes)) or "-",
        "-" if zeros is None else f"{100 * zeros:.2f} %",
        box,
        str(count),
        # The name without its folders, because pages are shared with others.
        PurePath(network.source.replace("\\", "/")).name or "-",
        network.model_hash[:12],
    )
    row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr><th scope=row>{escape(network.name)}</th>{row}</tr>"


def _panel(number: int, panel: Panel) -> str:
    lines = counts(panel)
    charts, table = [], ""
    if lines:
        charts += [outcome_chart(panel, lines), accuracy_chart(panel, lines)]
        charts += [cactus_chart(panel) or ""]
        table = outcome_table(panel, lines)
    bounds = "".join(gap_chart(panel, gap) for gap in gaps(panel))
    if bounds:
        bounds = f"<h3>Bounds</h3><div class=charts>{bounds}</div>"
    return (
        f'<section class=panel aria-labelledby="panel{number}"><h2 id="panel{number}">'
        f"{escape(panel.network.name)}, {escape(panel.norm_name)}, {escape(panel.inputs)}</h2>"
        f"<p class=sub>{escape(panel.settings)}</p>"
        f"<div class=charts>{''.join(charts)}</div>{table}{bounds}</section>"
    )
