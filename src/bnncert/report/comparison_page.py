"""A comparison of two results files as one HTML file that needs no network."""

from __future__ import annotations

from html import escape

from bnncert.batch.comparison import Comparison
from bnncert.report.comparison import ChangeTable, headline, sections

#: The most rows of a table in the page.
MOST_ROWS = 5000

STYLE = """
:root { color-scheme: light dark; --line: #ccc; --loud: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --loud: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.loud { color: var(--loud); border-left: .3rem solid var(--loud); padding-left: .7rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: Canvas; }
"""


def comparison_page(comparison: Comparison) -> str:
    """Return the page."""
    title = " and ".join(file.path.name for file in comparison.files)
    tables = sections(comparison)
    loud = [section for section in tables if section.loud]
    lines = "".join(f"<p>{escape(line)}</p>" for line in headline(comparison))
    if not loud:
        lines += "<p>There are no contradictions.</p>"
    if len(tables) == len(loud):
        lines += "<p>No answer, bound or time has changed.</p>"
    body = "".join(map(_table, loud)) + lines
    body += "".join(_table(section) for section in tables if not section.loud)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Changes: {escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>Changes between {escape(title)}</h1>{body}</body></html>\n"
    )


def _table(section: ChangeTable) -> str:
    shown = section.rows[:MOST_ROWS]
    heads = "".join(f"<th>{escape(head)}</th>" for head in section.heads)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in shown
    )
    rest = len(section.rows) - len(shown)
    more = f"<p>{rest} more are in the file of <code>--json</code>.</p>" if rest else ""
    name = ' class="loud"' if section.loud else ""
    title = section.title[0].upper() + section.title[1:]
    return (
        f'<h2{name}>{escape(title)}</h2><div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}"
    )
