"""The layout of all tables for the terminal: no lines, bold titles, numbers on the right."""

from __future__ import annotations

from collections.abc import Collection

from rich.table import Table


def plain_table(
    *titles: str,
    left: Collection[str] = (),
    one_line: Collection[str] = (),
    name: str | None = None,
) -> Table:
    """Return a table without rows and with the title `name`.

    The columns `left` contain text, all others numbers; cells of `one_line` are never wrapped.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", title=name, title_justify="left")
    for title in titles:
        words = title in left
        table.add_column(title, justify="left" if words else "right", no_wrap=title in one_line)
    return table
