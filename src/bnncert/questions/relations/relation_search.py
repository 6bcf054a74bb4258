"""The search of a question about two inputs: part after part, until one fails.

The relations (the same class; a class or score that does not fall) are transitive, so a large
change is a sequence of small ones: from one value to the next one, by one step, or in one attribute
after the other.  Only the small changes are proved, as problems about two copies of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import TIME_IS_UP
from bnncert.engine.answer import Interrupted
from bnncert.engine.replay import OnnxRuntime
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import InputError
from bnncert.kernel.claims.two_copies import MOST_PARTS, SmallChange, TwoCopiesClaim
from bnncert.kernel.container import Section
from bnncert.kernel.rules.relation_products import Relation, paired_signs, violation, violation_name
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.claims import claim_section, read_claim, stated_region
from bnncert.proofs.writing import write_counterexample
from bnncert.questions.compare.difference import condition_target
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.questions.relations.relation_answer import (
    Change,
    InputPair,
    PartResult,
    RelationResult,
    RelationStatus,
)
from bnncert.regions import Box, EmptyRegionError

#: Increases that are tried instead of 0, as shares of the room that the region leaves.
SHARES = tuple(Fraction(1, 2**k) for k in (0, 1, 3, 6, 10, 20))

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
class PairQuestion:
    """A relation between two inputs of a network that differ only in what may change."""

    #: The network, and the region of both inputs.
    network: Network
    box: Box
    #: What may change.
    changes: tuple[Change, ...]
    #: Groups of inputs that do not change and of which exactly one is 1.
    one_hot: tuple[tuple[int, ...], ...]
    #: What has to hold between the classes or scores of both inputs.
    relation: Relation
    #: The names of the inputs.
    names: tuple[str, ...]
    #: The property in words, and what is true if it fails.
    statement: str = ""
    negation: str = ""


@dataclass(frozen=True, eq=False)
class PairPart:
    """A small change on a part of the region, as a problem about the product of two copies."""

    name: str
    small: SmallChange
    problem: Problem

    def pair(self, point: Sequence[Any]) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Return the two inputs of the network that a point of the product consists of."""
        change, exact = self.small.change, list(map(Fraction, point))
        first, second = change.pair(exact, len(exact) - len(change.features))
        return tuple(first), tuple(second)

    def with_increases(self, point: Sequence[Any]) -> Iterator[tuple[Fraction, ...]]:
        """Yield points in which x' is larger or x smaller, for one with any increase that is 0.

        If ties of the input x = x' can have two classes, one of them is not that of a neighbour.
        """
        exact, change = list(map(Fraction, point)), self.small.change
        if change.values or change.step is not None or exact[-1] != 0:
            return
        f, region = change.features[0], self.problem.region
        low, high = (exact[f] - Fraction(region.lo[f]), Fraction(region.hi[f]) - exact[f])
        for share in SHARES:
            for room, start in ((high, exact[f]), (low, exact[f] - share * low)):
                yield *exact[:f], start, *exact[f + 1 : -1], share * room


def unit_states(group: Sequence[int], box: Box) -> tuple[tuple[float, ...], ...]:
    """Return the states of a one-hot group in the box: one input is 1, and the others are 0.

    Raises InputError if 0 or 1 is in the bounds, but not on the grid of the box.
    """
    columns, found = list(group), []
    for state in np.eye(len(columns)):
        if np.all((box.lo[columns] <= state) & (state <= box.hi[columns])):
            for f, v in zip(columns, state.tolist(), strict=True):
                refuse_off_grid(v, f, box, f"input {f}, which is in a one-hot group,")
            found.append(tuple(state.tolist()))
    return tuple(found)


def refuse_off_grid(value: float, feature: int, box: Box, name: str) -> None:
    """Raise if a value in the bounds of a feature is not one of the box's grid."""
    if box.values is None:
        return
    point = box.lo.copy()
    point[feature] = value
    near = float(box.values.at(box.values.nearest(point))[feature])
    if near != value:
        step, origin = (float(v[feature]) for v in (box.values.step, box.values.origin))
        raise InputError(
            f"value {value:.9g} of {name} is not on the grid of step {step:.9g} from {origin:.9g}; "
            f"the nearest value is {near:.9g}"
        )


def relation_claim(question: PairQuestion, failure: list[int] | None = None) -> Section:
    """Return the claim; `failure` is the number of a part and of the way in which it fails."""
    details = {
        "network": question.network.content_hash,
        "relation": vars(question.relation).copy(),
        "changes": [change.exactly() for change in question.changes],
        "one_hot": [list(group) for group in question.one_hot],
        "failure": failure,
    }
    return claim_section("two copies", question.box, details)


class PairParts:
    """The parts of a question, which follow from its claim.

    Raises InputError if there are too many of them, and EmptyRegionError if there are none.
    """

    def __init__(self, question: PairQuestion) -> None:
        if not all(unit_states(group, question.box) for group in question.one_hot):
            raise EmptyRegionError("the region is empty: no category of a one-hot group is in it")
        self._question = question
        self._claim = read_claim(TwoCopiesClaim, relation_claim(question), question.network)
        self.count = self._claim.count
        if self.count > MOST_PARTS:
            raise InputError(
                f"the question has {self.count} parts; at most {MOST_PARTS} are answered"
            )

    def __iter__(self) -> Iterator[PairPart]:
        return map(self.part, self._claim.small_changes())

    def part(self, small: SmallChange) -> PairPart:
        """Return a part with its name, as a problem about the product of two copies."""
        relation, names = self._question.relation, self._question.names
        both, stated = self._claim.made(small)
        region = stated_region(stated)
        wanted = stated.fields.get("grid")
        if region.values is not None and region.values.dtype.name != wanted:
            raise InputError(
                f"the values that change are {region.values.dtype.name} numbers and those of the "
                f"region's grid {wanted}; give bounds and steps that are float32 numbers"
            )
        ways = relation.violations(self._question.network.classes)
        targets = tuple(condition_target(both, name, conditions) for name, conditions in ways)
        fixed = (_state_text(group, state, names) for group, state in small.cell)
        name = ", ".join([_small_text(small, names), *fixed])
        return PairPart(name, small, Problem(both, region, targets))


def _state_text(
    group: Sequence[int], state: int | tuple[Fraction, ...], names: Sequence[str]
) -> str:
    """Return the value of a feature that is fixed, or which one of a group is 1."""
    if not isinstance(state, int) and len(group) == 1:
        return f"{names[group[0]]} = {float(state[0]):.9g}"
    one = state if isinstance(state, int) else group[state.index(Fraction(1))]
    return f"{names[one]} = 1"


def _small_text(small: SmallChange, names: Sequence[str]) -> str:
    first, *others = features = small.change.features
    if small.states is None:
        step = small.change.step
        return f"{names[first]} by {'any amount' if step is None else f'{float(step):.9g}'}"
    if others:
        one, two = (names[features[state.index(Fraction(1))]] for state in small.states)
        return f"from {one} to {two}"
    before, after = (f"{float(state[0]):.9g}" for state in small.states)
    return f"{names[first]} from {before} to {after}"


# -- the search ------------------------------------------------------------------------------------


class RelationSearch(Search[RelationResult]):
    """The state of one question."""

    def __init__(self, question: PairQuestion, effort: Effort) -> None:
        self.prover = Prover(effort, [question.network])
        self._question, self._parts = question, PairParts(question)
        self._count = self._parts.count
        self._answers: list[PartResult] = []
        self._notes: list[str] = []
        #: A part that fails: its number, the point of its product, and the two inputs.
        self._failure: tuple[int, PairPart, Counterexample, InputPair] | None = None

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
            pair=None if self._failure is None else self._failure[-1],
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

    def _pair(self, part: PairPart, found: Counterexample) -> InputPair | None:
        """Return the two inputs of a counterexample, or None if the network itself denies it."""
        network, relation = self._question.network, self._question.relation
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
                self._failure = number, part, point, pair
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
            found = replace(found, certificate=self._write_failure(*self._failure))
        elif found.status == "holds" and all(map(prover.has, names)):
            if prover.deadline.passed():
                return replace(found, notes=(*found.notes, f"no certificate: {TIME_IS_UP}"))
            written = prover.finish(relation_claim(self._question), names)
            found = replace(found, certificate=written)
        return replace(found, seconds=prover.deadline.elapsed())

    def _write_failure(
        self, number: int, part: PairPart, point: Counterexample, pair: InputPair
    ) -> str:
        """Write the claim that a part fails."""
        chosen, problem = violated_problem(part, self._question.relation, pair.classes)
        point = replace(point, target=problem.targets[0].name)
        write_counterexample(self.prover.file(FAILURE), problem, problem.network, point)
        claim = relation_claim(self._question, [number, chosen])
        return self.prover.finish(claim, [FAILURE])


def violated_problem(
    part: PairPart, relation: Relation, classes: tuple[int, int]
) -> tuple[int, Problem]:
    """Return the number of the violation by two inputs of these classes, and its problem alone."""
    names = [target.name for target in part.problem.targets]
    chosen = 0 if relation.score is not None else names.index(violation_name(*classes))
    return chosen, replace(part.problem, targets=(part.problem.targets[chosen],))


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
