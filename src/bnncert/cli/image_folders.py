"""The questions of `verify` and `radius` about all images of a folder: a line for each, a total.

`verify` answers them as `run` does, with a results file that is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import typer
from rich.text import Text

from bnncert.cli.batches import refuse_failures
from bnncert.cli.command_question import AskedPoints, CommandQuestion
from bnncert.cli.consoles import Consoles
from bnncert.cli.exit_codes import exit_code
from bnncert.cli.files import network_tree, refuse_clashes, write_json
from bnncert.cli.options import SharedMethodOptions
from bnncert.cli.progress import LiveLine, watch
from bnncert.cli.result_views import has_margin, question_tree, totals_text
from bnncert.cli.time_limit import finite_limit
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.questions.radius.radius_answer import RadiusResult, SmallestResult

if TYPE_CHECKING:
    from bnncert.problem import Ties
    from bnncert.problem.problem import Arithmetic
    from bnncert.results.instance import InstanceAnswer

FoundRadius: TypeAlias = RadiusResult | SmallestResult


@dataclass(frozen=True, eq=False)
class FolderView:
    """Prints the answers about a folder; `model` and `limit` are for the title."""

    points: AskedPoints
    consoles: Consoles
    model: str
    limit: str
    #: The target of --json, and all files that are named, by their options.
    json_: str | None
    files: dict[str, Path]
    #: The answers for JSON so far.
    trees: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise if files are named that belong to one image, or if JSON would overwrite an image.

        The table of the classes belongs to the folder as its images do.
        """
        points = self.points
        for option, file in self.files.items():
            if option != "--json":
                raise InputError(
                    f"{option} is a file about one input, and {points.text} is a folder of "
                    f"{len(points.data.names)} images; choose one with --index, or see bnncert run"
                )
            images = [Path(points.source) / name for name in points.data.names]
            refuse_clashes((file,), (*images, points.data.labels_where or None))

    @contextmanager
    def answers(
        self, progress: LiveLine, what: str, about: dict[str, Any], total: Callable[[float], str]
    ) -> Iterator[None]:
        """Print the title before the answers that are given inside, and then `total`; write JSON.

        `what` names the question, and `about` is what all answers have in common.  After Ctrl-C the
        total and the JSON are those of the finished images.
        """
        ended = ""
        data, started = self.points.data, time.monotonic()
        labels = f"labels: {data.labels_where}"
        if self.points.label is not None:
            labels = f"label {self.points.label}"
        elif data.labels is None:
            labels = "labels: the network's own answers"
        images = f"{self.points.text}: {len(data.names)} image(s)"
        with progress.paused():
            title = f"{self.model}, {images}, {what}; {labels}; {self.limit}"
            self.consoles.details.say(title)
        tree = {**about, "input": self.points.text, "images": self.trees}
        try:
            yield
        except KeyboardInterrupt:
            write_json(self.json_, {**tree, "interrupted": True})
            ended = f" (interrupted after {len(self.trees)} of {len(data.names)} images)"
            raise
        finally:
            with progress.paused():
                text = f"{total(time.monotonic() - started)}{ended}"
                self.consoles.answer.say(text)
        write_json(self.json_, tree)

    def line(self, index: int, label: int, text: Text, seconds: float) -> Text:
        """Return the line of an image."""
        names = self.points.data.names
        start = f"{names[index].ljust(max(map(len, names)))}  label {label}  "
        return Text.assemble(start, text, f"  {seconds:.2f} s")


def verify_folder(
    view: FolderView, ties: Ties, settings: SharedMethodOptions, arithmetic: Arithmetic
) -> NoReturn:
    """Verify all images of a folder; the time limit holds for each, and the exit code is of all."""
    import numpy as np

    from bnncert.results.instance import Settings
    from bnncert.results.plan import plan_run
    from bnncert.results.runner import Place, run_plan
    from bnncert.results.store import ResultsFile

    points, consoles = view.points, view.consoles
    how = Settings(
        *(points.balls.norm, points.rivals, ties, settings.method, finite_limit(settings.timeout)),
        *(settings.seed, settings.memory),
        grid=points.grid,
        within=points.within,
        value=points.balls.value,
        arithmetic=arithmetic,
        processes=settings.processes,
        solver=settings.solver,
    )
    data, results_so_far = points.data, list[Result]()
    if points.label is not None:
        labels = np.full(len(data.names), points.label)
        data = replace(data, labels=labels, labels_where="--label")
    assert points.radius is not None
    plan = plan_run(points.network, data, [points.radius], clip=points.clip, settings=how)
    consoles.details.notes(plan.notes[len(data.notes) :])
    about = {"seed": settings.seed, "arithmetic": arithmetic}

    def report(done: int, total: int, answer: InstanceAnswer | None) -> None:
        if answer is None or answer.result is None:
            return
        key, found = answer.instance.key, answer.result
        results_so_far.append(found)
        image = str(Path(points.source) / data.names[key.input_index])
        stated = {"input": image, "labels": answer.instance.labels, **about}
        asked = question_tree(points.network, answer.instance.ball, **stated)
        view.trees.append({**asked, **found.to_dict()})
        with progress.paused():
            line = view.line(key.input_index, key.label, _verdict(found), found.seconds)
            consoles.details.say(line)

    with (
        TemporaryDirectory(prefix="bnncert-") as folder,
        ResultsFile(Path(folder) / "results.sqlite") as results,
        watch(consoles.watching) as progress,
        view.answers(
            progress,
            points.question(0).ball_text,
            network_tree(points.network),
            lambda seconds: totals_text(results_so_far, seconds),
        ),
    ):
        place = Place(scheduler=settings.cluster, say=consoles.watching.say, watch=progress)
        finished = run_plan(plan, results, place=place, progress=report)
    refuse_failures(finished.failures, len(plan.instances), consoles.answer)
    raise typer.Exit(exit_code(*results_so_far))


def _verdict(result: Result) -> Text:
    """Return the answer, and the margin or the class of the counterexample."""
    from bnncert.engine.answer import lower_text
    from bnncert.report.tables import number, status_text

    found = result.counterexample
    answer = status_text(result)
    answer.pad_right(max(0, len("misclassified") - len(answer)))
    if found is not None:
        tie = f" ({found.tie_text})" if found.tie else ""
        return Text.assemble(answer, f"  {found.target}, margin {number(float(found.value))}{tie}")
    if has_margin(result):
        return Text.assemble(answer, f"  margin at least {lower_text(result.lower)}")
    return answer


def search_folder(
    view: FolderView,
    ask: Callable[[CommandQuestion], FoundRadius],
    progress: LiveLine,
    about: dict[str, Any],
) -> NoReturn:
    """Search around one image after the other; the time limit holds for each."""
    points, answers = view.points, list[FoundRadius]()
    # All questions are made first: a wrong label is reported before the first answer.
    questions = list(points.questions())
    norm, total = f"norm {points.balls.norm}", lambda s: f"{len(view.trees)} image(s) in {s:.1f} s"
    with view.answers(progress, norm, about, total):
        for index, question in enumerate(questions):
            found = ask(question)
            answers.append(found)
            stated = {"input": question.where, "labels": question.labels, "label": question.label}
            view.trees.append({**stated, **found.to_dict()})
            with progress.paused():
                # With -q as well: the total does not state the answers.
                text = _radii(points, found)
                view.consoles.answer.say(view.line(index, question.label, text, found.seconds))
    raise typer.Exit(exit_code(*answers))


def _radii(points: AskedPoints, found: FoundRadius) -> Text:
    """Show both sides of a search in the unit of --max."""
    from bnncert.report.summary import radius_texts

    if isinstance(found, SmallestResult):
        lower, upper = map(found.counts.text, (found.certified, found.falsified))
    else:
        lower, upper = radius_texts(found, points.unit)
    return Text(f"certified {lower}, falsified {upper}")
