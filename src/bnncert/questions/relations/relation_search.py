"""The search of a question about two copies: part after part, until one fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import TIME_IS_UP
from bnncert.engine.answer import Interrupted
from bnncert.engine.replay import OnnxRuntime
from bnncert.engine.verdict import Counterexample, Result
from bnncert.kernel.rules.relation_products import Relation, paired_signs, violation, violation_name
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.writing import write_counterexample
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.questions.relations.relation_answer import (
    InputPair,
    PartResult,
    RelationResult,
    RelationStatus,
)
from bnncert.questions.relations.relation_parts import (
    PairPart,
    PairParts,
    PairQuestion,
    relation_claim,
)

#: Values of sign(0) with which a pair is searched if it may be either.
KNOWN_ZEROS: tuple[SignZero, ...] = ("plus", "minus")

#: The name of the part that shows a failure.
FAILURE = "failure"

WORDS: dict[str, RelationStatus] = {
    "robust": "holds",
    "not_robust": "fails",
    "unknown": "unknown",
    "timeout": "timeout",
}


@dataclass(frozen=True, eq=False)
class _FailedPart:
    """A part that fails: its number, the point of its product, and the two inputs."""

    number: int
    part: PairPart
    point: Counterexample
    pair: InputPair


class RelationSearch(Search[RelationResult]):
    """The state of one question."""

    def __init__(self, question: PairQuestion, effort: Effort) -> None:
        self.prover = Prover(effort, [question.network])
        self._question, self._parts = question, PairParts(question)
        self._count = self._parts.count
        self._answers: list[PartResult] = []
        self._notes: list[str] = []
        self._failure: _FailedPart | None = None

    def answer(self) -> RelationResult:
        """Combine the parts: the relation holds if all of them do, or one that fails decides it."""
        question = self._question
        return RelationResult(
            status=self._status(),
            statement=question.statement,
            negation=question.negation,
            changes=question.changes,
            names=question.names,
            parts=tuple(self._answers),
            count=self._count,
            seconds=self.prover.deadline.elapsed(),
            pair=None if self._failure is None else self._failure.pair,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _status(self) -> RelationStatus:
        if self._failure is not None:
            return "fails"
        found = {answer.status for answer in self._answers}
        if found == {"holds"} and len(self._answers) == self._count:
            return "holds"
        late = "timeout" in found or len(self._answers) < self._count
        return "timeout" if late else "unknown"

    def run(self) -> None:
        """Answer the parts in order; a failure ends the work."""
        for number, part in enumerate(self._parts):
            if self.prover.deadline.passed():
                return
            before = self.prover.deadline.elapsed()
            try:
                found = self._decide(number, part, name=str(number))
            except Interrupted as stop:
                self._take(number, part, stop.answer, before)
                raise
            self._take(number, part, self._confirmed(number, part, found), before)
            if self._failure is not None:
                return

    def _decide(self, number: int, part: PairPart, name: str = "") -> Result:
        prefix = f"part {number + 1} of {self._count}: " if self._count > 1 else ""
        return self.prover.decide(part.problem, name=name, prefix=prefix)

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
        for exact in part.with_increases(point.exact or point.point.tolist()):
            yield replace(point, point=np.array([float(v) for v in exact]), exact=exact)
        network = self._question.network
        for zero in KNOWN_ZEROS if network.sign_zero not in KNOWN_ZEROS else ():
            if self.prover.deadline.passed():
                return
            known = replace(self._question, network=network.with_sign_zero(zero))
            found = self._decide(number, PairParts(known).part(part.small)).counterexample
            if found is not None:
                yield found

    def _pair(self, part: PairPart, point: Counterexample) -> InputPair | None:
        return _replayed_pair(self._question.network, part, point, self._question.relation)

    def _take(self, number: int, part: PairPart, found: Result, before: float) -> None:
        """Keep the answer for a part, and the pair of inputs if it fails."""
        status, point = WORDS[found.status], found.counterexample
        if point is not None:
            pair = self._pair(part, point)
            if pair is None:
                # The product and the network have to agree; without that there is no answer.
                status = "unknown"
                self._notes.append(f"{part.name}: the network itself does not confirm a pair")
            else:
                self._failure = _FailedPart(number, part, point, pair)
        if status == "holds" and found.certificate is None:
            solvers = dict.fromkeys(t.trusted for t in found.targets if t.trusted is not None)
            self._notes += [f"the proof relies on {solver}" for solver in solvers]
            if self.prover.wants_certificate and found.notes:
                self._notes.append(f"{part.name}: {found.notes[-1]}")
        stage = found.deciding_stage if status in ("holds", "fails") else ""
        seconds = self.prover.deadline.elapsed() - before
        self._answers.append(
            PartResult(part.name, status, found.lower, found.upper, seconds, stage)
        )

    def interrupted(self) -> RelationResult:
        """Call an interrupted question open: it is neither late nor has it failed."""
        return replace(self.answer(), status="unknown")

    def certified(self, found: RelationResult) -> RelationResult:
        """Write the claim with the proofs of all parts, or with the part that fails."""
        prover, names = self.prover, [str(number) for number in range(self._count)]
        if self._failure is not None:
            found = replace(found, certificate=self._write_failure(self._failure))
        elif found.status == "holds" and all(map(prover.has, names)):
            if prover.deadline.passed():
                return replace(found, notes=(*found.notes, f"no certificate: {TIME_IS_UP}"))
            written = prover.finish(relation_claim(self._question), names)
            found = replace(found, certificate=written)
        return replace(found, seconds=prover.deadline.elapsed())

    def _write_failure(self, failure: _FailedPart) -> str:
        """Write the claim that a part fails."""
        part, classes = failure.part, failure.pair.classes
        chosen, problem = violated_problem(part, self._question.relation, classes)
        point = replace(failure.point, target=problem.targets[0].name)
        write_counterexample(self.prover.file(FAILURE), problem, problem.network, point)
        claim = relation_claim(self._question, [failure.number, chosen])
        return self.prover.finish(claim, [FAILURE])


def violated_problem(
    part: PairPart, relation: Relation, classes: tuple[int, int]
) -> tuple[int, Problem]:
    """Return the number of the violation by two inputs of these classes, and its problem alone."""
    names = [target.name for target in part.problem.targets]
    chosen = 0 if relation.score is not None else names.index(violation_name(*classes))
    return chosen, replace(part.problem, targets=(part.problem.targets[chosen],))


def _replayed_pair(
    network: Network, part: PairPart, found: Counterexample, relation: Relation
) -> InputPair | None:
    """Return the two inputs of a counterexample, or None if the network itself denies it."""
    exact = part.pair(found.exact or found.point.tolist())
    wrong = violation(network, relation, paired_signs(network, *exact))
    if wrong is None:
        return None
    first, second = (np.array([float(v) for v in x]) for x in exact)
    floats = tuple(tuple(map(Fraction, x.tolist())) for x in (first, second))
    one, two = (network.output.gain * np.array([float(v) for v in s]) for s in wrong.scores)
    return InputPair(
        first,
        second,
        None if floats == exact else exact,
        wrong.classes,
        (one, two),
        tuple(np.flatnonzero(first != second).tolist()),
        ("exact", *_executed(network, relation, (first, second))),
    )


def _executed(
    network: Network, relation: Relation, points: tuple[FloatArray, FloatArray]
) -> tuple[str, ...]:
    """Return ("onnxruntime",) if that program confirms the pair."""
    runtime = OnnxRuntime.of(network)
    if runtime is None:
        return ()
    scores = [runtime.scores(x) for x in points]
    if relation.score is not None:
        gap = float(scores[0][relation.score] - scores[1][relation.score])
        return ("onnxruntime",) if (-gap if relation.falling else gap) > 0 else ()
    classes = [int(np.argmax(s)) for s in scores]
    return ("onnxruntime",) if relation.is_violated_by(*classes) else ()
