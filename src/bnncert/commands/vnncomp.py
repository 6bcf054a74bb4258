"""`bnncert vnncomp`: a category of VNN-COMP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bnncert.commands.console import PlainConsole, counting, say_interrupted, wide_console
from bnncert.commands.options import CertificatesOption, MemoryOption, MethodOption
from bnncert.commands.output import refuse_clashes
from bnncert.commands.unused import refuse_unread
from bnncert.competition.category import (
    CategorySettings,
    certificate_path,
    finished_lines,
    run_category,
)
from bnncert.competition.instances import CategoryInstance, read_instances
from bnncert.errors import InputError
from bnncert.report.competition import Line, category_table, totals


def vnncomp(
    ctx: typer.Context,
    instances: Annotated[
        Path, typer.Argument(help="instances.csv: rows onnx,vnnlib,timeout; files beside it.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the result files and results.csv; resumed.")
    ],
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds for each instance (default: those of the file)."),
    ] = None,
    method: MethodOption = "auto",
    certificates: CertificatesOption = None,
    only: Annotated[
        str, typer.Option("--only", help="Only queries with this text in their name.")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="Answer all instances again.")] = False,
    memory: MemoryOption = 4.0,
) -> None:
    """Answer a category of VNN-COMP; the same command again continues an interrupted run."""
    refuse_unread(ctx, method)
    settings = CategorySettings(method, memory, certificates)
    chosen = [i for i in read_instances(instances, timeout) if only in Path(i.vnnlib).name]
    if not chosen:
        raise InputError(f"{instances}: no query with {only!r} in its name")
    written = [out / "results.csv", *(out / i.name for i in chosen)]
    if certificates is not None:
        written += [certificate_path(certificates, i.name) for i in chosen]
    refuse_clashes(written, [instances, *(p for i in chosen for p in (i.model, i.query))])
    _run(chosen, out, settings, again)


def _run(
    chosen: Sequence[CategoryInstance], out: Path, settings: CategorySettings, again: bool
) -> None:
    """Run with a progress bar; after Ctrl-C print the finished instances and re-raise."""
    console, watching = wide_console(), PlainConsole(stderr=True)
    seen: list[int] = []
    try:
        with counting(watching, "verifying") as show:

            def report(done: int, total: int, line: Line | None) -> None:
                if not seen and done:
                    console.print(f"{done} of {total} instances are in {out} already")
                seen.append(done)
                text = "" if line is None else f"{line.query_name}: {line.word}"
                show(done, total, text)

            lines = run_category(chosen, out, settings, again=again, progress=report)
    except KeyboardInterrupt:
        lines = finished_lines(chosen, out, settings)
        _show(lines)
        say_interrupted(console, len(lines), len(chosen), out)
        raise
    _show(lines)
    console.print(f"{len(lines)} instances in {out}", soft_wrap=True)


def _show(lines: Sequence[Line]) -> None:
    console = wide_console()
    console.print(category_table(lines))
    console.print(totals(lines), soft_wrap=True)
