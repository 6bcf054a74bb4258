"""`bnncert vnncomp`: a category of VNN-COMP; and the commands of the competition's scripts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bnncert.atomic import write_atomically
from bnncert.commands.clock import process_age
from bnncert.commands.console import PlainConsole, counting, say_interrupted, wide_console
from bnncert.commands.options import MemoryOption, MethodOption
from bnncert.commands.output import refuse_clashes
from bnncert.commands.unused import refuse_unread
from bnncert.competition import (
    CategoryInstance,
    CategorySettings,
    finished_lines,
    plain_or_packed,
    read_instances,
    run_category,
    run_instance,
)
from bnncert.competition.category import certificate_path
from bnncert.errors import BnncertError, InputError
from bnncert.formats.vnnlib.reader import read_vnnlib
from bnncert.network import load
from bnncert.problem import from_vnnlib
from bnncert.report.competition import Line, category_table, totals

#: Seconds between the answer and the competition's limit, and their share of a small limit.
MARGIN, MARGIN_SHARE = 2.0, 0.05


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
        typer.Option("--timeout", help="Seconds for each instance (default: as the file says)."),
    ] = None,
    method: MethodOption = "auto",
    certificates: Annotated[
        Path | None,
        typer.Option("--certificates", help="Folder for a certificate of every verdict."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", help="Only queries with this text in their name.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Answer everything anew, also what is done.")
    ] = False,
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


def vnncomp_instance(
    onnx: Annotated[Path, typer.Argument(help="Model.")],
    vnnlib: Annotated[Path, typer.Argument(help="Query.")],
    result: Annotated[Path, typer.Argument(help="Where to write the result.")],
    timeout: Annotated[float, typer.Argument(help="Seconds of wall time for everything.")],
    started: Annotated[
        float | None, typer.Option("--started", help="Unix time from which the limit counts.")
    ] = None,
) -> None:
    """Answer one instance as vnncomp/run_instance.sh has to."""
    used = process_age() if started is None else max(0.0, time.time() - started)
    begin = time.monotonic() - used
    model, query = plain_or_packed(onnx), plain_or_packed(vnnlib)
    refuse_clashes((result,), (model, query))
    # From now on there is a valid result file, whatever happens.
    write_atomically(result, "unknown\n")
    if not 0 < timeout < math.inf:
        raise InputError(f"timeout is {timeout}; expected a number of seconds > 0")
    margin = min(MARGIN, MARGIN_SHARE * timeout)
    answer = run_instance(
        model,
        query,
        timeout - margin,
        started=begin,
        grace=margin / 4,
    )
    write_atomically(result, answer.file_text)
    if answer.word == "error":
        raise BnncertError(answer.reason)
    PlainConsole().print(answer.word)


def vnncomp_prepare(
    onnx: Annotated[Path, typer.Argument(help="Model.")],
    vnnlib: Annotated[Path, typer.Argument(help="Query.")],
) -> None:
    """Find out whether one instance can be answered, as vnncomp/prepare_instance.sh has to."""
    from_vnnlib(load(plain_or_packed(onnx)), read_vnnlib(plain_or_packed(vnnlib)))
