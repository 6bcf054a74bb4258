"""`bnncert experiment`: everything that a configuration file asks for."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bnncert.batch.answering import Answer
from bnncert.batch.config.configuration import read_configuration, with_changes
from bnncert.batch.config.shipped import find_configuration
from bnncert.batch.estimate import Estimate, duration
from bnncert.batch.planning import Experiment, Group, group_of, groups, plan_experiment
from bnncert.batch.running import (
    Finished,
    Place,
    default_folder,
    finished_jobs,
    run_experiment,
)
from bnncert.batch.store import ResultsFile
from bnncert.commands.console import PlainConsole, counting, say_interrupted
from bnncert.commands.options import LabelsOption
from bnncert.commands.output import refuse_clashes, refuse_unwritable
from bnncert.commands.unused import refuse_together
from bnncert.deadline import Deadline
from bnncert.errors import BnncertError, InputError
from bnncert.report.experiment_tables import experiment_table, plan_table

#: Seconds between two lines where no terminal shows a bar.
LINE_SECONDS = 30.0

#: Reasons for missing answers that are shown one by one.
MOST_REASONS = 10


def experiment(
    ctx: typer.Context,
    config: Annotated[
        str, typer.Argument(help="A .yaml or .json file, or a bundled name such as paper-linf.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="SQLite file of the results; resumed (default: CONFIG.sqlite)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its size.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", help="Processes at work at once (0: none but this one).")
    ] = 1,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Address of a Dask scheduler to work on.")
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", help="NAME=FILE: the file of a network; may be repeated."),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Points: FILE.npz, FILE.npz:KEY or .npy.")
    ] = None,
    labels: LabelsOption = None,
    count: Annotated[
        int | None, typer.Option("--count", help="At most so many points of each part.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for each instance.")
    ] = None,
    certificates: Annotated[
        Path | None,
        typer.Option("--certificates", help="Folder of the certificates (default: beside --out)."),
    ] = None,
) -> None:
    """Run the experiments of a file; the same command again goes on where it stopped."""
    refuse_together(
        ctx, "scheduler", {"workers": "the workers of the scheduler answer, not processes here"}
    )
    path = find_configuration(config)
    place = Place(workers, scheduler)
    if timeout is not None:
        Deadline(timeout)
    files = {}
    for text in network or ():
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise InputError(f"--network is {text}; expected NAME=FILE")
        files[name] = file
    target = Path(f"{path.stem}.sqlite") if out is None else out
    refuse_unwritable(target)
    configuration = with_changes(
        read_configuration(path),
        networks=files,
        data=data,
        labels=labels,
        count=count,
        timeout=timeout,
    )
    if certificates is not None and not any(p.certificates for p in configuration.parts):
        raise InputError(f"--certificates is not used: no part of {path} says `certificates: true`")
    refuse_clashes((target,), (path, *configuration.files))
    planned = plan_experiment(configuration)
    if dry_run:
        _show_plan(planned, target, workers)
        return
    with ResultsFile(target) as results:
        _run(planned, results, place, certificates)


def _console() -> PlainConsole:
    """Return a console with room for the tables where no terminal sets the width."""
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=200)


def _show_plan(planned: Experiment, target: Path, workers: int) -> None:
    """Print what would be asked, and what the results file answers already."""
    console = _console()
    answered: dict[Group, int] = {}
    if target.exists():
        with ResultsFile(target, writable=False) as results:
            for job, _ in finished_jobs(planned, results):
                answered[group_of(job)] = answered.get(group_of(job), 0) + 1
    for note in planned.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(plan_table(groups(planned.jobs), answered))
    total, known = len(planned.jobs), sum(answered.values())
    most = 0.0
    for kind in groups(planned.jobs):
        open_ = kind.instances - answered.get(replace(kind, instances=0), 0)
        if open_:
            most += replace(kind, instances=open_).most_seconds
    time_text = "no limit" if math.isinf(most) else f"at most {duration(most)}"
    line = f"{total} instances, {known} in {target} already; {time_text} of work"
    if workers > 1 and math.isfinite(most):
        line += f", {duration(most / workers)} with {workers} workers"
    console.print(line, soft_wrap=True)


def _run(
    planned: Experiment, results: ResultsFile, place: Place, certificates: Path | None
) -> None:
    """Run with a bar on a terminal, lines elsewhere; Ctrl-C shows what there is and goes on up."""
    console, watching = _console(), PlainConsole(stderr=True)
    for note in planned.notes:
        console.print(f"note: {note}", soft_wrap=True)
    known, total = finished_jobs(planned, results), len(planned.jobs)
    if known:
        line = f"{len(known)} of {total} instances are in {results.path} already"
        console.print(line, soft_wrap=True)
    estimate = Estimate(planned.jobs)
    for job, row in known:
        estimate.finish(job, row.seconds)
    shown = time.monotonic()
    try:
        with counting(watching, "answering") as show:

            def report(done: int, total: int, answer: Answer | None) -> None:
                nonlocal shown
                text = ""
                if answer is not None:
                    estimate.finish(answer.job, 0.0 if answer.row is None else answer.row.seconds)
                    left = estimate.remaining(max(1, place.workers))
                    text = "" if left is None else f"about {duration(left)} left"
                show(done, total, text)
                if not watching.is_terminal and time.monotonic() - shown >= LINE_SECONDS:
                    shown = time.monotonic()
                    watching.print(
                        f"{done} of {total} instances{', ' + text if text else ''}", soft_wrap=True
                    )

            finished = run_experiment(
                planned, results, place=place, certificates=certificates, progress=report
            )
    except KeyboardInterrupt:
        rows = finished_jobs(planned, results)
        console.print(experiment_table(rows))
        say_interrupted(console, len(rows), total, results.path)
        raise
    _show_end(finished, planned, results, certificates)


def _show_end(
    finished: Finished, planned: Experiment, results: ResultsFile, certificates: Path | None
) -> None:
    console = _console()
    console.print(experiment_table(finished.rows))
    total = len(planned.jobs)
    console.print(f"{len(finished.rows)} of {total} instances in {results.path}", soft_wrap=True)
    written = sum(row.certificate is not None for _, row in finished.rows)
    if written:
        folder = certificates or default_folder(results.path)
        console.print(f"{written} with a certificate, in {folder}", soft_wrap=True)
    if finished.failures:
        for answer in finished.failures[:MOST_REASONS]:
            key = answer.job.instance.key
            console.print(
                f"no answer: {answer.job.network}, input {key.input_index}, {key.norm} "
                f"{answer.job.radius}, {key.method}: {answer.failure}",
                soft_wrap=True,
            )
        raise BnncertError(
            f"{len(finished.failures)} of {total} instances have no answer; the same command tries "
            "them again"
        )
