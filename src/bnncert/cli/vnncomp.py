"""`bnncert vnncomp`: a category of VNN-COMP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.files import refuse_clashes
from bnncert.cli.grouping import grouped
from bnncert.cli.options import CertificatesOption, MemoryOption, MethodOption, PrintOptions
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.extras.vnncomp.category import CategoryInstance, CategorySettings
    from bnncert.report.vnncomp_files import Line


@grouped
def vnncomp(
    *,
    ctx: typer.Context,
    instances: Annotated[
        Path, typer.Argument(help="instances.csv: rows onnx,vnnlib,timeout; files beside it.")
    ],
    out: Annotated[Path, "Folder of the result files and results.csv; resumed."],
    timeout: Annotated[
        float | None, "Seconds for each instance (default: those of the file)."
    ] = None,
    method: MethodOption = "auto",
    certificate: CertificatesOption = None,
    only: Annotated[str, "Only queries with this text in their name."] = "",
    again: Annotated[bool, typer.Option("--force", help="Answer all instances again.")] = False,
    memory: MemoryOption = 4.0,
    printing: PrintOptions,
) -> None:
    """Answer a category of VNN-COMP; the same command again continues an interrupted run."""
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.grouping import refuse_unread
    from bnncert.extras.vnncomp.category import CategorySettings, certificate_path, read_instances

    refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, width=140)
    settings = CategorySettings(method, memory, certificate)
    chosen = [i for i in read_instances(instances, timeout) if only in Path(i.vnnlib).name]
    if not chosen:
        raise InputError(f"{instances}: no query with {only!r} in its name")
    written = [out / "results.csv", *(out / i.name for i in chosen)]
    if certificate is not None:
        written += [certificate_path(certificate, i.name) for i in chosen]
    refuse_clashes(written, [instances, *(p for i in chosen for p in i.files)])
    _run(chosen, out, settings, again, consoles)


def _run(
    chosen: Sequence[CategoryInstance],
    out: Path,
    settings: CategorySettings,
    again: bool,
    consoles: Consoles,
) -> None:
    """Run with a progress bar; after Ctrl-C print the finished instances and re-raise."""
    from bnncert.cli.consoles import say_interrupted
    from bnncert.cli.progress import watch
    from bnncert.extras.vnncomp.category import finished_lines, run_category

    console = consoles.details
    seen: list[Line] = []
    try:
        with watch(consoles.watching) as live:

            def report(done: int, total: int, line: Line | None) -> None:
                text = "verifying"
                if line is None and done:
                    console.print(f"{done} of {total} instances are in {out} already")
                if line is not None:
                    seen.append(line)
                    text = f"{line.query_name}: {line.word}"
                    if consoles.verbose:
                        with live.paused():
                            console.say(f"{text} in {line.seconds:.2f} s")
                live.show(text, done, total, _remaining(seen, total - done))

            lines = run_category(chosen, out, settings, again=again, progress=report)
    except KeyboardInterrupt:
        lines = finished_lines(chosen, out, settings)
        _show(consoles, lines)
        say_interrupted(console, len(lines), len(chosen), out)
        raise
    _show(consoles, lines)
    console.say(f"{len(lines)} instances in {out}")


def _remaining(seen: Sequence[Line], left: int) -> str:
    """Return the expected time of the instances that are left, from the mean until now."""
    from bnncert.results.runner import duration

    if not seen:
        return ""
    return f"about {duration(left * sum(line.seconds for line in seen) / len(seen))} left"


def _show(consoles: Consoles, lines: Sequence[Line]) -> None:
    from bnncert.report.vnncomp_files import category_table, totals

    consoles.details.print(category_table(lines))
    consoles.answer.say(totals(lines))
