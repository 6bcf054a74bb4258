"""The layout of all tables for the terminal: no lines, bold titles, numbers on the right."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

#: The spaces of a column, as rich counts them: one on each side.
GAP = 2


class PlainTable(Table):
    """A table whose cells are never cut.

    On a narrow terminal the columns `optional` are left out, the first of them first, until the
    longest words of all others fit.  What does not fit without them either is wrapped.
    """

    optional: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the columns that fit."""
        sizes = {id(column): _size(column, console, options) for column in self.columns}
        kept, room = list(self.columns), options.max_width
        for title in self.optional:
            if sum(sizes[id(column)].minimum + GAP for column in kept) > room:
                kept = [column for column in kept if column.header != title]
        fitting = copy.copy(self)
        fitting.columns = _with_widths(kept, [sizes[id(column)] for column in kept], room)
        yield from Table.__rich_console__(fitting, console, options)


def _size(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """Return the widths of the longest word and of the longest line of a column."""
    sizes = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    most = max(size.maximum for size in sizes)
    return Measurement(most if column.no_wrap else max(size.minimum for size in sizes), most)


def _with_widths(
    columns: Sequence[Column], sizes: Sequence[Measurement], room: int
) -> list[Column]:
    """Return the columns with widths that leave all words whole, if they fit."""
    if sum(size.minimum + GAP for size in sizes) > room:
        return [replace(column, no_wrap=False) for column in columns]
    widths = [size.maximum for size in sizes]
    while sum(width + GAP for width in widths) > room:
        # The widest column that can be narrower, the last one of several.
        wide = [k for k, size in enumerate(sizes) if widths[k] > size.minimum]
        widths[max(wide, key=lambda k: (widths[k], k))] -= 1
    return [replace(column, width=width) for column, width in zip(columns, widths, strict=True)]


def plain_table(
    *titles: str,
    left: Collection[str] = (),
    one_line: Collection[str] = (),
    optional: Sequence[str] = (),
    name: str | None = None,
    rows: Iterable[Iterable[RenderableType]] = (),
) -> Table:
    """Return a table with the title `name`, to which more rows can be added.

    The columns `left` contain text, all others numbers; cells of `one_line` are never wrapped.  The
    columns `optional` are left out on narrow terminals, the first of them first.
    """
    table = PlainTable(
        box=None, pad_edge=False, header_style="bold", title=name, title_justify="left"
    )
    table.optional = optional
    for title in titles:
        words = title in left
        table.add_column(
            title,
            justify="left" if words else "right",
            no_wrap=title in one_line,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table
