"""`bnncert run`: many points, many radii."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from bnncert.batch.campaign import Campaign, Settings, finished_rows, plan, run_campaign
from bnncert.batch.labelled_points import read_data
from bnncert.batch.store import ResultsFile, Row
from bnncert.commands.console import PlainConsole, counting, say_interrupted, wide_console
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
    read_scale,
    read_targets,
)
from bnncert.commands.output import (
    refuse_unwritable,
)
from bnncert.commands.question import read_network, read_radius
from bnncert.commands.unused import refuse_unread
from bnncert.errors import InputError
from bnncert.report.summary import row_labels, summary_table


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
    """Verify many points at many radii; the same command again goes on where it stopped."""
    refuse_unread(ctx, method)
    refuse_unwritable(out, read=(model, data, labels))
    if certificates is not None:
        try:
            certificates.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{certificates}: {error.strerror or error}") from error
    folder = None if certificates is None else str(certificates)
    settings = Settings(norm, read_targets(targets), ties, method, timeout, seed, memory, folder)
    network, points = read_network(model, sign_zero), read_data(data, labels)
    pixels = read_scale(scale, mean, std)
    if pixels is not None:
        network, points = pixels.on(network), points.as_pixels()
    if clip is not None and not -np.inf < clip[0] <= clip[1] < np.inf:
        raise InputError(f"--clip is {clip[0]} {clip[1]}; expected finite numbers LO <= HI")
    campaign = plan(
        network,
        points,
        tuple(read_radius(part, network, radii) for part in radii.split(",")),
        first=first,
        count=count,
        clip=clip,
        settings=settings,
    )
    with ResultsFile(out) as results:
        _run_campaign(campaign, results, workers)


def _run_campaign(campaign: Campaign, results: ResultsFile, workers: int) -> None:
    """Run with a bar on a terminal; Ctrl-C shows what there is and goes on up."""
    console, watching = wide_console(), PlainConsole(stderr=True)
    for note in campaign.notes:
        console.print(f"note: {note}", soft_wrap=True)
    known, total = len(finished_rows(campaign, results)), len(campaign.instances)
    if known:
        line = f"{known} of {total} instances are in {results.path} already"
        console.print(line, soft_wrap=True)
    try:
        with counting(watching, "verifying") as show:

            def report(done: int, total: int, row: Row | None) -> None:
                text = "" if row is None else f"input {row.key.input_index}: {row.status}"
                show(done, total, text)

            rows = run_campaign(campaign, results, workers=workers, progress=report)
    except KeyboardInterrupt:
        rows = finished_rows(campaign, results)
        _show(console, rows)
        say_interrupted(console, len(rows), total, results.path)
        raise
    _show(console, rows)
    console.print(f"{len(rows)} instances in {results.path}", soft_wrap=True)


def _show(console: Console, rows: Sequence[Row]) -> None:
    """Print the summary, and what a share of robust inputs means where there are no labels."""
    console.print(summary_table(rows))
    if rows and row_labels(rows) == "own":
        console.print(
            "agreement with the network's own answer: the data has no labels (--labels FILE)",
            soft_wrap=True,
        )
