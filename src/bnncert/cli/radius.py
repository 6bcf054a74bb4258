"""`bnncert radius`: the largest certified and the smallest falsified radius, or the minimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bnncert.cli.batches import show_notes
from bnncert.cli.cluster_options import with_cluster
from bnncert.cli.command_question import (
    AskedPoints,
    CommandQuestion,
    radius_option,
    read_network,
    read_points,
    with_argument,
)
from bnncert.cli.consoles import Consoles
from bnncert.cli.grouping import grouped
from bnncert.cli.image_folders import (
    FolderView,
    refuse_overwriting,
    refuse_single_files,
    search_folder,
)
from bnncert.cli.options import (
    BallShape,
    CentreOptions,
    GridOption,
    InputArgument,
    JsonOption,
    MethodOption,
    MethodOptions,
    ModelArgument,
    PrintOptions,
    SaveCounterexampleOption,
    ScalingOptions,
    SchedulerOption,
    TiesOption,
    WithinOption,
    read_clip,
)
from bnncert.cli.output import json_path, refuse_clashes, refuse_unwritable, write_json
from bnncert.cli.progress import LiveLine, watch
from bnncert.cli.result_views import network_tree, replay_text
from bnncert.cli.smallest import SmallestView
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.cli.unused import refuse_together, refuse_unread, refuse_without
from bnncert.engine.answer import Interrupted
from bnncert.errors import InputError
from bnncert.problem import Ties
from bnncert.questions.radius.radius import radius as radius_api
from bnncert.questions.radius.radius_answer import RadiusResult, SmallestResult
from bnncert.questions.radius.smallest import smallest
from bnncert.regions import SHAPES
from bnncert.regions.radii import RadiusUnit
from bnncert.report.summary import probe_table, radius_table, radius_texts

#: Files that only `--exact` uses.
EXACT_FILES = ("certificate", "save_counterexample", "resume")


@dataclass(frozen=True)
class SearchOptions:
    """Where the search for the radius ends."""

    maximum: Annotated[
        str | None,
        typer.Option(
            "--max", help="Largest radius of interest, also as in 3px; radii are shown in its unit."
        ),
    ] = None
    tolerance: Annotated[
        str | None,
        typer.Option(
            "--tolerance",
            help="Gap to end at, also as in 0.1px (default: 1 % of the falsified radius).",
        ),
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

    def limits(
        self, points: AskedPoints, clip: tuple[float, float] | None
    ) -> tuple[AskedPoints, float | None, float | None]:
        """Return the largest radius and the gap to end at, in input units.

        The points get the unit of the largest radius.
        """
        about, limit, gap = (points.network, points.balls.norm, clip), None, None
        if self.maximum is not None:
            limit, unit = radius_option(self.maximum, *about, name="max")
            points = replace(points, unit=unit)
        if self.tolerance is not None:
            gap, _ = radius_option(self.tolerance, *about, name="tolerance")
        return points, limit, gap


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
    printing: PrintOptions,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, stderr=json_ == "-")
    point = with_argument(point, place)
    _refuse_useless(ctx, point, search)
    options = settings.options()
    outputs.refuse_unwritable(json_path(json_), (model, point.input_, point.labels))
    if point.input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = read_network(model, settings.sign_zero)
    shape = BallShape(point.norm, "0", search.within, search.grid, point.value)
    points = read_points(network, point, shape, scaling)
    points, maximum, gap = search.limits(points, read_clip(scaling.clip))
    show_notes(points.data.notes, consoles.details)
    asked = _SearchSetup(search, gap, outputs, {"method": method, "seed": settings.seed}, ties)
    how: dict[str, Any] = {"maximum": maximum, "method": method}
    limit, opening = finite_limit(settings.timeout), None
    if not points.is_folder:
        question = points.question(points.index)
        title = f"{model.name}, {question.title}: {question.label_text}, norm {point.norm}"
        opening = consoles.details.later(f"{title}; {limit_text(ctx, settings.timeout)}")
    with (
        with_cluster(options, cluster, consoles) as options,
        watch(consoles.watching, None if points.is_folder else limit, opening) as progress,
    ):
        how |= {"options": options, "progress": progress}
        if points.is_folder:
            text = limit_text(ctx, settings.timeout, " for each image")
            view = FolderView(points, consoles, model.name, text, json_)
            _search_folder(asked, view, {**how, "timeout": limit})
        else:
            how["timeout"] = remaining(settings.timeout)
            tree = _search_one(asked, question, consoles, json_, how)
    if not points.is_folder:
        write_json(json_, tree)


@dataclass(frozen=True, eq=False)
class _SearchSetup:
    """What the searches around all points have in common; `how` describes it in JSON."""

    search: SearchOptions
    tolerance: float | None
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
                smallest,
                network,
                question.ball,
                label,
                certificate=outputs.certificate,
                known=known,
            )
            return partial(exact, **common), shown
        # The l0 norm needs --exact.
        interval = partial(radius_api, network, ball, label, tolerance=self.tolerance, **common)
        return interval, partial(_show, question.unit)


def _search_one(
    asked: _SearchSetup,
    question: CommandQuestion,
    consoles: Consoles,
    json_: str | None,
    how: dict[str, Any],
) -> dict[str, Any]:
    """Search around one point, show the result and return it for JSON."""
    find, show = asked.find(question)
    about = asked.about(question)
    progress: LiveLine = how["progress"]
    try:
        result = find(**how)
    except Interrupted as stop:
        found = stop.answer
        progress.open()
        with progress.paused():
            tree = show(consoles, found)
            line = f"interrupted after {found.seconds:.2f} s: the search is not finished"
            consoles.details.print(line)
        if asked.search.exact:
            # The search can be continued from this file.
            write_json(json_, {**about, **tree})
        raise
    progress.open()
    with progress.paused():
        return {**about, **show(consoles, result)}


def _search_folder(asked: _SearchSetup, view: FolderView, how: dict[str, Any]) -> None:
    """Search around all images of a folder."""
    outputs = asked.outputs
    files = (outputs.certificate, outputs.save_counterexample, outputs.resume)
    options = ("--certificate", "--save-counterexample", "--resume")
    refuse_single_files(view.points, dict(zip(options, files, strict=True)))
    refuse_overwriting(view.points, json_path(view.json_))

    def ask(question: CommandQuestion) -> RadiusResult | SmallestResult:
        find, _ = asked.find(question)
        found: RadiusResult | SmallestResult = find(**how)
        return found

    about = {**network_tree(view.points.network), **asked.how, "ties": asked.ties}
    search_folder(view, ask, how["progress"], about)


def _refuse_useless(ctx: typer.Context, point: CentreOptions, search: SearchOptions) -> None:
    """Raise if options are given that cannot be combined."""
    refuse_together(ctx, "exact", {"tolerance": "the search ends at the minimum"})
    refuse_without(ctx, "exact", ("grid", "within", *EXACT_FILES))
    if point.norm in SHAPES:
        for flag, given in (("--exact", search.exact), ("--tolerance", search.tolerance)):
            if given:
                raise InputError(
                    f"{flag} is not used with --norm {point.norm}: its radius is exact"
                )
    if point.norm == "l0" and not search.exact:
        raise InputError("--norm l0 has whole numbers for radii; give --exact")


def _show(unit: RadiusUnit, consoles: Consoles, result: RadiusResult) -> dict[str, Any]:
    """Print the radii and the counterexample, if there is one; return them for JSON."""
    if consoles.verbose:
        consoles.details.print(probe_table(result.probes, unit.text))
    if consoles.quiet:
        sure, false = radius_texts(result, unit)
        consoles.answer.print(f"certified radius {sure}, falsified radius {false}", soft_wrap=True)
    consoles.details.print(radius_table(result, unit))
    found = result.counterexample
    if found is not None:
        place = f" ({found.place})" if found.place else ""
        line = f"counterexample for {found.target}{place}, {replay_text(found)}"
        consoles.details.print(line, soft_wrap=True)
    elif result.lower >= result.limit:
        reach = "the whole data box" if result.covers_data else "the largest radius looked at"
        consoles.details.print(f"robust up to {reach}", soft_wrap=True)
    return result.to_dict()
