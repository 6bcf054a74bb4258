"""The questions of `verify` and `radius` about all images of a folder: a line for each, a total."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rich.console import Console
from rich.text import Text

from bnncert.cli.command_question import AskedPoints, CommandQuestion
from bnncert.cli.consoles import Talk
from bnncert.cli.output import refuse_clashes, write_json
from bnncert.cli.progress import LiveLine
from bnncert.cli.result_views import has_margin, network_tree, result_tree, totals_text
from bnncert.engine.rounded_bounds import lower_text
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.questions.radius.radius_answer import RadiusResult, SmallestResult
from bnncert.report.summary import radius_texts
from bnncert.report.tables import number, status_text

ResultT = TypeVar("ResultT", Result, RadiusResult | SmallestResult)


@dataclass(frozen=True, eq=False)
class FolderView(Generic[ResultT]):
    """Shows the answers about a folder; a subclass states the line of an image and the total."""

    points: AskedPoints
    talk: Talk
    #: The name of the network, and the time limit in words.
    model: str
    limit: str
    #: Whether -q prints the lines of the images: it does if the total does not state the answers.
    lines_are_answers: ClassVar[bool] = False

    def about(self, question: CommandQuestion) -> str:
        """Return what the questions have in common."""
        raise NotImplementedError

    def line(self, result: ResultT) -> Text:
        """Return what the line of an image states after its name and label."""
        raise NotImplementedError

    def total(self, results: Sequence[ResultT], seconds: float) -> str:
        """Return the last line."""
        raise NotImplementedError

    def tree(
        self, answered: Sequence[tuple[CommandQuestion, ResultT]], about: dict[str, Any]
    ) -> dict[str, Any]:
        """Return all answers for JSON; `about` is what they have in common."""
        raise NotImplementedError

    def answer(
        self,
        ask: Callable[[CommandQuestion], ResultT],
        progress: LiveLine,
        about: dict[str, Any],
        json_: str | None,
    ) -> None:
        """Ask about one image after the other, and write all answers to the target of --json.

        After Ctrl-C the total and the JSON are those of the finished images.
        """
        names, started = self.points.data.names, time.monotonic()
        # All questions are made first: a wrong label is reported before the first answer.
        questions = list(self.points.questions())
        width = max(map(len, names))
        answered: list[tuple[CommandQuestion, ResultT]] = []
        with progress.paused():
            self.talk.details.print(self._title(questions[0]), soft_wrap=True)
        try:
            for name, question in zip(names, questions, strict=True):
                result = ask(question)
                answered.append((question, result))
                with progress.paused():
                    start = f"{name.ljust(width)}  label {question.label}  "
                    text = Text.assemble(start, self.line(result), f"  {result.seconds:.2f} s")
                    console = self.talk.answer if self.lines_are_answers else self.talk.details
                    console.print(text, soft_wrap=True)
        except KeyboardInterrupt:
            write_json(json_, {**self.tree(answered, about), "interrupted": True})
            raise
        finally:
            with progress.paused():
                total = self.total([r for _, r in answered], time.monotonic() - started)
                if len(answered) < len(questions):
                    total += f" (interrupted after {len(answered)} of {len(questions)} images)"
                self.talk.answer.print(total, soft_wrap=True)
        write_json(json_, self.tree(answered, about))

    def _title(self, question: CommandQuestion) -> str:
        """Return the line above the answers."""
        data = self.points.data
        labels = f"labels: {data.labels_where}"
        if self.points.label is not None:
            labels = f"label {self.points.label}"
        elif data.labels is None:
            labels = "labels: the network's own answers"
        images = f"{self.points.text}: {len(data.names)} image(s)"
        return f"{self.model}, {images}, {self.about(question)}; {labels}; {self.limit}"


class VerifiedFolder(FolderView[Result]):
    """The answers of `verify`."""

    def about(self, question: CommandQuestion) -> str:
        """Return the ball, which has the same radius around each image."""
        return question.ball_text

    def line(self, result: Result) -> Text:
        """Return the answer, and the margin or the class of the counterexample."""
        found = result.counterexample
        answer = status_text(result)
        answer.pad_right(max(0, len("misclassified") - len(answer)))
        if found is not None:
            tie = f" ({found.tie_text})" if found.tie else ""
            margin = f"margin {number(float(found.value))}{tie}"
            return Text.assemble(answer, f"  {found.target}, {margin}")
        if has_margin(result):
            return Text.assemble(answer, f"  margin at least {lower_text(result.lower)}")
        return answer

    def total(self, results: Sequence[Result], seconds: float) -> str:
        """Return how many images have each answer."""
        return totals_text(results, seconds)

    def tree(
        self, answered: Sequence[tuple[CommandQuestion, Result]], about: dict[str, Any]
    ) -> dict[str, Any]:
        """Return all answers for JSON."""
        return {
            **network_tree(self.points.network),
            "input": self.points.text,
            "images": [
                result_tree(q.network, r, q.region, {"input": q.where, "labels": q.labels, **about})
                for q, r in answered
            ],
        }


class RadiiOfFolder(FolderView[RadiusResult | SmallestResult]):
    """The answers of `radius`."""

    lines_are_answers = True

    def about(self, question: CommandQuestion) -> str:
        """Return the norm."""
        return f"norm {self.points.balls.norm}"

    def line(self, result: RadiusResult | SmallestResult) -> Text:
        """Return both sides of the search."""
        if isinstance(result, SmallestResult):
            text = result.counts.text
            sides = {"certified": text(result.certified), "falsified": text(result.falsified)}
        else:
            lower, upper = radius_texts(result, self.points.unit)
            sides = {"certified": lower, "falsified": upper}
        return Text(", ".join(f"{name} {value}" for name, value in sides.items()))

    def total(self, results: Sequence[RadiusResult | SmallestResult], seconds: float) -> str:
        """Return the number of images and the time."""
        return f"{len(results)} image(s) in {seconds:.1f} s"

    def tree(
        self,
        answered: Sequence[tuple[CommandQuestion, RadiusResult | SmallestResult]],
        about: dict[str, Any],
    ) -> dict[str, Any]:
        """Return all answers for JSON."""
        images = [
            {"input": q.where, "labels": q.labels, "label": q.label, **r.to_dict()}
            for q, r in answered
        ]
        return {**about, "input": self.points.text, "images": images}


def refuse_single_files(points: AskedPoints, files: dict[str, Path | None]) -> None:
    """Raise if files are named that hold the answer about one image; `files` are by option."""
    for option, file in files.items():
        if file is not None:
            raise InputError(
                f"{option} is a file about one input, and {points.text} is a folder of "
                f"{len(points.data.names)} images; choose one with --index, or see bnncert run"
            )


def refuse_overwriting(points: AskedPoints, target: Path | None) -> None:
    """Raise if an output is one of the images of a folder, or the table of their classes."""
    images = [Path(points.source) / name for name in points.data.names]
    refuse_clashes((target,), (*images, points.data.labels_where or None))


def show_notes(points: AskedPoints, console: Console) -> None:
    """Print what was converted when the points were read."""
    for note in points.data.notes:
        console.print(f"note: {note}", soft_wrap=True)
