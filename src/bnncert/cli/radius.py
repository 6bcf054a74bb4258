"""`bnncert radius`: the largest certified and the smallest falsified radius, or the minimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.answer_view import AnswerView, begin_at
from bnncert.cli.files import network_tree, refuse_clashes
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallShape,
    CentreOptions,
    CounterexampleOutputs,
    GridOption,
    ModelOptions,
    PrintOptions,
    ScalingOptions,
    SharedMethodOptions,
    TiesOption,
    WithinOption,
    read_clip,
)
from bnncert.cli.result_views import replay_text
from bnncert.cli.time_limit import finite_limit, limit_text
from bnncert.errors import FormatError, InputError

if TYPE_CHECKING:
    from bnncert.cli.command_question import AskedPoints, CommandQuestion
    from bnncert.problem import Ties
    from bnncert.questions.radius.radius_answer import RadiusResult, SmallestResult
    from bnncert.questions.radius.smallest import Known
    from bnncert.regions.radii import RadiusUnit
    from bnncert.report.picture import CounterexampleFile


@dataclass(frozen=True)
class SearchOptions:
    """Where the search for the radius ends."""

    max_: Annotated[
        str | None, "Largest radius of interest, also as in 3px; radii are shown in its unit."
    ] = None
    tolerance: Annotated[
        str | None, "Gap to end at, also as in 0.1px (default: 1 % of the falsified radius)."
    ] = None
    exact: Annotated[
        bool, "Find the smallest perturbation itself, on the inputs of --grid or for --norm l0."
    ] = False
    grid: GridOption = None
    within: WithinOption = None

    def limits(
        self, points: AskedPoints, clip: tuple[float, float] | None
    ) -> tuple[AskedPoints, float | None, float | None]:
        """Return the largest radius and the gap to end at, in input units.

        The points get the unit of the largest radius.
        """
        from bnncert.cli.command_question import radius_option

        about, limit, gap = (points.network, points.balls.norm, clip), None, None
        if self.max_ is not None:
            limit, unit = radius_option(self.max_, *about, name="max")
            points = replace(points, unit=unit)
        if self.tolerance is not None:
            gap, _ = radius_option(self.tolerance, *about, name="tolerance")
        return points, limit, gap


@dataclass(frozen=True)
class RadiusOutputs(CounterexampleOutputs):
    """The files that a search writes; all but JSON belong to `--exact`."""

    certificate: Annotated[
        Path | None, "With --exact: write a proof of the certified side for `check`."
    ] = None


@grouped
def radius(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    point: CentreOptions,
    search: SearchOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    settings: SharedMethodOptions,
    outputs: RadiusOutputs,
    resume: Annotated[
        Path | None, "With --exact: continue from the --json file of a search."
    ] = None,
    printing: PrintOptions,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    from bnncert.cli.command_question import read_points
    from bnncert.cli.image_folders import FolderView, search_folder
    from bnncert.cli.progress import watch
    from bnncert.questions.radius.radius import radius as radius_api
    from bnncert.questions.radius.smallest import smallest

    point, consoles = begin_at(point, ctx, source, settings, outputs, printing)
    method = settings.method
    # The JSON file may replace the one from which the search continues.
    refuse_clashes((outputs.certificate, outputs.save_counterexample), (resume,))
    _refuse_useless(ctx, point, search)
    if point.input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = source.read(settings.sign_zero)
    shape = BallShape(point.norm, "0", search.within, search.grid, point.value)
    points = read_points(network, point, shape, scaling)
    points, maximum, gap = search.limits(points, read_clip(scaling.clip))
    consoles.details.notes(points.data.notes)
    how = {"method": method, "seed": settings.seed}

    def ask(question: CommandQuestion, known: Known | None = None, **how: Any) -> Any:
        how |= {"rivals": points.rivals, "ties": ties, "method": method, "maximum": maximum}
        if search.exact:
            return smallest(question.network, question.ball, question.label, known=known, **how)
        # The l0 norm and a certificate need --exact.
        how.pop("certificate", None)
        return radius_api(question.network, question.region, question.label, tolerance=gap, **how)

    with settings.connected(consoles.watching.say) as options:
        if points.is_folder:
            about = {**network_tree(points.network), **how, "ties": ties}
            limit = finite_limit(settings.timeout)
            text = limit_text(ctx, settings.timeout, " for each image")
            files = outputs.files | ({"--resume": resume} if resume else {})
            folder = FolderView(points, consoles, source.model.name, text, outputs.json_, files)
            with watch(consoles.watching) as progress:
                each = partial(ask, timeout=limit, options=options, progress=progress)
                search_folder(folder, each, progress, about)
        question = points.question(points.index)
        known: Known | None = None
        view: AnswerView[Any]
        if search.exact:
            stated = _stated(question, ties)
            saved = question.counterexample_file(outputs.save_counterexample)
            known = None if resume is None else _known(resume, question, stated)
            view = _SmallestView(consoles, outputs, partial(question.about, **how, **stated), saved)
        else:
            view = _RadiusView(consoles, outputs, partial(question.about, **how), question.unit)
        view.ask(
            ctx,
            f"{source.model.name}, {question.title}: {question.label_text}, norm {point.norm}",
            settings.timeout,
            partial(ask, question, known, options=options),
        )


def _refuse_useless(ctx: typer.Context, point: CentreOptions, search: SearchOptions) -> None:
    """Raise if options are given that cannot be combined."""
    from bnncert.cli.grouping import refuse_together, refuse_without
    from bnncert.regions import SHAPES

    refuse_together(ctx, "exact", {"tolerance": "the search ends at the minimum"})
    files = ("certificate", "save_counterexample", "resume")
    refuse_without(ctx, "exact", ("grid", "within", *files))
    if point.norm in SHAPES:
        for flag, given in (("--exact", search.exact), ("--tolerance", search.tolerance)):
            if given:
                raise InputError(
                    f"{flag} is not used with --norm {point.norm}: its radius is exact"
                )
    if point.norm == "l0" and not search.exact:
        raise InputError("--norm l0 has whole numbers for radii; give --exact")


@dataclass(frozen=True, eq=False)
class _RadiusView(AnswerView["RadiusResult"]):
    """Prints the two sides of a search."""

    unit: RadiusUnit

    def print_answer(self, found: RadiusResult) -> None:
        """Print the radii and the counterexample, if there is one."""
        from bnncert.report.summary import probe_table, radius_table, radius_texts

        consoles, unit = self.consoles, self.unit
        if consoles.verbose:
            consoles.details.print(probe_table(found.probes, unit.text))
        if consoles.quiet:
            sure, false = radius_texts(found, unit)
            line = f"certified radius {sure}, falsified radius {false}"
            consoles.answer.say(line)
        consoles.details.print(radius_table(found, unit))
        shown = found.counterexample
        if shown is not None:
            place = f" ({shown.place})" if shown.place else ""
            line = f"counterexample for {shown.target}{place}, {replay_text(shown)}"
            consoles.details.say(line)
        elif found.lower >= found.limit:
            reach = "the whole data box" if found.covers_data else "the largest radius looked at"
            consoles.details.say(f"robust up to {reach}")


#: The fields of a JSON file that have to be equal for a search to continue from it.
QUESTION = ("network_hash", "sign_zero", "ties", "rivals", "label", "region")


def _stated(question: CommandQuestion, ties: Ties) -> dict[str, Any]:
    """Return what the JSON file of `--exact` states about its question, besides the network."""
    chosen = question.rivals
    return {
        "ties": ties,
        "rivals": list(chosen) if isinstance(chosen, tuple) else chosen,
        "label": question.label,
        "region": question.region.to_dict(),
    }


def _known(path: Path, question: CommandQuestion, stated: dict[str, Any]) -> Known:
    """Return the state of the search in a JSON file, which must have the same question."""
    import numpy as np

    from bnncert.model.formats.file_content import parse_json, read_bytes
    from bnncert.questions.radius.smallest import Known

    tree = parse_json(read_bytes(path), str(path))
    try:
        asked = {name: tree[name] for name in QUESTION}
        certified, witness = tree["counts"]["certified"], tree["witness"]
        point = None if witness is None else np.array(witness["input"], dtype=np.float64)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: not a file that `radius --exact --json` wrote") from error
    for name, value in {**network_tree(question.network), **stated}.items():
        if name in asked and asked[name] != value:
            raise InputError(f"{path}: a search about another question ({name} differs)")
    is_count = certified is None or (type(certified) is int and certified >= 0)
    if not is_count or (point is not None and point.shape != (len(asked["region"]["center"]),)):
        raise FormatError(f"{path}: not a file that `radius --exact --json` wrote")
    return Known(certified, point)


@dataclass(frozen=True, eq=False)
class _SmallestView(AnswerView["SmallestResult"]):
    """Prints the smallest perturbation; the search can be continued from its JSON file."""

    saved: CounterexampleFile | None

    def print_answer(self, found: SmallestResult) -> None:
        """Print both sides and the witness."""
        from bnncert.report.summary import probe_table, smallest_table

        if self.consoles.verbose:
            self.consoles.details.print(probe_table(found.probes, found.counts.text))
        self.consoles.details.print(smallest_table(found))
        self.consoles.answer.say(_sentence(found))

    def print_certificate(self, found: SmallestResult, *, is_interrupted: bool) -> None:
        """Print up to where the certificate proves robustness, or why there is none."""
        console = self.consoles.details
        if found.certificate is not None:
            sure = found.counts.text(found.certified)
            console.print(f"certificate: {found.certificate} (robust up to {sure})")
        elif found.no_certificate:
            console.say(f"the proof is not written: {found.no_certificate}")

    def written(self, found: SmallestResult, *, is_interrupted: bool) -> Iterator[str]:
        """Write the witness."""
        if self.saved is not None:
            yield self.saved.write(found.witness)


def _sentence(result: SmallestResult) -> str:
    """Say what the minimum is, or how far it is open."""
    found, counts = result.witness, result.counts
    if result.minimum == 0 and found is not None:
        return f"the input itself is a counterexample for {found.target}, {replay_text(found)}"
    if result.minimum is not None and found is not None:
        distance = f"{counts.radius(result.minimum):.6g}"
        what = f"smallest perturbation: {counts.text(result.minimum)}"
        if result.norm != "l0":
            what += f" ({distance} in input units)"
        return f"{what}, {found.target}, {replay_text(found)}"
    if found is not None:
        return f"the minimum is open; counterexample for {found.target}, {replay_text(found)}"
    if result.is_closed:
        reach = "the data box" if result.covers_data else "the largest radius looked at"
        return f"no perturbation within {reach} changes the class"
    return "the minimum is open; no counterexample was found"
