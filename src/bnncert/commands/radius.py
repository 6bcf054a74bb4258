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
from bnncert.commands.console import PlainConsole, ProgressBar, watch
from bnncert.commands.grouping import grouped
from bnncert.commands.image_folders import (
    RadiiOfFolder,
    refuse_overwriting,
    refuse_single_files,
    show_notes,
)
from bnncert.commands.options import (
    BallShape,
    CentreOptions,
    GridOption,
    InputArgument,
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
from bnncert.commands.question import (
    CommandQuestion,
    read_network,
    read_points,
    with_argument,
)
from bnncert.commands.results import network_tree, replay_text
from bnncert.commands.smallest import SmallestView
from bnncert.commands.unused import refuse_together, refuse_unread, refuse_without
from bnncert.deadline import Deadline
from bnncert.errors import InputError
from bnncert.problem import Ties
from bnncert.radius import RadiusInterrupt, RadiusResult, find_radius
from bnncert.regions import Ball
from bnncert.report.summary import radius_table
from bnncert.smallest import SmallestInterrupt, SmallestResult, find_smallest

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
    place: InputArgument = None,
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
    point = with_argument(point, place)
    _refuse_useless(ctx, point, search)
    options = settings.options()
    outputs.refuse_unwritable(json_path(json_), (model, point.input_, point.labels))
    if point.input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = read_network(model, settings.sign_zero)
    shape = BallShape(point.norm, "0", search.within, search.grid)
    points = read_points(network, point, shape, scaling)
    console = PlainConsole(stderr=json_ == "-")
    show_notes(points, console)
    asked = _SearchSetup(search, outputs, {"method": method, "seed": settings.seed}, ties)
    with (
        with_cluster(options, cluster) as options,
        watch(PlainConsole(stderr=True)) as progress,
    ):
        how: dict[str, Any] = {"maximum": search.maximum, "method": method, "options": options}
        how["progress"] = progress
        if points.is_folder:
            how["timeout"] = settings.timeout
            tree = _search_folder(asked, RadiiOfFolder(points, console, model.name), json_, how)
        else:
            how["timeout"] = remaining(settings.timeout)
            question = points.question(points.index)
            title = f"{model.name}, {question.title}: {question.label_text}, norm {point.norm}"
            tree = _search_one(asked, question, title, console, json_, how)
    write_json(json_, tree)


@dataclass(frozen=True, eq=False)
class _SearchSetup:
    """What the searches around all points have in common; `how` describes it in JSON."""

    search: SearchOptions
    outputs: ExactOutputs
    how: dict[str, Any]
    ties: Ties

    def about(self, question: CommandQuestion) -> dict[str, Any]:
        """Return the question for JSON."""
        point = {"input": question.where, "labels": question.labels}
        return {**network_tree(question.network), **point, **self.how}

    def find(
        self, question: CommandQuestion
    ) -> tuple[Callable[..., Any], Callable[..., dict[str, Any]]]:
        """Return the function that searches and the one that shows its result."""
        network, ball, label = question.network, question.region, question.label
        common: dict[str, Any] = {"targets": question.targets, "ties": self.ties}
        outputs = self.outputs
        if self.search.exact:
            about = {**self.about(question), "ties": self.ties}
            shown = SmallestView(question, outputs.save_counterexample, about)
            known = None if outputs.resume is None else shown.known(outputs.resume)
            exact = partial(
                find_smallest, network, ball, label, certificate=outputs.certificate, known=known
            )
            return partial(exact, **common), shown
        # The l0 norm needs --exact.
        assert isinstance(ball, Ball)
        interval = partial(
            find_radius,
            *(network, ball.middle, label, ball.norm),
            clip_lo=ball.clip_lo,
            clip_hi=ball.clip_hi,
            tolerance=self.search.tolerance,
            **common,
        )
        return interval, _show


def _search_one(
    asked: _SearchSetup,
    question: CommandQuestion,
    title: str,
    console: Console,
    json_: str | None,
    how: dict[str, Any],
) -> dict[str, Any]:
    """Search around one point, show the result and return it for JSON."""
    find, show = asked.find(question)
    about = asked.about(question)
    progress: ProgressBar = how["progress"]
    try:
        result = find(**how)
    except (RadiusInterrupt, SmallestInterrupt) as stop:
        found = stop.result
        with progress.paused():
            tree = show(console, title, found)
            console.print(f"interrupted after {found.seconds:.2f} s: the search is not finished")
        if asked.search.exact:
            # The search can be continued from this file.
            write_json(json_, {**about, **tree})
        raise
    with progress.paused():
        return {**about, **show(console, title, result)}


def _search_folder(
    asked: _SearchSetup, folder: RadiiOfFolder, json_: str | None, how: dict[str, Any]
) -> dict[str, Any]:
    """Search around all images of a folder; the time limit holds for each."""
    outputs = asked.outputs
    files = (outputs.certificate, outputs.save_counterexample, outputs.resume)
    options = ("--certificate", "--save-counterexample", "--resume")
    refuse_single_files(folder.points, dict(zip(options, files, strict=True)))
    refuse_overwriting(folder.points, json_path(json_))
    Deadline(how["timeout"])

    def ask(question: CommandQuestion) -> RadiusResult | SmallestResult:
        find, _ = asked.find(question)
        found: RadiusResult | SmallestResult = find(**how)
        return found

    answered = folder.answer(ask, how["progress"])
    about = {**network_tree(folder.points.network), **asked.how, "ties": asked.ties}
    return folder.tree(answered, about)


def _refuse_useless(ctx: typer.Context, point: CentreOptions, search: SearchOptions) -> None:
    """Raise if options are given that cannot be combined."""
    refuse_together(ctx, "exact", {"tolerance": "the search ends at the minimum"})
    refuse_without(ctx, "exact", ("grid", "within", *EXACT_FILES))
    if point.norm == "l0" and not search.exact:
        raise InputError("--norm l0 has whole numbers for radii; give --exact")


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
