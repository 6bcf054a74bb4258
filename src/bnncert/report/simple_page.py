"""HTML files of headings, sentences and tables that need no script and no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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


def simple_page(title: str, heading: str, body: str) -> str:
    """Make a page that needs no other file; `body` is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(heading)}</h1>{body}</body></html>\n"
    )


def simple_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, loud: bool = False
) -> str:
    """Make a table under its title; a loud one is red."""
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    name = ' class="loud"' if loud else ""
    return (
        f'<h2{name}>{escape(title)}</h2><div class="wide"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
