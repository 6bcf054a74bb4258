"""A comparison of two results files as one HTML file that needs no network."""

from __future__ import annotations

from html import escape

from bnncert.report.diff_tables import ChangeTable, headline, sections
from bnncert.report.simple_page import simple_page, simple_table
from bnncert.results.diff import Comparison

#: The most rows of a table in the page.
MOST_ROWS = 5000


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
    return simple_page(f"Changes: {title}", f"Changes between {title}", body)


def _table(section: ChangeTable) -> str:
    shown = section.rows[:MOST_ROWS]
    rest = len(section.rows) - len(shown)
    more = f"<p>{rest} more are in the file of <code>--json</code>.</p>" if rest else ""
    title = section.title[0].upper() + section.title[1:]
    return simple_table(title, section.heads, shown, loud=section.loud) + more
