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
    """Return a table without rows.

    Parameters
    ----------
    left
        The columns of text; all others are numbers.
    one_line
        The columns whose cells are never wrapped.
    name
        The title of the table.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", title=name, title_justify="left")
    for title in titles:
        words = title in left
        table.add_column(title, justify="left" if words else "right", no_wrap=title in one_line)
    return table
