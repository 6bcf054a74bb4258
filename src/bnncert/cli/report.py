"""`bnncert report`: a results file as a page, CSV files and LaTeX tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.files import refuse_clashes, refuse_unwritable
from bnncert.cli.grouping import grouped
from bnncert.errors import InputError
from bnncert.model.formats.atomic import write_atomically

if TYPE_CHECKING:
    from bnncert.results.store import Recorded


@grouped
def report(
    results: Annotated[
        Path,
        typer.Argument(
            help="SQLite file of run, experiment or --results; or results.csv of vnncomp."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write the page (.html).")
    ] = None,
    csv: Annotated[Path | None, "Folder for CSV files."] = None,
    latex: Annotated[Path | None, "Folder for LaTeX tables, by network and norm."] = None,
) -> None:
    """Make a page of a results file that anyone can open, or tables for a paper."""
    from bnncert.cli.consoles import PlainConsole
    from bnncert.model.formats.file_content import check_regular
    from bnncert.report.csv_export import CSV_FILES, write_csv
    from bnncert.report.latex_export import write_latex
    from bnncert.report.other_answers import other_lines
    from bnncert.report.page.document import write_page
    from bnncert.results.store import read_recorded

    if out is None and csv is None and latex is None:
        # A missing file is the first mistake to correct.
        check_regular(results)
        raise InputError("nothing to write; give -o PAGE.html, --csv DIR or --latex DIR")
    refuse_unwritable(out, read=(results,))
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: the page is HTML; give it a name that ends in .html")
    tables = [] if csv is None else [csv / name for name in CSV_FILES]
    tables += [] if latex is None else latex.glob("*.tex")
    refuse_clashes([out, *tables], (results,))
    if results.suffix.lower() == ".csv":
        _report_category(results, out, {"--csv": csv, "--latex": latex})
        return
    recorded = read_recorded(results)
    console = PlainConsole()
    written = []
    if out is not None:
        write_page(recorded, out)
        written.append(out)
    if csv is not None:
        written += write_csv(recorded, csv)
    if latex is not None:
        tables = write_latex(recorded, latex)
        written += tables
        missing = "" if tables else _no_tables(recorded)
        if not written:
            raise InputError(missing)
        if missing:
            console.say(missing)
    for line in (f"{recorded.count} answers of {results}", *other_lines(recorded)):
        console.say(line)
    for path in written:
        console.say(f"{path} ({path.stat().st_size} bytes)")


def _no_tables(recorded: Recorded) -> str:
    """Say why a results file has no LaTeX table, and which option has its answers."""
    kinds = {str(row.key.question): None for row in recorded.rows}
    kinds |= {str(other.kind): None for other in recorded.others}
    return (
        f"{recorded.path}: --latex writes nothing: its tables count answers of `verify`, and the "
        f"file has answers of {', '.join(f'`{kind}`' for kind in kinds)} only; --csv DIR and "
        "-o PAGE.html write those"
    )


def _report_category(results: Path, out: Path | None, folders: dict[str, Path | None]) -> None:
    """Write the page of a results.csv; `folders` are options that it has no files for."""
    from bnncert.cli.consoles import PlainConsole
    from bnncert.model.formats.file_content import check_regular
    from bnncert.report.vnncomp_files import ResultsTable, competition_page, totals

    for option, folder in folders.items():
        if folder is not None:
            raise InputError(f"{results}: {option} is for results files; the page needs only -o")
    check_regular(results)
    lines = ResultsTable(results).lines()
    if not lines or out is None:
        raise InputError(f"{results}: holds no results yet")
    write_atomically(out, competition_page(lines, results.name))
    console = PlainConsole()
    console.say(f"{totals(lines)}, {results}")
    console.say(f"{out} ({out.stat().st_size} bytes)")
