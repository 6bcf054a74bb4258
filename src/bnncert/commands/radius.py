"""`bnncert radius`: the largest certified and the smallest falsified radius, or the minimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bnncert.commands.clock import remaining
from bnncert.commands.cluster import with_cluster
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.grouping import grouped
from bnncert.commands.options import (
    BallShape,
    CentreOptions,
    GridOption,
    JsonOption,
    MethodOption,
    MethodOptions,
    ModelArgument,
    SaveCounterexampleOption,
    ScalingOptions,
    SchedulerOption,
    TiesOption,
    WithinOption,
)
from bnncert.commands.output import json_path, refuse_clashes, refuse_unwritable, write_json
from bnncert.commands.question import CommandQuestion, read_network, read_question
from bnncert.commands.results import network_tree, replay_text
from bnncert.commands.smallest import SmallestView
from bnncert.commands.unused import refuse_together, refuse_unread, refuse_without
from bnncert.errors import InputError
from bnncert.radius import RadiusInterrupt, RadiusResult, find_radius
from bnncert.regions import Ball
from bnncert.report.summary import radius_table
from bnncert.smallest import SmallestInterrupt, find_smallest

#: Files that only `--exact` uses.
EXACT_FILES = ("certificate", "save_counterexample", "resume")


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
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Find the smallest perturbation itself, on the inputs of --grid or for --norm l0.",
        ),
    ] = False
    grid: GridOption = None
    within: WithinOption = None


@dataclass(frozen=True)
class ExactOutputs:
    """The files of `--exact`."""

    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", help="With --exact: write a proof of the certified side for `check`."
        ),
    ] = None
    save_counterexample: SaveCounterexampleOption = None
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="With --exact: continue from the --json file of a search."),
    ] = None

    def refuse_unwritable(
        self, json_file: Path | None, read: tuple[str | Path | None, ...]
    ) -> None:
        """Raise before the work if a file cannot or must not be written."""
        written = (self.certificate, self.save_counterexample)
        refuse_unwritable(*written, json_file, read=read)
        # The JSON file may replace the one from which the search continues.
        refuse_clashes(written, (self.resume,))


@grouped
def radius(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    point: CentreOptions,
    search: SearchOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    settings: MethodOptions,
    cluster: SchedulerOption = None,
    outputs: ExactOutputs,
    json_: JsonOption = None,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    refuse_unread(ctx, method)
    _refuse_useless(ctx, point, search)
    options = settings.options()
    outputs.refuse_unwritable(json_path(json_), (model, point.input_, point.labels))
    if point.input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = read_network(model, settings.sign_zero)
    shape = BallShape(point.norm, "0", search.within, search.grid)
    question = read_question(network, point, shape, scaling)
    console = PlainConsole(stderr=json_ == "-")
    title = f"{model.name}, {question.title}: {question.label_text}, norm {point.norm}"
    about = {
        **network_tree(question.network),
        "input": question.where,
        "labels": question.labels,
        "method": method,
        "seed": settings.seed,
    }
    find, show = _search(question, search, outputs, {**about, "ties": ties})
    try:
        with (
            with_cluster(options, cluster) as options,
            watch(PlainConsole(stderr=True)) as progress,
        ):
            result = find(
                maximum=search.maximum,
                targets=question.targets,
                ties=ties,
                method=method,
                timeout=remaining(settings.timeout),
                options=options,
                progress=progress,
            )
    except (RadiusInterrupt, SmallestInterrupt) as stop:
        found = stop.result
        tree = show(console, title, found)
        console.print(f"interrupted after {found.seconds:.2f} s: the search is not finished")
        if search.exact:
            # The search can be continued from this file.
            write_json(json_, {**about, **tree})
        raise
    write_json(json_, {**about, **show(console, title, result)})


def _refuse_useless(ctx: typer.Context, point: CentreOptions, search: SearchOptions) -> None:
    """Raise if options are given that cannot be combined."""
    refuse_together(ctx, "exact", {"tolerance": "the search ends at the minimum"})
    refuse_without(ctx, "exact", ("grid", "within", *EXACT_FILES))
    if point.norm == "l0" and not search.exact:
        raise InputError("--norm l0 has whole numbers for radii; give --exact")


def _search(
    question: CommandQuestion, search: SearchOptions, outputs: ExactOutputs, about: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., dict[str, Any]]]:
    """Return the function that searches and the one that shows its result."""
    network, ball, label = question.network, question.region, question.label
    if search.exact:
        shown = SmallestView(question, outputs.save_counterexample, about)
        known = None if outputs.resume is None else shown.known(outputs.resume)
        certificate = outputs.certificate
        find = partial(find_smallest, network, ball, label, certificate=certificate, known=known)
        return find, shown
    # The l0 norm needs --exact.
    assert isinstance(ball, Ball)
    interval = partial(
        find_radius,
        *(network, ball.middle, label, ball.norm),
        clip_lo=ball.clip_lo,
        clip_hi=ball.clip_hi,
        tolerance=search.tolerance,
    )
    return interval, _show


def _show(console: Console, title: str, result: RadiusResult) -> dict[str, Any]:
    """Print the radii and the counterexample, if there is one; return them for JSON."""
    console.print(title, soft_wrap=True)
    console.print(radius_table(result))
    found = result.counterexample
    if found is not None:
        console.print(f"counterexample for {found.target}, {replay_text(found)}", soft_wrap=True)
    elif result.lower >= result.limit:
        reach = "the whole data box" if result.covers_data else "the largest radius looked at"
        console.print(f"robust up to {reach}", soft_wrap=True)
    return result.to_dict()
