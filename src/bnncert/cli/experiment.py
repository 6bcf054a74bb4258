"""`bnncert experiment`: the experiments of a configuration file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.batches import PlaceOptions, refuse_failures, run_shown
from bnncert.cli.completion import among
from bnncert.cli.files import refuse_clashes, refuse_unwritable
from bnncert.cli.grouping import grouped
from bnncert.cli.options import GridOption, LabelsOption, PrintOptions
from bnncert.deadline import Deadline
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.results.configuration import Configuration
    from bnncert.results.instance import InstanceGroup
    from bnncert.results.plan import Plan
    from bnncert.results.runner import AnsweredInstances, Place


def _configurations(incomplete: str) -> list[str]:
    """Return the bundled configurations that begin with a text."""
    from bnncert.results.config_file import shipped_names

    return among(shipped_names(), files=True)(incomplete)


@dataclass(frozen=True)
class ChangeOptions:
    """Options that select instances of the configuration, or replace its values."""

    network: Annotated[
        list[str] | None,
        "NAME: only this network; NAME=FILE: the file of a network; may be repeated.",
    ] = None
    radius: Annotated[str | None, "Only the radii R1,R2,.. of the file, as in 0.25delta."] = None
    method: Annotated[str | None, "Only the methods M1,M2,.. of the file."] = None
    data: Annotated[str | None, "Points, as for `bnncert run`."] = None
    labels: LabelsOption = None
    count: Annotated[int | None, "The most points of each part."] = None
    timeout: Annotated[float | None, "Seconds for each instance."] = None
    grid: GridOption = None


@grouped
def experiment(
    *,
    ctx: typer.Context,
    config: Annotated[
        str,
        typer.Argument(
            help="A .yaml or .json file, or a bundled name such as paper-linf.",
            autocompletion=_configurations,
        ),
    ],
    out: Annotated[
        Path | None, "SQLite file of the results; resumed (default: CONFIG.sqlite)."
    ] = None,
    dry_run: Annotated[bool, "Print the plan and its size."] = False,
    at_work: PlaceOptions,
    changes: ChangeOptions,
    certificate: Annotated[
        Path | None, "Folder of the certificates (default: beside --out)."
    ] = None,
    printing: PrintOptions,
) -> None:
    """Run the experiments of a file; the same command again continues an interrupted run."""
    from bnncert.cli.consoles import Consoles
    from bnncert.results.config_file import find_configuration
    from bnncert.results.plan import plan_experiment

    consoles = Consoles.of(ctx, printing, width=200)
    place, path = at_work.place(ctx, consoles), find_configuration(config)
    target = Path(f"{path.stem}.sqlite") if out is None else out
    refuse_unwritable(target)
    configuration = _configuration(path, changes)
    if certificate is not None and not any(p.certificates for p in configuration.parts):
        raise InputError(f"--certificate is not used: no part of {path} has `certificates: true`")
    refuse_clashes((target,), (path, *configuration.files))
    plan = plan_experiment(configuration)
    if dry_run:
        _show_plan(plan, target, place.workers)
    else:
        _run(plan, target, place, certificate, consoles)


def _configuration(path: Path, changes: ChangeOptions) -> Configuration:
    """Read a configuration and apply the options of the command line."""
    from bnncert.cli.command_question import grid_option
    from bnncert.results.configuration import read_configuration, selected, with_changes

    if changes.timeout is not None:
        Deadline(changes.timeout)
    files, only = _networks(changes.network or ())
    return with_changes(
        selected(
            read_configuration(path),
            networks=only,
            radii=() if changes.radius is None else changes.radius.split(","),
            methods=() if changes.method is None else changes.method.split(","),
        ),
        networks=files,
        data=changes.data,
        labels=changes.labels,
        count=changes.count,
        timeout=changes.timeout,
        grid=None if changes.grid is None else grid_option(changes.grid),
    )


def _run(
    plan: Plan, target: Path, place: Place, certificates: Path | None, consoles: Consoles
) -> None:
    """Run a plan and print the results."""
    from bnncert.report.summary import experiment_table
    from bnncert.results.runner import default_folder
    from bnncert.results.store import ResultsFile

    with ResultsFile(target) as results:

        def show_rows(rows: AnsweredInstances) -> None:
            consoles.details.print(experiment_table(rows))

        finished = run_shown(plan, results, place, certificates, consoles, show_rows)
    total = len(plan.instances)
    consoles.answer.say(f"{len(finished.rows)} of {total} instances in {target}")
    written = sum(row.certificate is not None for _, row in finished.rows)
    if written:
        folder = certificates or default_folder(target)
        consoles.details.say(f"{written} with a certificate, in {folder}")
    refuse_failures(finished.failures, total, consoles.answer)


def _networks(texts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Read texts NAME=FILE and NAME: files by name, and the networks to which NAME restricts."""
    files, names = dict[str, str](), list[str]()
    restricted = not all("=" in text for text in texts)
    for text in texts:
        name, equals, file = text.partition("=")
        if not name or (equals and not file):
            raise InputError(f"--network is {text!r}; expected NAME or NAME=FILE")
        names.append(name)
        if equals:
            files[name] = file
    return files, names if restricted else []


def _show_plan(plan: Plan, target: Path, workers: int) -> None:
    """Print the planned instances, and how many the results file answers already."""
    from bnncert.cli.consoles import wide_console
    from bnncert.report.summary import plan_table
    from bnncert.results.runner import duration, finished_rows
    from bnncert.results.store import ResultsFile

    console = wide_console(200)
    answered: dict[InstanceGroup, int] = {}
    if target.exists():
        with ResultsFile(target, writable=False) as results:
            for instance, _ in finished_rows(plan, results):
                answered[instance.group] = answered.get(instance.group, 0) + 1
    console.notes(plan.notes)
    planned = plan.groups()
    console.print(plan_table(planned, answered))
    left = {kind: count - answered.get(kind, 0) for kind, count in planned.items()}
    most = sum(kind.most_seconds(count) for kind, count in left.items() if count)
    time_text = "no limit" if math.isinf(most) else f"at most {duration(most)}"
    total, known = len(plan.instances), sum(answered.values())
    line = f"{total} instances, {known} in {target} already; {time_text} of work"
    if workers > 1 and math.isfinite(most):
        line += f", {duration(most / workers)} with {workers} workers"
    console.say(line)
