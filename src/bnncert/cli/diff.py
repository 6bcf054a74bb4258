"""`bnncert compare`: two networks, or what changed between two results files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from bnncert.cli.bundled_names import NETWORKS, model_file
from bnncert.cli.compare import NETWORK_PARAMETERS, TwoNetworksOptions, compare_two_networks
from bnncert.cli.completion import among
from bnncert.cli.consoles import Talk
from bnncert.cli.grouping import grouped
from bnncert.cli.options import JsonOption, TalkOptions
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.plain_console import wide_console
from bnncert.cli.unused import given_options
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.formats.file_content import check_regular
from bnncert.report.diff_page import comparison_page
from bnncert.report.diff_tables import ChangeTable, comparison_tree, headline, sections
from bnncert.report.plain_table import plain_table
from bnncert.results.diff import Comparison, compare_results
from bnncert.results.recorded import read_recorded
from bnncert.results.store import SQLITE_MAGIC

#: The most rows of a table on the terminal.
MOST_ROWS = 20


@grouped
def compare(
    *,
    ctx: typer.Context,
    before: Annotated[
        Path,
        typer.Argument(
            parser=model_file,
            metavar="before",
            help="Results file of run or experiment, or a network, called A.",
            autocompletion=among(tuple(NETWORKS), files=True),
        ),
    ],
    after: Annotated[
        Path,
        typer.Argument(
            parser=model_file,
            metavar="after",
            help="Another one of the same kind, called B.",
            autocompletion=among(tuple(NETWORKS), files=True),
        ),
    ],
    networks: TwoNetworksOptions,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Results files: where to write a page (.html)."),
    ] = None,
    json_: JsonOption = None,
    talking: TalkOptions,
) -> None:
    """Compare two networks or two results files; exit code 1 if they differ or contradict."""
    files = before, after
    kinds = [_kind(path) for path in files]
    if kinds == ["other", "other"]:
        _refuse_given(ctx, ("out",), "of two results files", "two networks")
        talk = Talk.of(ctx, talking, stderr=json_ == "-")
        compare_two_networks(ctx, files, networks, talk, json_)
        return
    for path, kind in zip(files, kinds, strict=True):
        if kind != "results":
            raise InputError(
                f"{path}: not a results file; compare takes two networks, or two results files, "
                "which run and experiment write"
            )
    _refuse_given(ctx, NETWORK_PARAMETERS, "of two networks", "two results files")
    _compare_results(before, after, out, json_)


def _refuse_given(ctx: typer.Context, names: Sequence[str], owner: str, compared: str) -> None:
    """Raise if options are given that belong to the other kind of files."""
    given = given_options(ctx)
    for name in names:
        if name in given:
            raise InputError(f"{given[name]} belongs to a comparison {owner}; these are {compared}")


def _compare_results(before: Path, after: Path, out: Path | None, json_: str | None) -> None:
    """Print what changed between two results files."""
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
        raise typer.Exit(1)


def _kind(path: Path) -> Literal["results", "other"]:
    """Return the kind of a file by its first bytes."""
    check_regular(path)
    with path.open("rb") as file:
        start = file.read(len(SQLITE_MAGIC))
    return "results" if start == SQLITE_MAGIC else "other"


def _show(comparison: Comparison, console: Console) -> None:
    """Print the contradictions, the summary, and the first rows of each table."""
    tables = sections(comparison)
    for section in tables:
        if section.loud:
            _show_section(section, console)
    for line in headline(comparison):
        console.print(line, soft_wrap=True)
    for section in tables:
        if not section.loud:
            _show_section(section, console)
    if not tables:
        console.print("no answer, bound or time has changed")


def _show_section(section: ChangeTable, console: Console) -> None:
    console.print(section.title, soft_wrap=True, style="bold red" if section.loud else "bold")
    table = plain_table(*section.heads, left=section.heads)
    for row in section.rows[:MOST_ROWS]:
        table.add_row(*row)
    console.print(table)
    rest = len(section.rows) - MOST_ROWS
    if rest > 0:
        console.print(f"{rest} more; -o PAGE.html and --json FILE show all", soft_wrap=True)
