"""`bnncert radius`: how far a verdict reaches."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from bnncert.commands.clock import remaining
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.options import (
    ClipOption,
    FormOption,
    IndexOption,
    InputOption,
    JsonOption,
    LabelOption,
    LabelsOption,
    MeanOption,
    MemoryOption,
    MethodOption,
    ModelArgument,
    NormOption,
    PixelOption,
    RestartsOption,
    SamplesOption,
    ScaleOption,
    SeedOption,
    SignZeroOption,
    StdOption,
    TargetsOption,
    TiesOption,
    TimeoutOption,
    read_scale,
    solver_options,
)
from bnncert.commands.output import (
    json_path,
    refuse_unwritable,
    write_json,
)
from bnncert.commands.question import read_network, read_question
from bnncert.commands.unused import refuse_unread
from bnncert.errors import InputError
from bnncert.radius import RadiusInterrupt, RadiusResult, find_radius
from bnncert.regions import Ball
from bnncert.report.summary import radius_table
from bnncert.report.tables import (
    number,
)
from bnncert.version import __version__


def radius(
    ctx: typer.Context,
    model: ModelArgument,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    norm: NormOption = "linf",
    maximum: Annotated[
        float | None, typer.Option("--max", help="Largest radius of interest.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Gap to end at (default: 1 % of the falsified radius)."),
    ] = None,
    clip: ClipOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    form: FormOption = "lattice",
    samples: SamplesOption = 10_000,
    restarts: RestartsOption = None,
    pixel_step: PixelOption = None,
    memory: MemoryOption = 4.0,
    json_: JsonOption = None,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    refuse_unread(ctx, method)
    options = solver_options(seed, form, samples, restarts, pixel_step, memory)
    refuse_unwritable(json_path(json_), read=(model, input_, labels))
    if input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = read_network(model, sign_zero)
    question = read_question(
        network,
        input_,
        index,
        label,
        labels,
        norm,
        "0",
        clip,
        targets,
        read_scale(scale, mean, std),
    )
    network = question.network
    centre = question.region
    assert isinstance(centre, Ball)
    console = PlainConsole(stderr=json_ == "-")
    title = f"{model.name}, {question.title}: {question.label_text}, norm {norm}"
    try:
        with watch(PlainConsole(stderr=True)) as progress:
            result = find_radius(
                network,
                centre.middle,
                question.label,
                norm,
                clip_lo=centre.clip_lo,
                clip_hi=centre.clip_hi,
                maximum=maximum,
                tolerance=tolerance,
                targets=question.targets,
                ties=ties,
                method=method,
                timeout=remaining(timeout),
                options=options,
                progress=progress,
            )
    except RadiusInterrupt as stop:
        _show(console, title, stop.result)
        console.print(f"interrupted after {stop.result.seconds:.2f} s: the search is not finished")
        raise
    _show(console, title, result)
    tree = {
        "bnncert": __version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
        "input": question.where,
        "labels": question.labels,
        "method": method,
        "seed": seed,
        **result.to_dict(),
    }
    write_json(json_, tree)


def _show(console: Console, title: str, result: RadiusResult) -> None:
    """Print the radii, and what they rest on."""
    console.print(title, soft_wrap=True)
    console.print(radius_table(result))
    found = result.counterexample
    if found is not None:
        console.print(
            f"counterexample for {found.target}, margin {number(float(found.value))}, replayed in "
            f"{' and '.join(found.replayed_in)} arithmetic",
            soft_wrap=True,
        )
    elif result.lower >= result.limit:
        reach = "the whole data box" if result.covers_data else "the largest radius looked at"
        console.print(f"robust up to {reach}", soft_wrap=True)
