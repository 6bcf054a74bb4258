"""What `explain`, `faults` and `count` do with their answer: print it, record it, write JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from bnncert.cli.consoles import Talk
from bnncert.cli.output import write_json
from bnncert.cli.progress import LiveLine
from bnncert.cli.recording import Recording
from bnncert.engine.answer import AnswerT


@dataclass(frozen=True, eq=False)
class AnswerView(ABC, Generic[AnswerT]):
    """Shows the answer of one command; a subclass prints it."""

    talk: Talk
    progress: LiveLine
    #: The target of --json, and what it states about the question.
    json_: str | None
    about: dict[str, Any]
    recording: Recording
    #: The value of --certificate.
    certificate: Path | None

    @abstractmethod
    def print_answer(self, found: AnswerT) -> None:
        """Print the answer."""

    def show(self, found: AnswerT) -> None:
        """Print the answer and write its files."""
        self._show(found)

    def show_interrupted(self, found: AnswerT) -> None:
        """Print what is known after Ctrl-C, and write it as JSON."""
        self._show(found, is_interrupted=True)

    def _show(self, found: AnswerT, *, is_interrupted: bool = False) -> None:
        console = self.talk.details
        self.progress.open()
        with self.progress.paused():
            self.print_answer(found)
            self._print_certificate(found, is_interrupted)
            if is_interrupted:
                line = f"interrupted after {found.seconds:.2f} s: the search is not finished"
            else:
                line = self.recording.add(found.to_dict())
            if line:
                console.print(line, soft_wrap=True)
        write_json(self.json_, {**self.about, **found.to_dict()})

    def _print_certificate(self, found: AnswerT, is_interrupted: bool) -> None:
        """Print where the certificate is, or why there is none."""
        if found.certificate is not None:
            size = Path(found.certificate).stat().st_size
            line = f"certificate: {found.certificate} ({size} bytes)"
            self.talk.details.print(line, soft_wrap=True)
        elif self.certificate is not None:
            ended = "the search was interrupted" if is_interrupted else "there is no proof"
            reason = found.no_certificate or ended
            self.talk.details.print(f"no certificate: {reason}", soft_wrap=True)
