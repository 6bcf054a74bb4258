"""Running a plan with progress on a terminal, for `bnncert run` and `experiment`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.errors import BnncertError

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles, PlainConsole
    from bnncert.results.instance import InstanceAnswer
    from bnncert.results.plan import Plan
    from bnncert.results.runner import AnsweredInstances, Finished, Place
    from bnncert.results.store import ResultsFile


@dataclass(frozen=True)
class PlaceOptions:
    """Where instances are answered that are not answered together."""

    workers: Annotated[
        int, typer.Option("--processes", help="Processes at work at once (0: none but this one).")
    ] = 1
    scheduler: Annotated[str | None, "Address of a Dask scheduler to work on."] = None

    def place(self, ctx: typer.Context, consoles: Consoles) -> Place:
        """Return the place, or raise if both options name one."""
        from bnncert.cli.grouping import refuse_together
        from bnncert.results.runner import Place

        told = {"workers": "the workers of the scheduler answer, not processes here"}
        refuse_together(ctx, "scheduler", told)
        return Place(self.workers, self.scheduler, consoles.watching.say)


#: The largest number of reasons for missing answers that are printed.
MOST_REASONS = 10


def run_shown(
    plan: Plan,
    results: ResultsFile,
    place: Place,
    certificates: Path | None,
    consoles: Consoles,
    show_rows: Callable[[AnsweredInstances], None],
) -> Finished:
    """Run a plan and show its rows; after Ctrl-C show the rows so far and re-raise."""
    from bnncert.cli.consoles import say_interrupted
    from bnncert.cli.progress import watch
    from bnncert.results.runner import Estimate, duration, finished_rows, run_plan

    console = consoles.details
    console.notes(plan.notes)
    known, total = finished_rows(plan, results), len(plan.instances)
    if known:
        line = f"{len(known)} of {total} instances are in {results.path} already"
        console.say(line)
    estimate = Estimate(plan.instances)
    for instance, row in known:
        estimate.finish(instance, row.seconds)
    try:
        with watch(consoles.watching) as live:

            def report(done: int, total: int, answer: InstanceAnswer | None) -> None:
                if answer is not None:
                    seconds = 0.0 if answer.row is None else answer.row.seconds
                    estimate.finish(answer.instance, seconds)
                    if consoles.verbose:
                        with live.paused():
                            console.say(_line(answer))
                left = estimate.remaining(max(1, place.workers)) if done else None
                text = "" if left is None else f"about {duration(left)} left"
                live.show("answering", done, total, text)

            finished = run_plan(
                plan, results, place=place, certificates=certificates, progress=report
            )
    except KeyboardInterrupt:
        rows = finished_rows(plan, results)
        show_rows(rows)
        say_interrupted(console, len(rows), total, results.path)
        raise
    show_rows(finished.rows)
    return finished


def _line(answer: InstanceAnswer) -> str:
    """Return the question and the answer of one instance."""
    row = answer.row
    word = "no answer" if row is None else f"{row.status.replace('_', ' ')} in {row.seconds:.2f} s"
    return f"{_question(answer)}: {word}"


def _question(answer: InstanceAnswer) -> str:
    instance, key = answer.instance, answer.instance.key
    ball = f"{key.norm} {instance.radius}"
    return f"{instance.network}, input {key.input_index}, {ball}, {key.method}"


def refuse_failures(failures: Sequence[InstanceAnswer], total: int, console: PlainConsole) -> None:
    """Print why instances have no answer, and raise if there are any."""
    if not failures:
        return
    for answer in failures[:MOST_REASONS]:
        console.say(f"no answer: {_question(answer)}: {answer.failure}")
    raise BnncertError(
        f"{len(failures)} of {total} instances have no answer; the same command tries them again"
    )
