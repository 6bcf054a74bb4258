"""Tables of short texts, for ``print`` and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class TextTable:
    """A line above, columns with a head each, and lines below.

    `left` is the number of columns, from the first, whose cells are aligned to the left.
    """

    above: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[str] = ()
    left: int = 1

    def __str__(self) -> str:
        """Write the table as lines of text."""
        widths = [max(map(len, column)) for column in zip(self.heads, *self.rows, strict=True)]
        lines = [self.above]
        for row in (self.heads, *self.rows):
            cells = [
                cell.ljust(width) if number < self.left else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        return "\n".join([*lines, *self.below])

    def html(self) -> str:
        """Write the table as HTML without styles of its own, except the alignment."""

        def line(tag: str, row: Sequence[str]) -> str:
            cells = (
                f'<{tag} style="text-align:{"left" if n < self.left else "right"}">'
                f"{escape(cell)}</{tag}>"
                for n, cell in enumerate(row)
            )
            return "<tr>" + "".join(cells) + "</tr>"

        rows = "".join(line("td", row) for row in self.rows)
        below = "".join(f"<div>{escape(text)}</div>" for text in self.below)
        head = f"<thead>{line('th', self.heads)}</thead>"
        return (
            f"<div><div><b>{escape(self.above)}</b></div>"
            f"<table>{head}<tbody>{rows}</tbody></table>{below}</div>"
        )


class PrintedAsTable:
    """An object that ``print`` and notebooks show as a table; ``repr`` is one line."""

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()

    def table(self) -> TextTable:
        """Make the table that is shown."""
        raise NotImplementedError
