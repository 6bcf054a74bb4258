"""HTML files of headings, sentences, charts and tables that need no script and no network.

They have the style of the report page, so that all pages of a campaign look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from bnncert.report.page.svg import wide_table

#: What the report page has no use for: a heading that warns, and cells of long words.
STYLE = """
.loud { color: var(--not_robust); border-left: 5px solid var(--not_robust); padding-left: 0.7rem; }
.wide td, .wide th { vertical-align: baseline; }
.wide td.long, .wide tbody th { white-space: normal; font-weight: normal; min-width: 8rem; }
.wide tbody tr { border-bottom: 1px solid var(--rule); }
"""


def simple_page(title: str, heading: str, body: str) -> str:
    """Make a page that needs no other file; `body` is HTML."""
    style = files("bnncert.report.page").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><h1>{escape(heading)}</h1><main>{body}</main></body></html>\n"
    )


def simple_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    loud: bool = False,
    numbers: Sequence[str] = (),
    long: Sequence[str] = (),
) -> str:
    """Make a table under its title; a loud one is red.

    The columns `numbers` stand on the right, and the columns `long` are broken into lines.
    """
    cells = [[escape(cell) for cell in row] for row in rows]
    name = ' class="loud"' if loud else ""
    return f"<h2{name}>{escape(title)}</h2>{wide_table(heads, cells, numbers, long=long)}"


def without_equal(
    heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]], str]:
    """Take the columns that say the same in all of several rows out of a table, into a sentence.

    The first column stays, because it names the row.
    """
    columns = list(zip(*rows, strict=True))
    same = [len(rows) > 1 and len(set(column)) == 1 for column in columns]
    same[0] = False
    kept = [k for k, equal in enumerate(same) if not equal]
    said = [
        f"{heads[k]} {columns[k][0]}"
        for k, equal in enumerate(same)
        if equal and columns[k][0] not in ("", "-")
    ]
    text = f"The same in all rows: {', '.join(said)}." if said else ""
    return [heads[k] for k in kept], [[row[k] for k in kept] for row in rows], text
