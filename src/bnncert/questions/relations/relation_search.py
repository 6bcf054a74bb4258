"""The answer to a question about two copies: part after part, until one fails."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

import numpy as np

from bnncert.deadline import TIME_IS_UP, Deadline
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Counterexample, Result
from bnncert.model.description import SignZero
from bnncert.proofs.request import CertificateRequest
from bnncert.questions.relations.changes import PairQuestion
from bnncert.questions.relations.input_pair import InputPair, replayed_pair
from bnncert.questions.relations.relation_answer import PartResult, RelationResult, RelationStatus
from bnncert.questions.relations.relation_certificate import RelationWriter
from bnncert.questions.relations.relation_parts import PairPart, make_parts, part_count
from bnncert.questions.solving import solve

#: Values of sign(0) with which a pair is searched if it may be either.
KNOWN_ZEROS: tuple[SignZero, ...] = ("plus", "minus")

#: Called with an answer before its certificate is written.
AnnounceRelation: TypeAlias = Callable[[RelationResult], None]

WORDS: dict[str, RelationStatus] = {
    "robust": "holds",
    "not_robust": "fails",
    "unknown": "unknown",
    "timeout": "timeout",
}


@dataclass(frozen=True, eq=False)
class Asking:
    """How a question is answered: those of :func:`bnncert.verify`."""

    method: str = "auto"
    timeout: float | None = None
    options: Options | None = None
    progress: Progress | None = None
    certificate: str | os.PathLike[str] | None = None
    announce: AnnounceRelation | None = None


@dataclass(eq=False)
class _RelationRun:
    """The state of one question."""

    question: PairQuestion
    words: tuple[str, str]
    asking: Asking
    count: int
    deadline: Deadline
    answers: list[PartResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: The number of the part that fails, the part, the point of its product, and the two inputs.
    failure: tuple[int, PairPart, Counterexample, InputPair] | None = None
    #: Whether all certificates of parts could be written.
    certified: bool = True

    def result(self, status: RelationStatus | None = None) -> RelationResult:
        """Return what is known now."""
        return RelationResult(
            status or self._status(),
            *self.words,
            self.question.changes,
            self.question.names,
            tuple(self.answers),
            self.count,
            self.deadline.elapsed(),
            None if self.failure is None else self.failure[3],
            tuple(dict.fromkeys(self.notes)),
        )

    def _status(self) -> RelationStatus:
        if self.failure is not None:
            return "fails"
        found = {answer.status for answer in self.answers}
        if found == {"holds"} and len(self.answers) == self.count:
            return "holds"
        late = "timeout" in found or len(self.answers) < self.count
        return "timeout" if late else "unknown"

    def answer(self, writer: RelationWriter | None) -> None:
        """Answer the parts in order; a failure ends the work."""
        for number, part in enumerate(make_parts(self.question)):
            if self.deadline.passed():
                return
            before = self.deadline.elapsed()
            try:
                request = None if writer is None else writer.part(number, part)
                found = self._confirmed(number, part, self._solve(number, part, request))
            except Interrupted as stop:
                self._take(number, part, stop.answer, self.deadline.elapsed() - before)
                raise Interrupted(self.result("unknown")) from stop
            self._take(number, part, found, self.deadline.elapsed() - before)
            if self.failure is not None:
                return
            if writer is not None and found.certificate is None and found.status == "robust":
                self.certified = False
                self.notes += [f"{part.name}: {found.notes[-1]}"] if found.notes else []

    def _solve(self, number: int, part: PairPart, request: CertificateRequest | None) -> Result:
        left = self.deadline.remaining()
        return solve(
            [part.problem],
            self.asking.method,
            None if left == math.inf else left,
            self.asking.options,
            self._progress(number),
            request=request,
        )

    def _confirmed(self, number: int, part: PairPart, found: Result) -> Result:
        """Return what was found, with another pair if no choice of sign(0) confirms its own."""
        if found.counterexample is None:
            return found
        for point in self._candidates(number, part, found.counterexample):
            if self._pair(part, point) is not None:
                return replace(found, counterexample=point)
        return found

    def _candidates(
        self, number: int, part: PairPart, point: Counterexample
    ) -> Iterator[Counterexample]:
        """Yield a counterexample, and others from near it or for a known sign(0)."""
        yield point
        place = point.point.tolist() if point.exact is None else point.exact
        for exact in part.with_increases(place):
            yield replace(point, point=np.array([float(v) for v in exact]), exact=exact)
        network = self.question.network
        for zero in KNOWN_ZEROS if network.sign_zero not in KNOWN_ZEROS else ():
            if self.deadline.passed():
                return
            known = replace(self.question, network=network.with_sign_zero(zero))
            other = next(islice(make_parts(known), number, None))
            found = self._solve(number, other, None).counterexample
            if found is not None:
                yield found

    def _pair(self, part: PairPart, point: Counterexample) -> InputPair | None:
        return replayed_pair(self.question.network, part, point, self.question.relation)

    def _take(self, number: int, part: PairPart, found: Result, seconds: float) -> None:
        """Keep the answer for a part, and the pair of inputs if it fails."""
        status, point = WORDS[found.status], found.counterexample
        if point is not None:
            pair = self._pair(part, point)
            if pair is None:
                # The product and the network have to agree; without that there is no answer.
                status = "unknown"
                self.notes.append(f"{part.name}: the network itself does not confirm a pair")
            else:
                self.failure = number, part, point, pair
        if status == "holds" and found.certificate is None:
            solvers = dict.fromkeys(t.trusted for t in found.targets if t.trusted is not None)
            self.notes += [f"the proof relies on {solver}" for solver in solvers]
        stage = found.deciding_stage if status in ("holds", "fails") else ""
        self.answers.append(PartResult(part.name, status, found.lower, found.upper, seconds, stage))

    def _progress(self, number: int) -> Progress | None:
        """Return a progress that names the part, if there are several."""
        show = self.asking.progress
        if show is None or self.count == 1:
            return show

        def shown(text: str, done: int, total: int) -> None:
            assert show is not None
            show(f"part {number + 1} of {self.count}: {text}", done, total)

        return shown

    def certificate(self, writer: RelationWriter, result: RelationResult) -> RelationResult:
        """Write the certificate of an answer; return the result with its name or a note."""
        question = self.question
        if result.status == "holds" and self.certified:
            if self.deadline.passed():
                return replace(result, notes=(*result.notes, f"no certificate: {TIME_IS_UP}"))
            return replace(result, certificate=writer.write(question, self.count))
        if self.failure is not None:
            number, part, point, pair = self.failure
            name = writer.write_failure(question, number, part, point, pair.classes)
            return replace(result, certificate=name)
        return result


def answer(question: PairQuestion, words: tuple[str, str], asking: Asking) -> RelationResult:
    """Answer a question about two copies of a network.

    Parameters
    ----------
    question
        The question.
    words
        The property in words, and its negation.
    asking
        How it is answered.
    """
    deadline = Deadline(asking.timeout)
    with RelationWriter.into(asking.certificate, question.network) as writer:
        run = _RelationRun(question, words, asking, part_count(question), deadline)
        try:
            run.answer(writer)
            result = run.result()
        except Interrupted:
            raise
        except KeyboardInterrupt as stop:
            raise Interrupted(run.result("unknown")) from stop
        if asking.announce is not None:
            asking.announce(result)
        if writer is not None:
            result = replace(run.certificate(writer, result), seconds=deadline.elapsed())
    return result
