"""`bnncert diff`: what changed between two results files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.exit_codes import ExitCode
from bnncert.cli.files import json_path, refuse_unwritable, write_json
from bnncert.cli.grouping import grouped
from bnncert.cli.options import JsonOption
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically

if TYPE_CHECKING:
    from bnncert.cli.consoles import PlainConsole
    from bnncert.report.diff import ChangeTable, Comparison

#: The most rows of a table on the terminal.
MOST_ROWS = 20


@grouped
def diff(
    before: Annotated[Path, typer.Argument(help="Results file of run or experiment, called A.")],
    after: Annotated[Path, typer.Argument(help="Another one, called B.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write a page (.html).")
    ] = None,
    json_: JsonOption = None,
) -> None:
    """Show what changed between two results files; exit code 1 if they contradict each other."""
    from bnncert.cli.consoles import wide_console
    from bnncert.report.diff import compare_results, comparison_page, comparison_tree
    from bnncert.results.store import read_recorded

    refuse_unwritable(out, json_path(json_), read=(before, after))
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: the page is HTML; give it a name that ends in .html")
    comparison = compare_results(read_recorded(before), read_recorded(after))
    if out is not None:
        # Written first: the reader of the output may close the pipe.
        write_atomically(out, comparison_page(comparison))
    _show(comparison, wide_console(stderr=json_ == "-"))
    write_json(json_, comparison_tree(comparison))
    if comparison.contradictions:
        raise typer.Exit(ExitCode.FAILS)


def _show(comparison: Comparison, console: PlainConsole) -> None:
    """Print the contradictions, the summary, and the first rows of each table."""
    from bnncert.report.diff import headline, sections

    tables = sections(comparison)
    # The sections that are loud come first.
    for section in (section for section in tables if section.loud):
        _show_section(section, console)
    for line in headline(comparison):
        console.say(line)
    for section in (section for section in tables if not section.loud):
        _show_section(section, console)
    if not tables:
        console.print("no answer, bound or time has changed")


def _show_section(section: ChangeTable, console: PlainConsole) -> None:
    from bnncert.report.plain_table import plain_table

    console.say(section.title, style="bold red" if section.loud else "bold")
    shown = section.rows[:MOST_ROWS]
    console.print(plain_table(*section.heads, left=section.heads, rows=shown))
    rest = len(section.rows) - MOST_ROWS
    if rest > 0:
        console.say(f"{rest} more; -o PAGE.html and --json FILE show all")
