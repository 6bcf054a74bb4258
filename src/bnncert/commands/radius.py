"""`bnncert radius`: the largest certified and the smallest falsified radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from bnncert.commands.clock import remaining
from bnncert.commands.cluster import with_cluster
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.grouping import grouped
from bnncert.commands.options import (
    JsonOption,
    MethodOption,
    MethodOptions,
    ModelArgument,
    PointOptions,
    ScalingOptions,
    SchedulerOption,
    TiesOption,
)
from bnncert.commands.output import json_path, refuse_unwritable, write_json
from bnncert.commands.question import read_network, read_question
from bnncert.commands.results import network_tree, replay_text
from bnncert.commands.unused import refuse_unread
from bnncert.errors import InputError
from bnncert.radius import RadiusInterrupt, RadiusResult, find_radius
from bnncert.report.summary import radius_table


@dataclass(frozen=True)
class SearchOptions:
    """Where the search for the radius ends."""

    maximum: Annotated[float | None, typer.Option("--max", help="Largest radius of interest.")] = (
        None
    )
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Gap to end at (default: 1 % of the falsified radius)."),
    ] = None


@grouped
def radius(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    point: PointOptions,
    search: SearchOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    settings: MethodOptions,
    cluster: SchedulerOption = None,
    json_: JsonOption = None,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    refuse_unread(ctx, method)
    options = settings.options()
    refuse_unwritable(json_path(json_), read=(model, point.input_, point.labels))
    if point.input_ is None:
        raise InputError("--input is missing; give the point to search around")
    question = read_question(read_network(model, settings.sign_zero), point, "0", scaling)
    console = PlainConsole(stderr=json_ == "-")
    title = f"{model.name}, {question.title}: {question.label_text}, norm {point.norm}"
    try:
        with (
            with_cluster(options, cluster) as options,
            watch(PlainConsole(stderr=True)) as progress,
        ):
            result = find_radius(
                question.network,
                question.region.middle,
                question.label,
                point.norm,
                clip_lo=question.region.clip_lo,
                clip_hi=question.region.clip_hi,
                maximum=search.maximum,
                tolerance=search.tolerance,
                targets=question.targets,
                ties=ties,
                method=method,
                timeout=remaining(settings.timeout),
                options=options,
                progress=progress,
            )
    except RadiusInterrupt as stop:
        _show(console, title, stop.result)
        console.print(f"interrupted after {stop.result.seconds:.2f} s: the search is not finished")
        raise
    _show(console, title, result)
    tree = {
        **network_tree(question.network),
        "input": question.where,
        "labels": question.labels,
        "method": method,
        "seed": settings.seed,
        **result.to_dict(),
    }
    write_json(json_, tree)


def _show(console: Console, title: str, result: RadiusResult) -> None:
    """Print the radii and the counterexample, if there is one."""
    console.print(title, soft_wrap=True)
    console.print(radius_table(result))
    found = result.counterexample
    if found is not None:
        console.print(f"counterexample for {found.target}, {replay_text(found)}", soft_wrap=True)
    elif result.lower >= result.limit:
        reach = "the whole data box" if result.covers_data else "the largest radius looked at"
        console.print(f"robust up to {reach}", soft_wrap=True)
