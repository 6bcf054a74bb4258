"""`bnncert run`: many points, many radii."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.batches import PlaceOptions, refuse_failures, run_shown
from bnncert.cli.completion import among
from bnncert.cli.files import POINTS, point_source, refuse_unwritable
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    CertificatesOption,
    ChangeNormOption,
    GridOption,
    LabelsOption,
    MemoryOption,
    MethodOption,
    ModelOptions,
    PrintOptions,
    ScalingOptions,
    SeedOption,
    SignZeroOption,
    TiesOption,
    ValueOption,
    WithinOption,
    read_clip,
    read_rivals,
    read_scale,
)
from bnncert.cli.time_limit import DEFAULT_LIMIT, finite_limit, is_default, limit_text, read_limit
from bnncert.errors import InputError
from bnncert.model.formats.atomic import make_folder

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.results.plan import Plan
    from bnncert.results.runner import AnsweredInstances


@dataclass(frozen=True)
class PointsOptions:
    """The points, the choice among them, their true classes, and the balls around them."""

    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="Points: FILE.npz, FILE.npz:KEY, .npy, an image or a folder of images; "
            "labels beside them.",
            autocompletion=among(POINTS, files=True),
        ),
    ]
    radii: Annotated[
        str,
        typer.Option(
            "--radius",
            help="Radii R1,R2,.. in input units as in 0.1 or 8/255, in pixels as in 1px, or as in "
            "0.25delta; numbers of inputs for --norm l0.",
        ),
    ]
    count: Annotated[int | None, "How many points (default: all)."] = None
    first: Annotated[int, typer.Option("--index", help="Number of the first point.")] = 0
    labels: LabelsOption = None
    norm: ChangeNormOption = "linf"
    within: WithinOption = None
    value: ValueOption = None
    grid: GridOption = None


@dataclass(frozen=True)
class AnsweringOptions:
    """The settings of the answers."""

    ties: TiesOption = "violation"
    method: MethodOption = "auto"
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", parser=read_limit, metavar="SECONDS|none", help="Time for each instance."
        ),
    ] = DEFAULT_LIMIT
    seed: SeedOption = 0
    sign_zero: SignZeroOption = None
    memory: MemoryOption = 4.0
    certificate: CertificatesOption = None


@grouped
def run(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    out: Annotated[Path, "SQLite file of the results; resumed."],
    points: PointsOptions,
    scaling: ScalingOptions,
    answering: AnsweringOptions,
    at_work: PlaceOptions,
    printing: PrintOptions,
) -> None:
    """Verify many points at many radii; the same command again continues an interrupted run."""
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.grouping import refuse_unread
    from bnncert.results.runner import finished_rows
    from bnncert.results.store import ResultsFile

    refuse_unread(ctx, answering.method)
    consoles = Consoles.of(ctx, printing, width=140)
    place = at_work.place(ctx, consoles)
    if place.workers == 1:
        # A single worker needs no process of its own.
        place = replace(place, workers=0)
    refuse_unwritable(out, read=(*source.files, points.data, points.labels))
    folder = answering.certificate
    if folder is not None:
        make_folder(folder)
    plan_with, seconds = _planner(source, points, scaling, answering), answering.timeout
    plan = plan_with(seconds)
    with ResultsFile(out) as results:
        if is_default(ctx, "timeout") and results.answered():
            # A run that was begun without a time limit goes on without one.
            unlimited = plan_with(math.inf)
            if finished_rows(unlimited, results):
                plan, seconds = unlimited, math.inf
        limit = limit_text(ctx, seconds, " for each instance")
        consoles.details.say(f"{len(plan.instances)} instances; {limit}")

        def show_rows(rows: AnsweredInstances) -> None:
            _show(consoles, rows)

        finished = run_shown(plan, results, place, folder, consoles, show_rows)
    consoles.answer.say(f"{len(finished.rows)} instances in {out}")
    refuse_failures(finished.failures, len(plan.instances), consoles.answer)


def _planner(
    model: ModelOptions,
    points: PointsOptions,
    scaling: ScalingOptions,
    answering: AnsweringOptions,
) -> Callable[[float], Plan]:
    """Read the network and the points; return what plans the instances with a time limit."""
    from bnncert.cli.command_question import balls_option, large_radius, radius_option
    from bnncert.results.instance import PointSource, Settings
    from bnncert.results.labelled_points import Selection, in_network_units, read_data
    from bnncert.results.plan import plan_run

    network = model.read(answering.sign_zero)
    source, index = point_source(points.data, None)
    selection = Selection(points.first, points.count)
    if index is not None:
        if selection != Selection():
            raise InputError(f"{points.data} is one point; leave out --index and --count")
        selection = Selection(index, 1)
    data = read_data(source, points.labels, network)
    if source != points.data:
        # Messages name the bundled images as the user does, and not a file of the package.
        data = replace(data, where=points.data)
    pixels, clip = read_scale(scaling.scale, scaling.normalise), read_clip(scaling.clip)
    network, data = in_network_units(network, data, pixels, is_clipped=clip is not None)
    radii = []
    for part in points.radii.split(","):
        radii.append(radius_option(part, network, points.norm, clip, points.radii)[0])
        notes = large_radius(part, radii[-1], network, points.norm)
        data = replace(data, notes=(*data.notes, *notes))
    grid, within = balls_option(
        network, points.norm, clip, points.grid, points.within, points.value
    )
    settings = Settings(
        points.norm,
        read_rivals(scaling.rivals),
        answering.ties,
        answering.method,
        None,
        answering.seed,
        answering.memory,
        grid=grid,
        within=within,
        value=points.value,
    )
    source_of_points = PointSource(points.data, "" if pixels is None else pixels.options)

    def plan_with(seconds: float) -> Plan:
        return plan_run(
            network,
            data,
            radii,
            selection=selection,
            clip=clip,
            settings=replace(settings, timeout=finite_limit(seconds)),
            certificates=answering.certificate is not None,
            points=source_of_points,
        )

    return plan_with


def _show(consoles: Consoles, answered: AnsweredInstances) -> None:
    """Print the summary, and the meaning of a share of robust inputs if there are no labels."""
    from bnncert.report.summary import summary_table
    from bnncert.results.rows import label_source

    console = consoles.details
    console.print(summary_table(answered))
    rows = [row for _, row in answered]
    if rows and label_source(rows) == "own":
        console.say(
            "agreement with the network's own answer: the data has no labels (--labels FILE)"
        )
