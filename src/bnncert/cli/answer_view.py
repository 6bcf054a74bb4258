"""What `explain`, `faults` and `count` do: ask, print the answer, record it and write JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from bnncert.cli.consoles import Consoles
from bnncert.cli.options import AnswerOutputs
from bnncert.cli.output import write_json
from bnncert.cli.progress import LiveLine, watch
from bnncert.cli.recording import Recording
from bnncert.cli.result_views import network_tree
from bnncert.cli.time_limit import finite_limit
from bnncert.engine.answer import AnswerT, Interrupted


@dataclass(frozen=True, eq=False)
class AnswerView(ABC, Generic[AnswerT]):
    """Asks the question of one command and shows its answer; a subclass prints it."""

    consoles: Consoles
    outputs: AnswerOutputs
    recording: Recording
    #: What --json states about the question, besides its network and its point.
    about: dict[str, Any]

    @abstractmethod
    def print_answer(self, found: AnswerT) -> None:
        """Print the answer."""

    def ask(self, opening: str, timeout: float, question: Callable[[LiveLine], AnswerT]) -> None:
        """Ask the question, which reports its progress; print the answer and write its files.

        After Ctrl-C what is known is printed and written as JSON.
        """
        later = self.consoles.details.later(opening)
        with watch(self.consoles.watching, finite_limit(timeout), later) as progress:
            try:
                found = question(progress)
            except Interrupted as stop:
                self._show(progress, stop.answer, is_interrupted=True)
                raise
            self._show(progress, found)

    def _show(self, progress: LiveLine, found: AnswerT, *, is_interrupted: bool = False) -> None:
        console, question = self.consoles.details, self.recording.question
        progress.open()
        with progress.paused():
            self.print_answer(found)
            self._print_certificate(found, is_interrupted)
            if is_interrupted:
                line = f"interrupted after {found.seconds:.2f} s: the search is not finished"
            else:
                line = self.recording.add(found.to_dict())
            if line:
                console.print(line, soft_wrap=True)
        point = {"input": question.where, "labels": question.labels}
        about = {**network_tree(question.network), **point, **self.about}
        write_json(self.outputs.json_, {**about, **found.to_dict()})

    def _print_certificate(self, found: AnswerT, is_interrupted: bool) -> None:
        """Print where the certificate is, or why there is none."""
        if found.certificate is not None:
            size = Path(found.certificate).stat().st_size
            line = f"certificate: {found.certificate} ({size} bytes)"
            self.consoles.details.print(line, soft_wrap=True)
        elif self.outputs.certificate is not None:
            ended = "the search was interrupted" if is_interrupted else "there is no proof"
            reason = found.no_certificate or ended
            self.consoles.details.print(f"no certificate: {reason}", soft_wrap=True)
