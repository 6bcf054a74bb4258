"""What the commands for one question share: checks before the work, asking, printing, writing.

A command is its options and its printing: it reads its question, and a subclass of
:class:`AnswerView` prints the answer.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn

import typer

from bnncert.cli.exit_codes import exit_code
from bnncert.cli.files import refuse_unwritable, write_json
from bnncert.cli.options import MethodOptions, ModelOptions, Outputs, PrintOptions
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.engine.answer import AnswerT, Interrupted

if TYPE_CHECKING:
    from bnncert.cli.command_question import CommandQuestion, PointT
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.progress import LiveLine
    from bnncert.results.rows import Kind


def begin(
    ctx: typer.Context,
    printing: PrintOptions,
    outputs: Outputs,
    read: Iterable[str | Path | None],
    method: str | None = None,
) -> Consoles:
    """Refuse options that the method does not use and files that cannot be written.

    `read` are the files that the command reads; the consoles of the command are returned.
    """
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.grouping import refuse_unread

    if method is not None:
        refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, stderr=outputs.json_ == "-")
    refuse_unwritable(*outputs.files.values(), read=read)
    return consoles


def begin_at(
    point: PointT,
    ctx: typer.Context,
    source: ModelOptions,
    settings: MethodOptions | None,
    outputs: Outputs,
    printing: PrintOptions,
) -> tuple[PointT, Consoles]:
    """Begin a question about a point, as :func:`begin`; return the point that the options name.

    Wrong values of the method's options are refused before a file is read.
    """
    from bnncert.cli.command_question import with_argument

    point = with_argument(point)
    method = None
    if settings is not None:
        settings.options()
        method = settings.method
    return point, begin(ctx, printing, outputs, (*source.files, *point.files), method)


@dataclass(frozen=True, eq=False)
class AnswerView(ABC, Generic[AnswerT]):
    """Asks the question of one command and shows its answer; a subclass prints it."""

    #: Whether the question itself calls `announce`, before its certificate is written.
    is_announced: ClassVar[bool] = False

    consoles: Consoles
    outputs: Outputs
    #: Returns what --json states about the question; called only if it is written, because the
    #: hash of a large network takes long.
    about: Callable[[], dict[str, Any]]

    @abstractmethod
    def print_answer(self, found: AnswerT) -> None:
        """Print the answer."""

    def print_unfinished(self, found: AnswerT) -> str:
        """Print what is known after Ctrl-C, and return how far the search came."""
        self.print_answer(found)
        return "the search is not finished"

    def code(self, found: AnswerT) -> int:
        """Return the exit code of an answer, that of all questions."""
        return exit_code(found)

    def written(self, found: AnswerT, *, is_interrupted: bool) -> Iterator[str]:
        """Write files besides the certificate and JSON; yield a line about each."""
        yield from ()

    def announce(self, progress: LiveLine, found: AnswerT) -> None:
        """Print the answer, under the line on the question."""
        progress.open()
        with progress.paused():
            self.print_answer(found)

    def ask(
        self,
        ctx: typer.Context,
        opening: str | None,
        timeout: float,
        question: Callable[..., AnswerT],
    ) -> NoReturn:
        """Ask the question, print the answer, write its files, and exit with its exit code.

        The question is called with the keywords `timeout`, `progress` and `certificate`, and with
        `announce` if it is announced.  The line `opening` on it ends with the time limit.  After
        Ctrl-C what is known is printed, and if the certificate cannot be written, the answer.
        """
        from bnncert.cli.progress import watch
        from bnncert.questions.prover import UnwrittenError

        later = None
        if opening is not None:
            later = self.consoles.details.later(f"{opening}; {limit_text(ctx, timeout)}")
        with watch(self.consoles.watching, finite_limit(timeout), later) as progress:
            how: dict[str, Any] = {"progress": progress, "certificate": self.outputs.certificate}
            if self.is_announced:
                how["announce"] = partial(self.announce, progress)
            try:
                found = question(timeout=remaining(timeout), **how)
            except Interrupted as stop:
                progress.open()
                with progress.paused():
                    far = self.print_unfinished(stop.answer)
                    self._write(stop.answer, is_interrupted=True)
                    line = f"interrupted after {stop.answer.seconds:.2f} s: {far}"
                    self.consoles.details.say(line)
                raise
            except UnwrittenError as error:
                if not self.is_announced:
                    self.announce(progress, error.answer)
                with progress.paused():
                    self._write(error.answer, is_certified=False)
                raise
            if not self.is_announced:
                self.announce(progress, found)
            # The live line redirects the standard output, also that of JSON.
            with progress.paused():
                self._write(found)
        raise typer.Exit(self.code(found))

    def _write(
        self, found: AnswerT, *, is_interrupted: bool = False, is_certified: bool = True
    ) -> None:
        """Write all files, and print a line on each; an error says if there is no certificate."""
        if self.outputs.certificate is not None and is_certified:
            self.print_certificate(found, is_interrupted=is_interrupted)
        for line in self.written(found, is_interrupted=is_interrupted):
            self.consoles.details.say(line)
        if self.outputs.json_ is not None:
            ended = {"interrupted": True} if is_interrupted else {}
            write_json(self.outputs.json_, {**self.about(), **found.to_dict(), **ended})

    def print_certificate(self, found: AnswerT, *, is_interrupted: bool) -> None:
        """Print where the certificate is, or why there is none."""
        if found.certificate is not None:
            size = Path(found.certificate).stat().st_size
            line = f"certificate: {found.certificate} ({size} bytes)"
        else:
            reason = "the search was interrupted" if is_interrupted else self.no_proof(found)
            # A note of `verify` says so itself.
            reason = (found.no_certificate or reason).removeprefix("no certificate: ")
            line = f"no certificate: {reason}"
        self.consoles.details.say(line)

    def no_proof(self, found: AnswerT) -> str:
        """Return why a finished question has no certificate, if its answer does not say it."""
        return "there is no proof"


#: Fields of an answer that hold whole points; `--json` and certificates have them.
_POINTS = frozenset({"witness", "witnesses", "counterexample", "steps", "region"})


@dataclass(frozen=True, eq=False)
class RecordedView(AnswerView[AnswerT]):
    """Adds the answer to a results file as well, if `--results` names one."""

    kind: Kind
    question: CommandQuestion
    #: The region in words, and what distinguishes the question from others about it.
    region: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise before the work if the file exists and is not a results file."""
        path = self.outputs.files.get("--results")
        if path is not None and path.exists():
            from bnncert.results.store import ResultsFile

            ResultsFile(path).close()

    def written(self, found: AnswerT, *, is_interrupted: bool) -> Iterator[str]:
        """Write the answer into the results file, unless it is unfinished."""
        if "--results" in self.outputs.files and not is_interrupted:
            yield self.record(self.outputs.files["--results"], found.to_dict())

    def record(self, path: Path, tree: Mapping[str, Any]) -> str:
        """Write an answer as data with its network and its input; return a sentence about it."""
        from bnncert.arrays import numbers_hash
        from bnncert.problem import rivals_text
        from bnncert.results.rows import InputRecord, NetworkRecord, made_answer
        from bnncert.results.store import ResultsFile

        question, point = self.question, self.question.region.middle
        network = question.network
        # The hash of the region, because two regions may have the same words.
        region = json.dumps(question.region.to_dict(), sort_keys=True)
        asked = {
            **self.settings,
            "rivals": rivals_text(question.rivals),
            "sign_zero": network.sign_zero,
            "region": hashlib.sha256(region.encode()).hexdigest(),
        }
        shape = question.image_shape or network.input_shape
        with ResultsFile(path) as results:
            certificate = tree.get("certificate")
            answer = made_answer(
                asked,
                _without_points(tree),
                kind=self.kind,
                model_hash=network.content_hash,
                input_name=question.where,
                input_hash=numbers_hash(point),
                label=question.label,
                labels=question.labels,
                region=self.region,
                status=tree["status"],
                summary=tree["summary"],
                seconds=float(tree["seconds"]),
                certificate=None if certificate is None else results.relative(certificate),
            )
            results.add_networks([NetworkRecord.of(network, Path(network.source).name)])
            results.add_inputs([InputRecord(answer.input_hash, question.label, shape, point)])
            results.replace_other(answer)
            count = len(results.other_answers())
        plural = "" if count == 1 else "s"
        return f"results: {path} ({count} answer{plural} of explain, faults and count)"


def _without_points(tree: Any) -> Any:
    """Return an answer without the fields that hold whole points, which would fill the file."""
    if isinstance(tree, Mapping):
        return {k: _without_points(v) for k, v in tree.items() if k not in _POINTS}
    return [_without_points(part) for part in tree] if isinstance(tree, list | tuple) else tree
