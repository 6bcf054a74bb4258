"""`bnncert run`: many points, many radii."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bnncert.batch.instance import Settings
from bnncert.batch.labelled_points import read_data
from bnncert.batch.plan import Selection, plan_run
from bnncert.batch.rows import Row, label_source
from bnncert.batch.runner import AnsweredInstances, Place
from bnncert.batch.store import ResultsFile
from bnncert.commands.batches import refuse_failures, run_shown
from bnncert.commands.console import wide_console
from bnncert.commands.options import (
    ClipOption,
    LabelsOption,
    MeanOption,
    MemoryOption,
    MethodOption,
    ModelArgument,
    NormOption,
    ScaleOption,
    SeedOption,
    SignZeroOption,
    StdOption,
    TargetsOption,
    TiesOption,
    read_clip,
    read_scale,
    read_targets,
)
from bnncert.commands.output import refuse_unwritable
from bnncert.commands.question import read_network, read_radius
from bnncert.commands.unused import refuse_unread
from bnncert.errors import InputError
from bnncert.report.summary import summary_table


def run(
    ctx: typer.Context,
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Option("--data", help="Points: FILE.npz, FILE.npz:KEY or .npy; labels beside them."),
    ],
    out: Annotated[Path, typer.Option("--out", help="SQLite file of the results; resumed.")],
    radii: Annotated[
        str,
        typer.Option("--radius", help="Radii R1,R2,.. in input units, or in pixels as in 1px."),
    ],
    count: Annotated[
        int | None, typer.Option("--count", help="How many points (default: all).")
    ] = None,
    first: Annotated[int, typer.Option("--first", help="Number of the first point.")] = 0,
    norm: NormOption = "linf",
    clip: ClipOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    labels: LabelsOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for each instance.")
    ] = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes at work at once.")] = 1,
    memory: MemoryOption = 4.0,
    certificates: Annotated[
        Path | None,
        typer.Option("--certificates", help="Folder for a certificate of every verdict."),
    ] = None,
) -> None:
    """Verify many points at many radii; the same command again continues an interrupted run."""
    refuse_unread(ctx, method)
    if workers < 1:
        raise InputError(f"workers is {workers}; expected at least 1")
    # A single worker needs no process of its own.
    place = Place(workers if workers > 1 else 0)
    refuse_unwritable(out, read=(model, data, labels))
    if certificates is not None:
        try:
            certificates.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{certificates}: {error.strerror or error}") from error
    settings = Settings(norm, read_targets(targets), ties, method, timeout, seed, memory)
    network, points = read_network(model, sign_zero), read_data(data, labels)
    pixels = read_scale(scale, mean, std)
    if pixels is not None:
        network, points = pixels.on(network), points.as_pixels()
    plan = plan_run(
        network,
        points,
        tuple(read_radius(part, network, radii) for part in radii.split(",")),
        selection=Selection(first, count),
        clip=read_clip(clip),
        settings=settings,
        certificates=certificates is not None,
    )
    console = wide_console()
    with ResultsFile(out) as results:

        def show_rows(rows: AnsweredInstances) -> None:
            _show(console, [row for _, row in rows])

        finished = run_shown(plan, results, place, certificates, console, show_rows)
    console.print(f"{len(finished.rows)} instances in {out}", soft_wrap=True)
    refuse_failures(finished.failures, len(plan.instances), console)


def _show(console: Console, rows: Sequence[Row]) -> None:
    """Print the summary, and what a share of robust inputs means if there are no labels."""
    console.print(summary_table(rows))
    if rows and label_source(rows) == "own":
        console.print(
            "agreement with the network's own answer: the data has no labels (--labels FILE)",
            soft_wrap=True,
        )
